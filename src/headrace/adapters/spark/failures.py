"""Reading what Spark says when a job fails: was it us, a Python worker that died, or an expression that raised."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.adapters.spark.refusals import first_line
from headrace.exchange.engine import WORKER_DIED, EngineFailure

_TRACEBACK = "Traceback (most recent call last)"
_WORKER_DIED = ("Python worker exited unexpectedly", "EOFException", "Connection reset", "Broken pipe", "ExecutorLost")
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
    text = _text(error)
    if _CANCELLED.search(text):
        return EngineFailure("the Spark job was cancelled", cancelled=True)
    condition = _CONDITION.search(text)
    reading = _READING.search(text)
    if condition is not None and condition[1] == "SPARK_JOB_CANCELLED":  # in Spark's UI, or by the session's owner
        return EngineFailure(f"another user or program cancelled the Spark job: {condition[2]}", error_class=condition[1])
    if reading is not None:
        return EngineFailure(f"Kafka could not be read: {reading[0]}", error_class="KafkaReading")
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
    return EngineFailure(text.strip().splitlines()[0][:500] if text.strip() else type(error).__name__)


def _text(error: BaseException) -> str:
    """What it says, and what those exceptions of Java say that caused it."""
    found, java = [str(error)], getattr(error, "java_exception", None)
    while java is not None:
        found.append(str(java.toString()))
        java = java.getCause()
    return "\n".join(found)


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
