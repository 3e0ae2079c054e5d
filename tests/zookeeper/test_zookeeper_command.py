"""`headrace zookeeper start`, as a user runs it: in a terminal of its own, until Ctrl-C."""

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
from kazoo.client import KazooClient

from headrace.adapters.common.server_process import free_ports

pytestmark = pytest.mark.chaos
SOURCE = Path(__file__).parents[2] / "src"
AS_IN_A_TERMINAL = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
COMMAND = [sys.executable, "-c", AS_IN_A_TERMINAL + "from headrace.cli import main; main()", "zookeeper", "start"]


@contextmanager
def start(*arguments: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """The command, which does not outlive a test that fails, and the JSON that it prints when it is up."""
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(
        [*COMMAND, *arguments, "--json"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    ) as process:
        try:
            assert process.stdout is not None
            text = ""
            for line in process.stdout:
                text += line
                if line.rstrip() == "}":
                    break
            yield process, json.loads(text)
        finally:
            process.kill()


def test_it_runs_until_it_is_stopped_and_its_data_stay(tmp_path: Path) -> None:
    port = str(next(free_ports("127.0.0.1")))
    for number in (signal.SIGINT, signal.SIGTERM):
        with start("--port", port, "--dir", "kept", folder=tmp_path) as (process, found):
            assert found["coordinator"] == f"zookeeper://127.0.0.1:{port}/headrace"
            client = KazooClient(found["address"], timeout=10.0)
            client.start()
            assert (client.exists("/kept") is None) is (number == signal.SIGINT)
            client.ensure_path("/kept")
            client.stop()
            client.close()
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert "stopped; its data stay in kept" in errors
        assert not Path(f"/proc/{found['pid']}").exists()


def test_a_server_that_dies_ends_the_command_with_an_error_and_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    port = str(next(free_ports("127.0.0.1")))
    with start("--port", port, folder=tmp_path) as (process, found):
        environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
        other = subprocess.run(
            [*COMMAND, "--port", port], check=False, cwd=tmp_path, capture_output=True, text=True, env=environ
        )
        assert other.returncode == 1 and f"port {port} of 127.0.0.1 is taken" in other.stderr, other.stderr
        os.kill(int(found["pid"]), signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and "the ZooKeeper server ended" in errors, errors
