"""Requests for startpoints that are kept outside of the job's own system (`startpoint_metadata_store`): reading them, and
removing those that are on record with the job.

The two systems have no transaction in common, and need none: what the driver applies is recorded in the job's own store,
with the plan, and what is on record is not applied again. So a request that is removed late does no harm.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping

from headrace.codec.job_records import STARTPOINTS
from headrace.errors import HeadraceError
from headrace.ports.metadata_store import MetadataStore

LOG = logging.getLogger("headrace.job")
LOOK_S = 0.5
CLOSE_WAIT_S = 10.0  # of a broker that does not answer a call cannot be broken off at once


class RequestsElsewhere:
    """Those of one application. Threads may share it. A running job must not wait for a system that is not its own: from
    `watch` on a thread looks there, and all else goes by what it saw last. `place` names the store to people."""

    def __init__(self, metadata: MetadataStore, place: str) -> None:
        self._metadata, self._place = metadata, place
        self._lock = threading.Lock()
        self._seen: Mapping[str, bytes] = {}
        self._done: frozenset[str] = frozenset()  # on record with the job, and not removed yet
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def requests(self) -> Mapping[str, bytes]:
        """All requests there, by id: as they are now (raises what the store raises), or as last seen by the thread."""
        if self._thread is None:
            self._look()
        with self._lock:
            return self._seen

    def new_ids(self) -> frozenset[str]:
        """Of what was seen last, those that are not done."""
        with self._lock:
            return frozenset(self._seen.keys() - self._done)

    def done(self, ids: Collection[str]) -> None:
        """These are on record: they are removed, now or, where that cannot be, with one of the next looks."""
        with self._lock:
            self._done |= self._seen.keys() & set(ids)
        if self._thread is None:
            try:
                self._remove()
            except HeadraceError as error:
                LOG.warning("%s; it is tried again", error.message)

    def watch(self) -> None:
        """Look from now on in a thread of its own."""
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._keep_looking, name="headrace-startpoints", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Look no more. The store is not ours to close."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(CLOSE_WAIT_S)

    def _keep_looking(self) -> None:
        is_lost = False
        while not self._closed.wait(LOOK_S):
            try:
                self._remove()
                self._look()
                if is_lost:
                    LOG.info("startpoint_metadata_store = %r answers again", self._place)
                is_lost = False
            except Exception as error:  # a thread that ends in silence would never look again
                if not is_lost and not self._closed.is_set():
                    LOG.warning("%s; the job keeps running without it and tries again", getattr(error, "message", error))
                is_lost = True

    def _look(self) -> None:
        try:
            found = self._metadata.requests(STARTPOINTS)
        except HeadraceError as error:
            raise self._named(error, "the requests for startpoints cannot be read") from error
        with self._lock:
            self._seen = found
            self._done &= found.keys()

    def _remove(self) -> None:
        with self._lock:
            due = self._done
        if not due:
            return
        try:
            self._metadata.withdraw(STARTPOINTS, sorted(due))
        except HeadraceError as error:
            raise self._named(error, f"{len(due)} requests that are done cannot be removed") from error
        with self._lock:
            self._seen = {id_: request for id_, request in self._seen.items() if id_ not in due}
            self._done -= due

    def _named(self, error: HeadraceError, what: str) -> HeadraceError:
        return type(error)(f"startpoint_metadata_store = {self._place!r}: {what}: {error.message}", error.hint)
