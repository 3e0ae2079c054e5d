"""A job whose JVM ends: it says so in a line and a hint, at once, and the same process can run the job again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.adapters.spark import dead_jvm
from headrace.adapters.spark.executors import Executors
from headrace.exchange.engine import ENGINE_LOST, EngineFailure

SCRIPT = Path(__file__).with_name("dying_jvm.py")
KILLED_AT_ITS_START = """
import os, signal, sys
import headrace as hr
from headrace.adapters.spark import gateway

started, connected, when = gateway._has_started, gateway._connected, sys.argv[1]

def killed_at_once(process, file):
    if when == "before it says where it is":
        process.kill()
        process.wait()
        return False
    return started(process, file)

def killed(address):
    if when == "before it is connected":
        os.kill(gateway._jvms[-1].pid, signal.SIGKILL)
        gateway._jvms[-1].wait()
    found = connected(address)
    if when == "behind that":
        os.kill(gateway._jvms[-1].pid, signal.SIGKILL)
    return found

gateway._has_started, gateway._connected = killed_at_once, killed
app = hr.App("job", "log:./data")
app.stream("in", key=hr.String(), value=hr.String()).to("out")
with hr.open_system("log:./data") as system:
    system.create_stream("in", 1)
    system.produce("in", [("a", "b")], key=hr.String(), value=hr.String())
try:
    app.run(until="caught-up", progress=False)
except hr.SetupError as error:
    print(error.message)
gateway._has_started, gateway._connected = started, connected
app.run(until="caught-up", progress=False)
print("caught up")
"""


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_job_whose_jvm_was_killed_says_so_and_the_next_one_in_this_process_goes_on(tmp_path: Path) -> None:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    first, second = told["ends"]
    line, hint = first.splitlines()
    assert re.fullmatch(
        r"RoundFailedError: round 1:source:1 cannot end: Spark's JVM, process \d+, was killed by SIGKILL", line
    ), first
    assert hint.startswith("  hint: earlier commits are unaffected: restart the job")
    assert second == "caught up"
    assert told["values"] == list(range(20))
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 3, done.stderr


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "when",
    [
        "before it says where it is",
        *(pytest.param(one, marks=pytest.mark.soak) for one in ("before it is connected", "behind that")),
    ],
)
def test_a_jvm_that_is_killed_while_spark_starts_is_named_and_the_next_start_has_another(tmp_path: Path, when: str) -> None:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", KILLED_AT_ITS_START, when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environ, cwd=tmp_path)
    first, second = done.stdout.splitlines()
    assert re.fullmatch(r"Spark's JVM, process \d+, was killed by SIGKILL while it started", first), done.stderr
    assert second == "caught up"
    assert "Traceback" not in done.stderr, done.stderr


def test_a_jvm_that_does_not_answer_is_killed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_jvm, "ANSWER_S_MAX", 1.0)
    process = subprocess.Popen(["sleep", "60"])

    def call() -> None:
        process.wait()
        raise ConnectionRefusedError("connection refused")  # as py4j does then

    with pytest.raises(ConnectionRefusedError) as caught:
        dead_jvm.JvmCalls(process).ask(call)
    lost = dead_jvm.lost_engine(caught.value, process)
    assert lost is not None and lost.error_class == ENGINE_LOST
    assert lost.message == f"Spark's JVM, process {process.pid}, has not answered for 1 s and was killed"


def test_a_jvm_that_answers_is_left_alone() -> None:
    def refuse() -> None:
        raise ValueError("no such job")

    process = subprocess.Popen(["sleep", "60"])
    calls = dead_jvm.JvmCalls(process)
    try:
        assert calls.ask(lambda: "1,2") == "1,2"
        with pytest.raises(ValueError, match="no such job"):
            calls.ask(refuse)
        calls.close()
        assert calls.ask(lambda: "3") == "3", "who still asks when all is closed has an answer"
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_jvm_that_others_have_started_is_not_killed_and_not_asked_again_before_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_jvm, "ANSWER_S_MAX", 0.5)
    calls, answers, made = dead_jvm.JvmCalls(None), threading.Event(), list[str]()
    with pytest.raises(EngineFailure, match="has not answered for"):
        calls.ask(lambda: answers.wait(60))
    with pytest.raises(EngineFailure, match="has not answered for"):
        calls.ask(lambda: made.append("while it hangs"))
    answers.set()
    until_s = time.monotonic() + 20
    while not made and time.monotonic() < until_s:
        with suppress(EngineFailure):
            calls.ask(lambda: made.append("behind that"))
    assert made == ["behind that"]
    calls.close()


def test_a_look_for_executors_does_not_wait_for_a_jvm_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_jvm, "ANSWER_S_MAX", 0.5)
    process = subprocess.Popen(["sleep", "60"])

    def ids() -> None:
        process.wait()
        raise ConnectionRefusedError("connection refused")

    java = SimpleNamespace(sc=lambda: SimpleNamespace(getExecutorIds=ids))
    executors = Executors(SimpleNamespace(sparkContext=SimpleNamespace(_jsc=java)), dead_jvm.JvmCalls(process))
    with pytest.raises(ConnectionRefusedError):
        executors.look()
    assert process.poll() is not None
