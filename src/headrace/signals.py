"""How the command `headrace` ends on SIGINT and SIGTERM, from the first import of `headrace` to its last line: one line on
standard error, and exit code 130 or 143.

While it starts, and while Python ends, there is nothing to undo: the process ends at once. While a command runs, the signal is
an exception, `KeyboardInterrupt` or `Terminated`. A second signal ends the process at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143
_ENDS = {signal.SIGINT: (EXIT_INTERRUPTED, "interrupted"), signal.SIGTERM: (EXIT_TERMINATED, "terminated")}


class Terminated(KeyboardInterrupt):
    """SIGTERM came. Handled as Ctrl-C is, but for the exit code."""


def is_command() -> bool:
    """Whether this process is the command: `headrace ...` or `python -m headrace ...`, not a program that imports it."""
    if not sys.argv:  # an interpreter that is embedded
        return False
    if sys.argv[0] == "-m":  # what Python puts there while it looks for the module
        return any(pair == ("-m", "headrace") for pair in zip(sys.orig_argv, sys.orig_argv[1:], strict=False))
    return os.path.basename(sys.argv[0]) in ("headrace", "headrace.exe")


def end_at_once() -> None:
    """From now on a signal ends the process with its line and its exit code. A signal that is ignored stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        return
    if not any(signal.getsignal(number) is _end for number in _ENDS):
        atexit.register(_ignore)  # the first that is registered is the last that is called
    for number in _ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


@contextmanager
def raised() -> Iterator[None]:
    """Within the block the first signal is an exception. Changes nothing where `end_at_once` has not been called."""
    mine = [number for number in _ENDS if signal.getsignal(number) is _end]
    hook = sys.unraisablehook
    if mine:
        sys.unraisablehook = _end_if_swallowed
    for number in mine:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, _end)
        if mine:
            sys.unraisablehook = hook


def end_of(error: BaseException) -> tuple[int, str]:
    """The exit code and the line for a signal that was raised."""
    return _ENDS[signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT]


def _end(number: int, frame: object) -> None:
    code, line = _ENDS[signal.Signals(number)]
    os.write(2, f"{line}\n".encode())  # no print: it may be what was interrupted
    os._exit(code)


def _ignore() -> None:
    """Python's very end would take the handlers away: all is done by then, and the exit code is that of what was done."""
    for number in _ENDS:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_IGN)


def _raise(number: int, frame: object) -> None:
    for each in _ENDS:
        if signal.getsignal(each) is _raise:
            signal.signal(each, _end)
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _end_if_swallowed(event: Any) -> None:
    """Python drops what is raised in a finaliser or a weak reference's callback, wherever a signal happens to come."""
    if isinstance(event.exc_value, KeyboardInterrupt):
        _end(signal.SIGTERM if isinstance(event.exc_value, Terminated) else signal.SIGINT, None)
    sys.__unraisablehook__(event)
