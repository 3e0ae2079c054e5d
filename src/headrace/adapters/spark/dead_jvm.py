"""Spark's JVM that has ended by itself: knowing it, saying it in a line, and letting another be started after it. The kernel
ends a JVM for lack of memory, people by mistake. What is left of PySpark then says "connection refused" to every call, with
stacks of Python and py4j, and would be given to the next who asks this process for Spark."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from headrace.exchange.engine import ENGINE_LOST, EngineFailure

_END_S = 2.0  # its connections end a moment before the process does


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
    return EngineFailure(f"Spark's JVM, process {process.pid}, {end_of(code)}", error_class=ENGINE_LOST)


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
