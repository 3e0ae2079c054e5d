"""The thread that keeps a processor's lease: it asks for the own registration, a few times per session timeout."""

from __future__ import annotations

import logging
import threading

from headrace.errors import HeadraceError
from headrace.group.processor_group import ProcessorGroup

LOG = logging.getLogger("headrace.group")
STOP_S_MAX = 10.0


class LeaseKeeper:
    """Runs while the context lasts. Where the registration is not there any more it keeps asking: another one may be made."""

    def __init__(self, group: ProcessorGroup) -> None:
        self._group = group
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="group-lease", daemon=True)

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(STOP_S_MAX)

    def _keep(self) -> None:
        answered = True
        while not self._ended.wait(self._group.lease.look_interval_s):
            try:
                self._group.confirm()
            except HeadraceError as error:
                if answered:
                    LOG.warning("%s", error.message)
                answered = False
            else:
                answered = True
