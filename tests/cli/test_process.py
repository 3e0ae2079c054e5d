"""The command as a process of its own: exit codes, pipes, signals, and what it imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
COMMAND = [sys.executable, "-c", "from headrace.cli import main; main()"]
HEAVY = ("pyspark", "pyarrow", "numpy", "pandas", "lmdb")
WAIT_S = 60


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(SOURCE)}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=WAIT_S,
        check=False,
    )


def loaded(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process that says at its end which of the heavy packages were loaded, and the exit code."""
    program = (
        "import sys\nfrom headrace.cli import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n"
        f"    print('LOADED', [name for name in {HEAVY!r} if name in sys.modules], end.code, file=sys.stderr)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def test_exit_codes(place: Path, tmp_path: Path) -> None:
    assert run(place, "status").returncode == 0
    assert run(place, "--bogus").returncode == 2
    failed = run(tmp_path, "status", "--application", "shop")
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: there is no log in")
    assert "Traceback" not in failed.stderr


def test_a_pipe_that_is_closed_is_no_error_and_says_nothing(tmp_path: Path) -> None:
    import headrace as hr

    with hr.open_system(f"log:{tmp_path}/data") as system:
        system.create_stream("large", 1)
        system.produce("large", [(b"k", b"x" * 1000)] * 1000)  # more than any pipe holds
    process = subprocess.Popen(
        [*COMMAND, "stream", "consume", "large"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith(b'{"key":"k"')
    process.stdout.close()
    assert process.wait(WAIT_S) == 141
    assert process.stderr.read() == b""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_command_with_a_line(place: Path, number: signal.Signals, code: int) -> None:
    # A suite that runs in the background ignores SIGINT, and so would what it starts.
    as_in_a_terminal = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    process = subprocess.Popen(
        [*COMMAND[:-1], as_in_a_terminal + COMMAND[-1], "stream", "consume", "sales", "--follow"],
        cwd=place,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.send_signal(number)
    assert process.wait(WAIT_S) == code
    assert process.stderr.read() == {130: b"interrupted\n", 143: b"terminated\n"}[code]


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "shop.py"),
        ("tasks",),
        ("checkpoint", "list"),
        ("checkpoint", "export"),
        ("startpoint", "list", "--json"),
        ("describe", "shop.py"),
        ("stream", "list"),
        ("stream", "describe", "sales"),
        ("--version",),
        ("--help",),
    ],
)
def test_quick_commands_load_nothing_heavy(place: Path, arguments: tuple[str, ...]) -> None:
    assert loaded(place, *arguments).stderr == "LOADED [] 0\n"


def test_reading_state_starts_no_spark(place: Path) -> None:
    done = loaded(place, "state", "get", "per-shop", "shop-1")
    assert (done.stdout, "pyspark" in done.stderr) == ("20\n", False), done.stderr
