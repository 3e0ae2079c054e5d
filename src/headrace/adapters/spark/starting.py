"""That a signal which comes while Spark starts ends the program in order: no JVM is left behind, and no stack trace.

Interrupted halfway, PySpark leaves a JVM that waits for ever for a program that has ended. So an interrupt ends the
JVM, in which nothing has happened yet. And Spark is started in a thread of its own: in the main one PySpark would put in a
handler for Ctrl-C that calls the JVM from within another call to it.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

Started = TypeVar("Started")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def interruptible(start: Callable[[], Started]) -> Started:
    """What `start` gives. A signal that comes meanwhile ends the JVM that is being started, and is raised then."""
    if threading.current_thread() is not threading.main_thread():
        return start()
    made: list[Started] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            made.append(start())
        except BaseException as error:
            raised.append(error)

    came: list[int] = []

    def note(number: int, frame: Any) -> None:
        logging.disable(logging.CRITICAL)  # py4j logs each call that a JVM which is ended does not answer
        came.append(number)

    thread = threading.Thread(target=work, name="headrace-spark-start", daemon=True)
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, note)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
            if came:
                _end_jvms()
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
    if came:
        _end_jvms()
        _forget()
        logging.disable(logging.NOTSET)
        signal.raise_signal(came[0])
    if raised:
        raise raised[0]
    return made[0]


def _forget() -> None:
    """Let the next start have a JVM of its own."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _end_jvms() -> None:
    """End the JVMs that this process has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"org.apache.spark" in (folder / "cmdline").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)
