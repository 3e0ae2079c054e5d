"""What reaches the user of the JVM's standard error: all but known noise."""

from __future__ import annotations

from headrace.adapters.spark.gateway import filtered

DAEMON = [
    "Traceback (most recent call last):\n",
    '  File "x/pyspark/daemon.py", line 262, in manager\n',
    "    worker(sock)\n",
    '  File "x/pyspark/daemon.py", line 95, in worker\n',
    "    outfile.flush()\n",
    "BrokenPipeError: [Errno 32] Broken pipe\n",
]
USERS = [
    "Traceback (most recent call last):\n",
    '  File "job.py", line 3, in peek\n',
    "BrokenPipeError: [Errno 32] Broken pipe\n",
]


def test_noise_goes_and_everything_else_stays_in_order() -> None:
    lines = ["hello\n", *DAEMON, "WARNING: Using incubator modules: x\n", *USERS, "a print\n"]
    assert list(filtered(lines)) == ["hello\n", *USERS, "a print\n"]


def test_a_traceback_that_is_cut_off_is_shown() -> None:
    assert list(filtered(DAEMON[:3])) == DAEMON[:3]
