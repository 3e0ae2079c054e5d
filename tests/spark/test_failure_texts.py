"""What Spark says when something fails, and what is made of it: whose fault it is, and one line without Java's stack."""

from __future__ import annotations

import pytest

from headrace.adapters.spark.failures import failure_of, last_line_of
from headrace.exchange.engine import EXECUTOR_LOST, WORKER_DIED, WORKER_START

# As PySpark 4.2 writes them.
JOB = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed, most recent failure: "
LOST = (
    "Lost task 0.3 in stage 3.0 (TID 12) (10.0.0.7 executor 3): ExecutorLostFailure (executor 3 exited caused by one of the "
    "running tasks) Reason: Command exited with code 137\nDriver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler"
)
NO_PROGRAM = (
    'java.io.IOException: Cannot run program "/opt/python3.12": error=2, No such file or directory\n'
    "\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)\n\tat org.apache.spark.api.python.Factory"
)
NO_PYSPARK = (
    "org.apache.spark.SparkException: \nError from python worker:\n  /usr/bin/python3: Error while finding module "
    "specification for 'pyspark.daemon' (ModuleNotFoundError: No module named 'pyspark')\nPYTHONPATH was:\n  /opt/spark\n"
    "org.apache.spark.SparkException: EOFException occurred while reading the port number\n\tat org.apache.spark.api.python"
)
NO_HEADRACE = (
    "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
    "Traceback (most recent call last):\n  File \"worker.py\", line 1, in main\n    x = y\n"
    "ModuleNotFoundError: No module named 'headrace'\n\n\tat org.apache.spark.api.python.BasePythonRunner"
)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (JOB + LOST, EXECUTOR_LOST, "executor 3 on host 10.0.0.7 was lost: Command exited with code 137"),
        (
            JOB + "Lost task 0.3 in stage 3.0 (TID 12) (10.0.0.7 executor 3): " + NO_PROGRAM,
            WORKER_START,
            'a Python worker could not be started: Cannot run program "/opt/python3.12": error=2, No such file or directory',
        ),
        (
            JOB + "Python worker exited unexpectedly (crashed)",
            WORKER_DIED,
            "a Python worker died: Python worker exited unexpectedly",
        ),
    ],
)
def test_whose_fault_it_is(text: str, kind: str, message: str) -> None:
    found = failure_of(RuntimeError(text))
    assert (found.error_class, found.message, found.in_expression) == (kind, message, False)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (NO_PROGRAM, 'Cannot run program "/opt/python3.12": error=2, No such file or directory'),
        (NO_HEADRACE, "ModuleNotFoundError: No module named 'headrace'"),
        ("org.apache.spark.SparkException: something else\n\tat java", "something else"),
        ("", "it said nothing"),
    ],
)
def test_an_error_is_one_line(text: str, line: str) -> None:
    assert last_line_of(text) == line


def test_a_python_without_pyspark_says_what_it_lacks() -> None:
    assert "No module named 'pyspark'" in last_line_of(NO_PYSPARK)
    assert failure_of(RuntimeError(NO_PYSPARK)).error_class == WORKER_START
