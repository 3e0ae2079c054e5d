"""The command as a process of its own: exit codes, pipes, signals, and what it imports."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
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
        ("history",),
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


# A module that sends this process a signal when a function is called for the first time, or the body of a module is run.
SIGNALLING = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)
module, _, function = os.environ["PLACE"].partition(":")

def watched(frame, event, _):
    if event == "call" and frame.f_globals.get("__name__") == module and frame.f_code.co_qualname == (function or "<module>"):
        sys.setprofile(None)
        signal.raise_signal(int(os.environ["NUMBER"]))

sys.setprofile(watched)
"""


@pytest.mark.parametrize(("number", "code", "line"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")])
@pytest.mark.parametrize(
    "place",
    [
        "headrace.core.job_plan.groupers",  # the first import of all
        "headrace.dsl.app_declaration",
        "headrace.cli.commands",
        "typer",
        "typer.core:TyperGroup.parse_args",  # Typer would make an exit code of its own of it, without a line
        "headrace.cli.streams:list_streams",
        "headrace.cli.output:ReportingGroup.invoke",
        "headrace.config.loading:load_config",
        "headrace.wiring",
        "headrace.adapters.log.system",
    ],
)
def test_a_signal_while_a_command_starts_ends_it_with_a_line(
    place: str, tmp_path: Path, number: signal.Signals, code: int, line: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SIGNALLING)
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "stream", "list", "--system", f"log:{tmp_path}/data"],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{SOURCE}", "NUMBER": str(int(number)), "PLACE": place},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"{line}\n")


def test_a_signal_at_any_moment_has_its_line_or_comes_before_any_code_of_ours(place: Path) -> None:
    for delay_ms in range(0, 400, 20):
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "stream", "consume", "sales", "--follow"],
            cwd=place,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(delay_ms / 1000)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=WAIT_S)
        assert (process.returncode, said) in [(143, "terminated\n"), (-signal.SIGTERM, "")], delay_ms


def test_a_signal_that_python_would_drop_ends_the_command(place: Path) -> None:
    code = """
import signal, sys
from headrace.cli import main
from headrace.cli import streams

class Finalised:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

def listed():
    Finalised()
    print("still running")

import headrace.cli.commands as commands
commands.application.command("drop")(listed)
main(["drop"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place, env=environment(), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "terminated\n")


def test_a_signal_at_a_question_is_no_answer(tmp_path: Path) -> None:
    import headrace as hr

    with hr.open_system(f"log:{tmp_path}/data") as system:
        system.create_stream("s", 1)
        system.produce("s", [(b"k", b"v")])
    mine, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "stream", "delete", "s", "--system", f"log:{tmp_path}/data"],
        env=environment(),
        stdin=terminal,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    asked = b""
    while not asked.endswith(b"[y/N]:") and (one := process.stderr.read(1)):
        asked += one
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 143
    assert process.stderr.read().endswith(b"terminated\n")
    os.close(mine)
    os.close(terminal)


def test_a_program_that_imports_headrace_keeps_its_own_handlers() -> None:
    code = "import signal, headrace; print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert done.stdout == "True\n"
