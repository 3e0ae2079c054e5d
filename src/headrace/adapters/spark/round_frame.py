"""The DataFrame that `for_each_round` hands to a user's function, and what is said where Spark fails in there."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from headrace.adapters.spark.refusals import VISIBLE, first_line
from headrace.core.rounds.watermarks import TIME_MAX_US, TIME_MIN_US
from headrace.ports import EngineFailure

_TRACEBACK = "Traceback (most recent call last)"


def handed_rows(rows: Any) -> Any:
    """The rows of a prefix as the function is given them, without those that the container rejects for their time."""
    return rows.where(F.unix_micros("timestamp").between(TIME_MIN_US, TIME_MAX_US)).select(*VISIBLE)


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
