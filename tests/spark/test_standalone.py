"""The processes of a standalone cluster of this machine: how they end."""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.adapters.spark.standalone import GUARD_S_MAX, StandaloneCluster

pytestmark = pytest.mark.spark


def test_a_process_that_holds_the_guards_pipe_holds_up_no_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As one that was forked from this process, and has all that this one had open."""
    with StandaloneCluster(tmp_path) as cluster, caplog.at_level(logging.WARNING):
        forked = os.fork()
        if not forked:
            time.sleep(60)
            os._exit(0)
        try:
            master = cluster.worker("master").pid
            began_s = time.monotonic()
            cluster.close()
            took_s = time.monotonic() - began_s
        finally:
            os.kill(forked, signal.SIGKILL)
            os.waitpid(forked, 0)
    assert GUARD_S_MAX <= took_s < GUARD_S_MAX + 10
    assert "the guard of the Spark master has waited 5 s for the end of its pipe" in caplog.text
    assert not is_there(master), "what the guard would have ended"


def test_an_end_waits_for_no_guard_that_is_free(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with StandaloneCluster(tmp_path) as cluster, caplog.at_level(logging.WARNING):
        master = cluster.worker("master").pid
    assert caplog.text == "" and not is_there(master)


def is_there(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
