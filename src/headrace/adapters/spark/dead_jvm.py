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
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError

from headrace.exchange.engine import ENGINE_LOST, EngineFailure

Answer = TypeVar("Answer")
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


class JvmCalls:
    """Calls of Spark's JVM for what it does at once, made by a thread of their own: who calls a JVM that hangs waits for good.
    One that does not answer is killed. `process`: as in `lost_engine`; without it the JVM is left alone, and is not called
    again before it has answered. Thread-safe."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self._asked: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._unanswered: Future[Any] | None = None

    def ask(self, call: Callable[[], Answer]) -> Answer:
        """What `call` gives; raises what it raises, and `EngineFailure` where it does not end."""
        answer: Future[Answer] = Future()
        with self._lock:
            if self._unanswered is not None and not self._unanswered.done():
                raise self._no_answer()
            is_closed = self._is_closed
            if not is_closed:
                self._asked.put((call, answer))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="headrace-jvm-calls", daemon=True)
                    self._thread.start()
        if is_closed:
            return call()
        if not _has_ended(answer):
            self._give_up(answer)
        if not answer.done():
            raise self._no_answer()
        return answer.result()

    def close(self) -> None:
        """End the thread; calls from now on are made by those who ask."""
        with self._lock:
            self._is_closed = True
            self._asked.put(None)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            call, answer = asked
            try:
                answer.set_result(call())
            except BaseException as error:
                answer.set_exception(error)

    def _give_up(self, answer: Future[Any]) -> None:
        with self._lock:
            self._unanswered = answer
        if self._process is None:
            LOG.warning("Spark's JVM %s", _silent())
            return
        LOG.error("Spark's JVM, process %d, %s: it is killed", self._process.pid, _silent())
        _hung.add(self._process.pid)
        self._process.kill()
        wait([answer], _END_S)

    def _no_answer(self) -> EngineFailure:
        killed = "" if self._process is None else f", process {self._process.pid},"
        return EngineFailure(f"Spark's JVM{killed} {_silent()}", error_class=ENGINE_LOST)


def _silent() -> str:
    return f"has not answered for {ANSWER_S_MAX:g} s"


def _has_ended(answer: Future[Any]) -> bool:
    """Whether it is there in time: counted, and not by the clock, which runs on while this process is stopped with the JVM."""
    return any(wait([answer], _LOOK_S).done for _ in range(math.ceil(ANSWER_S_MAX / _LOOK_S)))


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
