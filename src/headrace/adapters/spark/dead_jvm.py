"""Spark's JVM that has ended unasked, or hangs: knowing it, saying it in a line, and letting another be started after it. The
kernel ends a JVM for lack of memory, people by mistake. What is left of PySpark then says "connection refused" to every call,
with stacks of Python and py4j, and would be given to the next who asks this process for Spark. To one that hangs every call is
for ever."""

from __future__ import annotations

import logging
import math
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from headrace.exchange.engine import ENGINE_LOST, EngineFailure

LOG = logging.getLogger("headrace.job")
ANSWER_S_MAX = 60.0  # for what it does at once; its longest collection of garbage is shorter
_LOOK_S = 0.5
_END_S = 2.0  # its connections end a moment before the process does
_hung: set[int] = set()  # JVMs that were killed because they did not answer


def lost_engine(error: BaseException, process: Any) -> EngineFailure | None:
    """That Spark's JVM has ended, where that is why a call of it raised `error`; else None. `process`: the JVM as it was
    started, None where spark-submit has started us."""
    if isinstance(error, Py4JJavaError) or not isinstance(error, Py4JError | OSError):
        return None  # what Java raises, a JVM raises that is alive
    if process is None:
        return EngineFailure(f"Spark's JVM does not answer: {error}", error_class=ENGINE_LOST)
    try:
        code = process.wait(_END_S)
    except subprocess.TimeoutExpired:
        return None
    how = f"{_silent()} and was killed" if process.pid in _hung else end_of(code)
    return EngineFailure(f"Spark's JVM, process {process.pid}, {how}", error_class=ENGINE_LOST)


def call_or_kill(call: Callable[[], object], process: Any) -> None:
    """Call the JVM for what it does at once, and raise what that raises. One that does not answer is killed: who waits for it
    waits for good. `process`: as in `lost_engine`; without it the call is left alone."""
    raised: list[BaseException] = []

    def work() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, name="headrace-jvm-call", daemon=True)
    thread.start()
    if not _has_ended(thread) and process is None:
        LOG.warning("Spark's JVM %s", _silent())
    elif thread.is_alive():
        LOG.error("Spark's JVM, process %d, %s: it is killed", process.pid, _silent())
        _hung.add(process.pid)
        process.kill()
        thread.join(_END_S)
    for error in raised:
        raise error


def _silent() -> str:
    return f"has not answered for {ANSWER_S_MAX:g} s"


def _has_ended(thread: threading.Thread) -> bool:
    """Whether it does in time: counted, and not by the clock, which runs on while this process is stopped with the JVM."""
    for _ in range(math.ceil(ANSWER_S_MAX / _LOOK_S)):
        thread.join(_LOOK_S)
        if not thread.is_alive():
            return True
    return False


def end_of(code: int) -> str:
    """How a process ended, by its exit code as Python gives it.

    >>> end_of(-9), end_of(3)
    ('was killed by SIGKILL', 'ended with exit code 3')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def forget(session: Any) -> None:
    for _ in range(2):  # the first call ends at the JVM that is not there, the next continues behind that
        with suppress(Exception):
            session.sparkContext.stop()
    with suppress(Exception):
        session.sparkContext._gateway.shutdown()
    forget_gateway()


def forget_gateway() -> None:
    """Let the next start have a JVM of its own."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def hide_what_is_raised() -> None:
    """Let py4j log no error that it raises besides."""
    root = logging.getLogger()
    if not any(isinstance(one, _RaisedToo) for one in root.filters):
        root.addFilter(_RaisedToo())


def keep_quiet(context: Any) -> None:
    """Of a JVM that has ended nothing is printed but what `lost_engine` says."""
    hide_what_is_raised()
    server = getattr(context, "_accumulatorServer", None)
    if server is None or "handle_error" in vars(server):  # it was seen to before
        return
    print_error = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | OSError):
            print_error(request, address)

    server.handle_error = handle_error


class _RaisedToo(logging.Filter):
    """Drops what py4j logs, to the root logger and with a stack, of an error that it raises besides."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and record.pathname.endswith("java_gateway.py"))
