"""The hook by which tests kill, stop, hold and cut a process at a numbered step (protocol.md, "Steps").

Nothing but tests sets `HEADRACE_TEST_STEPS`; without it `reached` is one comparison. The variable reads
`ACTION:PROTOCOL:STEP:COUNT`, several separated by commas: `kill:log:5:2` kills this process when it reaches step 5 of
the log's protocol for the second time. `COUNT` may be `N@FILE`: then processes count together, in FILE, and only the
one that reaches the step for the N-th time of all acts."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass

_counting = threading.Lock()  # tasks of a container may be in several threads
_ACTIONS = ("kill", "stop", "hold", "exit", "raise")


class StepReached(Exception):
    """What the action `raise` raises."""


@dataclass(slots=True)
class _Trap:
    action: str
    protocol: str
    step: int
    count: int
    shared_file: str | None  # where processes count together
    seen: int = 0

    def springs(self) -> bool:
        """Count this visit; whether it is the one that acts."""
        if self.shared_file is None:
            with _counting:
                self.seen += 1
                return self.seen == self.count
        with open(self.shared_file, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(b".")
            file.flush()
            return os.fstat(file.fileno()).st_size == self.count


def _traps_of(environ: Mapping[str, str]) -> list[_Trap] | None:
    text = environ.get("HEADRACE_TEST_STEPS")
    if not text:
        return None
    traps = []
    for part in text.split(","):
        action, protocol, step, count = part.split(":", 3)
        if action not in _ACTIONS:
            raise ValueError(f"HEADRACE_TEST_STEPS: action {action!r}, expected one of {', '.join(_ACTIONS)}")
        number, _, shared_file = count.partition("@")
        traps.append(_Trap(action, protocol, int(step), int(number), shared_file or None))
    return traps


_traps = _traps_of(os.environ)


def reached(protocol: str, step: int) -> None:
    """Say that this process is about to do `step` of `protocol` (`log`, `kafka`, `start`, `scale` or `group`)."""
    if _traps is None:
        return
    for trap in _traps:
        if trap.protocol == protocol and trap.step == step and trap.springs():
            _act(trap)


def _act(trap: _Trap) -> None:
    log = os.environ.get("HEADRACE_TEST_STEPS_LOG")
    if log:
        with open(log, "ab") as file:
            file.write(f"{trap.action} {trap.protocol} {trap.step} {os.getpid()}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    match trap.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            # To this thread, or it would run on until the one that gets the signal has stopped them all.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        case "hold":
            threading.Event().wait()  # this thread alone, until the process ends
        case "exit":
            os._exit(3)
        case _:
            raise StepReached(f"step {trap.step} of {trap.protocol}")
