"""The demonstration's folder: what it makes there, and that nothing else in it is ever touched.

A marker file says that the folder is ours, and holds the checksum of the example, so that an edited one is kept. While a
demonstration runs it holds a lock on the marker: a second one in the same folder refuses.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from headrace.adapters.common.lease_holder import HEARTBEAT_STALE_US, is_known_dead
from headrace.environment import checked_folder
from headrace.errors import JobHeldError, SetupError, StorageError
from headrace.wiring import opened_system

MARKER = ".headrace-demo.json"
EXAMPLE = "flight_delays.py"
_LOG, _OWN, _KAFKA = "data", ".headrace", "kafka"


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Where the demonstration keeps things. `found`: what was there before, in words, None for nothing.

    `url`: the cluster that its streams are on, None for a log in the folder. `noted`: the one that an earlier
    demonstration of this folder recorded.
    """

    path: Path
    found: str | None = None
    url: str | None = None
    noted: str | None = None

    @property
    def log(self) -> Path:
        return self.path / _LOG

    @property
    def system(self) -> str:
        return self.url or f"log:{self.log}"

    @property
    def kafka(self) -> Path:
        """Where a broker of the demonstration's own keeps its data."""
        return self.path / _KAFKA

    def on(self, url: str, example: str) -> DemoFolder:
        """This folder with its streams on a cluster, which is recorded; `example` is written unless there is an edited one."""
        marker = self.path / MARKER
        stands = json.loads(marker.read_text(encoding="utf-8"))
        if stands["example"]:
            self.example.write_text(example, encoding="utf-8")
            stands["example"] = _checksum(example)
        marker.write_text(json.dumps(stands | {"system": url}) + "\n", encoding="utf-8")
        return replace(self, url=url)

    @property
    def local_stores(self) -> Path:
        return self.path / _OWN / "stores"

    @property
    def example(self) -> Path:
        return self.path / EXAMPLE


@contextmanager
def begun_anew(path: Path, application: str, example: str) -> Iterator[DemoFolder]:
    """The folder `path`, fit for a run from the start and held until the context ends.

    One of an earlier demonstration loses what that one made, and keeps anything else, an edited example too.
    `SetupError` for a folder with files in it that is none of ours; `JobHeldError` while it is in use.
    """
    path = path.expanduser().absolute()
    marker = path / MARKER
    if path.is_dir() and not marker.is_file() and any(path.iterdir()):
        raise SetupError(
            f"folder {path} is not empty, and no demonstration made it", "choose another one: headrace demo --dir FOLDER"
        )
    checked_folder(path, "the demonstration")
    with marker.open("a+", encoding="utf-8") as file:
        _lock(file, path)
        stands = _read(file)
        made = None if stands is None else str(stands.get("example", ""))
        found = _cleared(path, application) if made is not None else None
        kept = _written_example(path / EXAMPLE, example, made)
        noted = None if stands is None else stands.get("system")
        _write(file, example if not kept else None, noted)
        if kept and found:
            found += f"; {EXAMPLE} was edited, and stays as it is"
        yield DemoFolder(path, found, noted=noted)


def _lock(file: TextIO, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise JobHeldError(
            f"another demonstration runs in {path}", "wait for its end, or choose another folder: --dir FOLDER"
        ) from None


def _cleared(path: Path, application: str) -> str:
    """Take away what an earlier demonstration made; in words, what that was."""
    log = path / _LOG
    text = f"{path.name} holds an earlier demonstration; it is recreated"
    if log.is_dir():
        _refuse_while_driven(log, application)
    _refuse_while_a_broker_runs(path / _KAFKA)
    for name in (_LOG, _OWN, _KAFKA):
        shutil.rmtree(path / name, ignore_errors=True)
        if (path / name).exists():
            raise SetupError(f"{path / name}, made by an earlier demonstration, cannot be deleted", "delete it yourself")
    return text


def _refuse_while_a_broker_runs(folder: Path) -> None:
    """A broker holds a lock of POSIX on a file in its data."""
    for lock in folder.rglob(".lock"):
        with lock.open("a") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise JobHeldError(
                    f"a Kafka broker runs on {folder}", "stop it first, or choose another folder: headrace demo --dir FOLDER"
                ) from None


def _refuse_while_driven(log: Path, application: str) -> None:
    try:
        with opened_system(f"log:{log}", create=False) as system:
            holder = system.job_store(application).holder()
    except (SetupError, StorageError):
        return  # no log, or none that a job could run on
    if holder is None or is_known_dead(holder):
        return
    if time.time_ns() // 1000 - holder.heartbeat_us <= HEARTBEAT_STALE_US:
        raise JobHeldError(
            f"application {application!r} runs on {log}: process {holder.pid} on {holder.host}",
            "stop it first, or choose another folder: headrace demo --dir FOLDER",
        )


def _written_example(file: Path, text: str, made: str | None) -> bool:
    """Write the example, unless there is one that somebody edited; whether there is."""
    if file.exists() and (made is None or _checksum(file.read_text(encoding="utf-8", errors="replace")) != made):
        return True
    file.write_text(text, encoding="utf-8")
    return False


def _read(file: TextIO) -> dict[str, Any] | None:
    """What an earlier demonstration recorded: the checksum of its example, its cluster; None: there was none."""
    file.seek(0)
    text = file.read()
    if not text.strip():
        return None
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return {}


def _write(file: TextIO, example: str | None, system: str | None) -> None:
    file.seek(0)
    file.truncate()
    note = "made by `headrace demo`; running it again deletes data, kafka and .headrace in this folder"
    stands = {"note": note, "example": "" if example is None else _checksum(example), "system": system}
    file.write(json.dumps(stands) + "\n")
    file.flush()


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
