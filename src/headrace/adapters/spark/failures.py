"""Reading what Spark says when a job fails: was it us, a Python worker that died, or an expression that raised."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.adapters.spark.refusals import first_line
from headrace.exchange.engine import EXECUTOR_LOST, WORKER_DIED, WORKER_START, EngineFailure

_TRACEBACK = "Traceback (most recent call last)"
_WORKER_DIED = ("Python worker exited unexpectedly", "EOFException", "Connection reset", "Broken pipe")
# The host is before it, in "Lost task 0.3 in stage 3.0 (TID 12) (host-1 executor 3): ...", or not at all.
_EXECUTOR_LOST = re.compile(r"(?:\((\S+) executor \S+\): )?ExecutorLostFailure \(executor (\S+)[^)]*\)(?: Reason: ([^\n]*))?")
_NO_PROGRAM = re.compile(r'Cannot run program "[^"]*"[^\n]*')
_START_ERRORS = re.compile(r"Error from python worker:\n(.*?)(?:\nPYTHONPATH was:|\Z)", re.DOTALL)
_CANCELLED = re.compile(r"cancelled.*job group headrace-|SparkContext (was|has been) shut ?down")
# Of Spark's reader: the records were deleted, or the broker does not answer. No expression is at fault.
_READING = re.compile(
    r"\[(KAFKA_DATA_LOSS[^\]]*)\][^\n]*|Cannot fetch (?:record for )?offset[^\n]*"
    r"|org\.apache\.kafka\.(?:common|clients)\.[\w.]*(?:Exception|Error)\b[^\n]*"
)
# What Java raises on a number or a time that is out of range, where Spark has no condition of its own for it.
_NUMBER = re.compile(r"java\.(?:lang|time)\.(ArithmeticException|DateTimeException): ([^\n]*)")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]\s*([^\n]*)")


def failure_of(error: BaseException) -> EngineFailure:
    """What happened, from an exception of pyspark or py4j; Java's stack stays in Spark's log."""
    return failure_in(_text(error), type(error).__name__)


def failure_in(text: str, nothing: str = "it said nothing") -> EngineFailure:
    """What happened, from what Spark says of it. `nothing`: what is said where that is empty."""
    if _CANCELLED.search(text):
        return EngineFailure("the Spark job was cancelled", cancelled=True)
    condition = _CONDITION.search(text)
    reading = _READING.search(text)
    if condition is not None and condition[1] == "SPARK_JOB_CANCELLED":  # in Spark's UI, or by the session's owner
        return EngineFailure(f"another user or program cancelled the Spark job: {condition[2]}", error_class=condition[1])
    if reading is not None:
        return EngineFailure(f"Kafka could not be read: {reading[0]}", error_class="KafkaReading")
    if (lost := _EXECUTOR_LOST.search(text)) is not None:
        host = f" on host {lost[1]}" if lost[1] else ""
        why = lost[3] or "Spark does not say why"
        return EngineFailure(f"executor {lost[2]}{host} was lost: {why}", error_class=EXECUTOR_LOST)
    if start := _start_error(text):
        return EngineFailure(f"a Python worker could not be started: {start}", error_class=WORKER_START)
    if found := [word for word in _WORKER_DIED if word in text]:
        return EngineFailure(f"a Python worker died: {found[0]}", error_class=WORKER_DIED)
    if condition is not None and "Traceback" not in text:
        return EngineFailure(f"{condition[2].split(' SQLSTATE')[0].strip()}", in_expression=True, error_class=condition[1])
    if _TRACEBACK in text:
        trace = text[text.index(_TRACEBACK) :]
        last = [line for line in trace.splitlines() if line and not line.startswith((" ", "\t"))]
        return EngineFailure("\n".join(trace.splitlines()[-12:]), error_class=last[-1][:80] if last else "Python")
    number = _NUMBER.search(text)
    if number is not None:
        return EngineFailure(number[2], in_expression=True, error_class=number[1])
    java = re.search(r"(\w+(?:\.\w+)*(?:Exception|Error)): ([^\n]*)", text)
    if java is not None and java[1].rsplit(".", 1)[-1] not in ("SparkException", "Py4JJavaError"):
        return EngineFailure(java[2] or java[1], in_expression=True, error_class=java[1].rsplit(".", 1)[-1])
    return EngineFailure(text.strip().splitlines()[0][:500] if text.strip() else nothing)


def _text(error: BaseException) -> str:
    """What it says, and what those exceptions of Java say that caused it."""
    found, java = [str(error)], getattr(error, "java_exception", None)
    while java is not None:
        found.append(str(java.toString()))
        java = java.getCause()
    return "\n".join(found)


def last_line_of(text: str) -> str:
    """What an error that Spark writes comes to, in a line: the exception of Python where it has one, without Java's stack.

    >>> last_line_of('java.io.IOException: Cannot run program "python3.9": error=2, No such file\\n\\tat java.base/x')
    'Cannot run program "python3.9": error=2, No such file'
    """
    if start := _start_error(text):
        return start
    lines = text[text.rindex(_TRACEBACK) :].splitlines()[1:] if _TRACEBACK in text else text.splitlines()
    said = [line.strip() for line in lines if line.strip() and not line.startswith((" ", "\t"))]
    return re.sub(r"^(?:java|org)\.[\w.$]+(?:Exception|Error): ", "", said[0]) if said else "it said nothing"


def _start_error(text: str) -> str:
    """Why Spark could not start Python, in a line; empty where that is not what has failed.

    >>> _start_error("SparkException: \\nError from python worker:\\n  x\\n  No module named pyspark\\nPYTHONPATH was:\\n  /a")
    'No module named pyspark'
    """
    if (program := _NO_PROGRAM.search(text)) is not None:
        return program[0]
    found = _START_ERRORS.search(text)
    lines = [line.strip() for line in found[1].splitlines() if line.strip()] if found is not None else []
    return lines[-1] if lines else ""


def is_of_spark(error: BaseException) -> bool:
    """Whether an exception came out of Spark, or of the way to it, and was not raised by Python code of the user's."""
    return isinstance(error, PySparkException | Py4JError)


def in_one_line(error: BaseException, failure: EngineFailure) -> str:
    """What Spark says, without its stacks; `failure` is what `failures` made of it."""
    said, text = first_line(error), str(error)
    if _TRACEBACK in text:  # a function of the user's raised in a worker process: what it raised is behind its frames
        behind = text[text.rindex(_TRACEBACK) :].splitlines()[1:]
        said = next((line for line in behind if line and not line.startswith(" ")), said)
    elif isinstance(error, Py4JError):
        said = failure.message.splitlines()[0]
    return f"{type(error).__name__}: {said}"
