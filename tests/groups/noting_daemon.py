"""Spark's daemon of Python workers as Headrace has it; the workers note what they do."""

import os

from groups.attempts import VARIABLE, note_attempts
from headrace.adapters.spark.in_worker import fork_workers
from headrace.wiring.worker import engine_rows  # noqa: F401 - loaded for the workers

if __name__ == "__main__":
    who, _, file = os.environ[VARIABLE].partition(" ")
    note_attempts(who, file)
    fork_workers()
