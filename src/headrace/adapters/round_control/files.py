"""Signals as files in a folder of the one machine that the driver and its workers run on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from headrace.model.checkpoint import RoundId
from headrace.ports.processor_store import SystemPayload

STOP, CUT = ".stop", ".cut"


class FileControl:
    """`headrace.exchange.engine.RoundControl`. `folder` is the application's; a file is there only once there is a signal."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._signalled: set[RoundId] = set()

    def begin(self, epoch: int) -> None:
        """Of later epochs nothing is removed: this process may have been stopped, and replaced."""
        for path in self._folder.glob("*-*"):
            number = path.name.partition("-")[0]
            if not number.isdigit() or int(number) >= epoch:
                continue
            if path.is_dir():  # of a version that had a folder for each round
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def terms_of(self, round_id: RoundId) -> SystemPayload:
        return {"files": str(self._path(round_id))}

    def stop(self, round_id: RoundId) -> None:
        self._signal(round_id, STOP)

    def cut(self, round_id: RoundId) -> None:
        self._signal(round_id, CUT)

    def _signal(self, round_id: RoundId, kind: str) -> None:
        self._signalled.add(round_id)
        self._folder.mkdir(parents=True, exist_ok=True)
        Path(f"{self._path(round_id)}{kind}").touch()

    def ended(self, round_id: RoundId) -> None:
        if round_id in self._signalled:
            self._signalled.discard(round_id)
            for kind in (STOP, CUT):
                Path(f"{self._path(round_id)}{kind}").unlink(missing_ok=True)

    def close(self) -> None: ...

    def _path(self, round_id: RoundId) -> Path:
        return self._folder / f"{round_id.epoch}-{round_id.sub_topology or 'source'}-{round_id.number}"


class FileSignals:
    """`headrace.worker.ports.RoundSignals`."""

    def __init__(self, path: str) -> None:
        self._stop, self._cut = f"{path}{STOP}", f"{path}{CUT}"

    def is_stopped(self) -> bool:
        return os.path.exists(self._stop)

    def is_cut(self) -> bool:
        return os.path.exists(self._cut)

    def troubles(self) -> Sequence[str]:
        return ()

    def close(self) -> None: ...
