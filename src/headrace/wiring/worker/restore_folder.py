"""Where the worker processes of a machine and the one that restores the stores of a container find each other.

A folder for each container, beside the stores. `wanted` names what is to be restored; its time says when that was asked last.
`answer` says how far it is. A lock, which the kernel gives up when its holder dies, says whether a process is at work. `starts`
counts the processes that ended without coming further: they are not tried for ever."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import msgspec

from headrace.exchange.store_restoring import RestoreAnswer, decoded_answer, encoded_answer

END_S, _LOOK_S = 5.0, 0.02


class Starts(msgspec.Struct, frozen=True):
    """How many processes were started in a row for `token`, none of which has come further than `done_bytes` of state files."""

    token: str = ""
    count: int = 0
    done_bytes: int = 0

    def one_more(self, token: str, done_bytes: int) -> Starts:
        """With one that is started where `done_bytes` are done.

        >>> Starts("a", 2, 70).one_more("a", 70).count, Starts("a", 2, 70).one_more("a", 90).count
        (3, 1)
        """
        if token != self.token or done_bytes > self.done_bytes:
            return Starts(token, 1, done_bytes)
        return Starts(token, self.count + 1, self.done_bytes)


class RestoreFolder:
    """Of one container: `title` is that of its sub-topology."""

    def __init__(self, local_store_dir: str, application: str, title: str, lane: int) -> None:
        # An application's name has no dot at its beginning: no folder of stores is named so.
        self.path = Path(local_store_dir) / ".restoring" / application / quote(f"{title}-{lane}", safe="")
        self._wanted, self._answer, self._lock = self.path / "wanted", self.path / "answer.json", self.path / "lock"
        self._starts = self.path / "starts.json"

    @property
    def wanted(self) -> str | None:
        """What is to be restored; None for nothing."""
        try:
            return self._wanted.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def want(self, token: str) -> None:
        """Say that this is to be restored, now."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self.wanted != token:
            _replaced(self._wanted, token.encode())
        else:
            with suppress(FileNotFoundError):
                os.utime(self._wanted)

    def asked_ago_s(self) -> float:
        """For how long this was not asked any more."""
        try:
            return time.time() - self._wanted.stat().st_mtime
        except OSError:
            return float("inf")

    def answer(self) -> RestoreAnswer:
        """What the process has said last."""
        try:
            return decoded_answer(self._answer.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return RestoreAnswer()

    def starts(self) -> Starts:
        """Those that were counted so far."""
        try:
            return _decoded_starts(self._starts.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return Starts()

    def write_starts(self, starts: Starts) -> None:
        """Only who holds the lock does."""
        _replaced(self._starts, msgspec.json.encode(starts))

    def write_answer(self, answer: RestoreAnswer) -> None:
        """At once, so that it is never read half. Only the process does, which holds the lock."""
        with suppress(FileNotFoundError):  # the folder was removed
            _replaced(self._answer, encoded_answer(answer))

    def locked(self) -> int | None:
        """A descriptor that holds the lock; None where a process has it."""
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

    def end(self, token: str | None = None, wait_s: float = END_S) -> bool:
        """Have the process end that restores `token`, None for whatever there is; whether none is at work any more."""
        wanted = self.wanted
        if wanted is None or (token is not None and wanted != token):
            return wanted is None
        self.forget()
        until_s = time.monotonic() + wait_s
        while (lock := self.locked()) is None:
            if time.monotonic() > until_s:
                return False
            time.sleep(_LOOK_S)
        os.close(lock)
        return True

    def forget(self) -> None:
        """Nothing is to be restored, and nothing was."""
        self._wanted.unlink(missing_ok=True)
        self._answer.unlink(missing_ok=True)
        self._starts.unlink(missing_ok=True)


_decoded_starts = msgspec.json.Decoder(Starts).decode


def _replaced(path: Path, data: bytes) -> None:
    new = path.with_suffix(f".{os.getpid()}")
    new.write_bytes(data)
    new.replace(path)
