"""`headrace kafka start`, as a user runs it: in a terminal of its own, until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from headrace.adapters.common.server_process import free_ports
from kafka.clients import make_topic, read, write

pytestmark = pytest.mark.kafka
SOURCE = Path(__file__).parents[2] / "src"
AS_IN_A_TERMINAL = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
COMMAND = [sys.executable, "-c", AS_IN_A_TERMINAL + "from headrace.cli import main; main()", "kafka", "start"]


class NotStartedError(Exception):
    """With what the command said."""


@contextmanager
def start(*arguments: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, which does not outlive a test that fails."""
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def described(process: subprocess.Popen[str]) -> dict[str, object]:
    """The JSON that it prints when it is up."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line.rstrip() == "}":
            break
    if not text:
        raise NotStartedError(process.communicate(timeout=60)[1])
    return json.loads(text)


Up = tuple["subprocess.Popen[str]", dict[str, object]]


@contextmanager
def started(port: str | Iterator[int], *arguments: str, folder: Path) -> Iterator[Up]:
    """The command once it is up, on this port; or on one of these: another process may take one that was just free."""
    for one in [port] if isinstance(port, str) else islice(port, 3):
        with start("--port", str(one), "--json", *arguments, folder=folder) as process:
            try:
                found = described(process)
            except NotStartedError as error:
                if isinstance(port, str) or "is taken" not in str(error):
                    raise
                continue
            assert found["bootstrap"] == f"127.0.0.1:{one}"
            yield process, found
            return
    raise AssertionError("three ports were taken, one after the other")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_it_is_stopped_and_its_data_stay(tmp_path: Path, number: signal.Signals) -> None:
    ports, port, topic = free_ports("127.0.0.1"), "", ""
    for turn in range(2):
        with started(port or ports, "--dir", "kept", folder=tmp_path) as (process, found):
            port = str(found["bootstrap"]).partition(":")[2]
            assert found["system"] == f"kafka://127.0.0.1:{port}"
            settings = {"bootstrap.servers": str(found["bootstrap"])}
            if turn == 0:
                topic = make_topic(settings)
                write(settings, topic, b"kept")
            assert read(settings, topic, 1) == [b"kept"]
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert "stopped; its data stay in kept" in errors
        assert not Path(f"/proc/{found['pid']}").exists()


def test_a_broker_that_dies_ends_the_command_with_an_error(tmp_path: Path) -> None:
    with started(free_ports("127.0.0.1"), folder=tmp_path) as (process, found):
        os.kill(int(str(found["pid"])), signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the Kafka broker ended" in errors
