"""`headrace kafka start`, as a user runs it: in a terminal of its own, until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.adapters.common.server_process import free_ports
from kafka.clients import make_topic, read, write

pytestmark = pytest.mark.kafka
SOURCE = Path(__file__).parents[2] / "src"
AS_IN_A_TERMINAL = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
COMMAND = [sys.executable, "-c", AS_IN_A_TERMINAL + "from headrace.cli import main; main()", "kafka", "start"]


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
    return json.loads(text)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_it_is_stopped_and_its_data_stay(tmp_path: Path, number: signal.Signals) -> None:
    port = str(next(free_ports("127.0.0.1")))
    topic = ""
    for turn in range(2):
        with start("--port", port, "--dir", "kept", "--json", folder=tmp_path) as process:
            found = described(process)
            assert found["bootstrap"] == f"127.0.0.1:{port}" and found["system"] == f"kafka://127.0.0.1:{port}"
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
    with start("--port", str(next(free_ports("127.0.0.1"))), "--json", folder=tmp_path) as process:
        os.kill(int(str(described(process)["pid"])), signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the Kafka broker ended" in errors
