"""Whatever stands on the command line: no traceback, an exit code of 1 or 2 with one error, and an end in bounded time.

Every command and every option of the tree is tried, with values that no option was meant for, in this process.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from cli.shop import APP
from headrace.adapters.artifacts import connector
from headrace.cli import demo, servers
from headrace.cli.commands import application
from headrace.core.health import Health
from headrace.errors import SetupError
from headrace.wiring import launch
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

LONG = ["x" * 300, "x" * 5_000, "x/" * 5_000, "x" * 100_000]
TEXTS = [
    "",
    " ",
    "\0",
    "a\0b",
    "x\udc9b",
    "\udcff\udcfe",
    "x\x9b",
    "\x1b[31m",
    "\u202e",
    "\r\n",
    "'\"`$();",
    "[bold]",
    "{x}",
    "%s",
    "é😀",
    "-",
    "--",
    "-1",
    "0",
    "1",
    "+1",
    "1.5",
    "1e999",
    "nan",
    "inf",
    "0x10",
    "9" * 30,
    "-" + "9" * 30,
    "9" * 5_000,
    "٣",
    "1970-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+14:00",
    "1 day",
    "99999999999 days",
    "sales",
    "shop",
    "per-shop",
    "all",
    "json",
    "json:",
    "json:a b c",
    "json:" + "struct<a:" * 300,
    "windowed:" * 500 + "string",
    "avro:x",
    "a=b",
    "=",
    "max_round_ms=9" + "9" * 400,
    "max_round_ms=x\udc9b",
    "kafka.x=\0",
    "spark.master=\udc9b",
    "keep",
    "rewind",
    "earliest",
    "caught-up",
    *LONG,
]
PATHS = [
    ".",
    "..",
    "folder",
    "folder/",
    "fifo",
    "fifo/x",
    "shop.py",
    "shop.py:",
    "shop.py:app",
    "shop.py:x\udc9b",
    "shop.py/x",
    "empty.py",
    "bytes.py",
    "loop",
    "denied/x",
    "x\udc9b.py",
    "positions.json",
    "/dev/null/x",
    "/dev/null",
    "/dev/full",
    "/dev/zero",
    "/proc/self/nothing",
    "~nobody-of-this-name/x",
    *LONG,
]
SYSTEMS = [
    *("log", "log:", "log:data", "log:shop.py", "log:folder", "log:fifo", "log:loop", "log:\0", "log:x\udc9b", "log:~x\0"),
    *(f"log:{text}" for text in LONG),
    *("kafka:", "kafka://", "kafka://\udc9b:1", "kafka://a:99999", "kafka://a:b@c:1", "kafka://a:1\0", "nfs:x", "log://x"),
]
BOUND_S = 30.0


def _values(option: Any, name: str) -> st.SearchStrategy[str]:
    """What is tried for an option: anything, and often what comes near to what it takes."""
    names = {name, *getattr(option, "opts", ())}
    near: list[list[str]] = [TEXTS]
    if names & {"app", "app_argument", "--app", "--output", "--dir", "file", "folder"}:
        near = [PATHS, PATHS, TEXTS]
    if "--system" in names:
        near = [SYSTEMS, SYSTEMS, TEXTS]
    return st.one_of(*map(st.sampled_from, near), st.text(st.characters(), max_size=20))


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    commands = getattr(command, "commands", None)
    if commands is None:
        yield path, command
        return
    for name in command.list_commands(None):
        yield from _leaves(command.get_command(None, name), (*path, name))


LEAVES = dict(_leaves(typer.main.get_command(application), ()))


VALID = {
    "app": "shop.py",
    "app_argument": "shop.py",
    "application": "shop",
    "at": "2013-01-01T00:00:00Z",
    "ago": "1 hour",
    "file": "positions.json",
    "folder": "new",
    "ids": "3f0c5a7be812",
    "key": "string",
    "name": "sales",
    "offset": "1",
    "output": "output",
    "partition": "0",
    "partitions": "4",
    "set_": "max_round_ms=5000",
    "start": "earliest",
    "state": "keep",
    "store": "per-shop",
    "stream": "sales",
    "system": "log:data",
    "until": "caught-up",
    "value": "json",
}


def _call(path: tuple[str, ...], given: dict[str, str], flags: set[str]) -> list[str]:
    """A call of the command with these values by the names of its parameters, and valid ones for what it needs."""
    words, arguments = list(path), []
    for parameter in LEAVES[path].params:
        if parameter.name in given or parameter.required:
            value = given.get(parameter.name, VALID.get(parameter.name, "1"))
            if parameter.param_type_name == "argument":
                arguments.append(value)
            else:
                words += [parameter.opts[0], value]
        elif parameter.name in flags:
            words.append(parameter.opts[0])
    return [*words, "--", *arguments]


@st.composite
def _arguments(draw: st.DrawFn, path: tuple[str, ...]) -> list[str]:
    """A call with one or two values that the command was not meant for, among valid ones, and some flags."""
    parameters = [one for one in LEAVES[path].params if one.name != "help"]
    takes = [one for one in parameters if not getattr(one, "is_flag", False)]
    flags = {one.name for one in parameters if getattr(one, "is_flag", False) and draw(st.booleans())}
    given = {one.name: VALID.get(one.name, "1") for one in takes if one.name != "follow" and draw(st.integers(0, 2)) == 0}
    for one in draw(st.lists(st.sampled_from(takes), min_size=1, max_size=2)) if takes else ():
        given[one.name] = draw(_values(one, one.name))
    if path == ("run",):  # without an end it is meant to run for ever
        given.setdefault("until", "caught-up")
    words = _call(path, given, flags - {"follow"})
    if draw(st.integers(0, 20)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(st.sampled_from(TEXTS)))
    return words


@pytest.fixture(scope="module")
def hostile_place(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a log, an application, and things that are no files; without Spark, servers and downloads."""
    folder = tmp_path_factory.mktemp("hostile")
    shutil.copytree(place, folder, dirs_exist_ok=True)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "empty.py").write_text("")
    (folder / "bytes.py").write_bytes(b"\x00\xff\xfe")
    (folder / "positions.json").write_text('{"application": "shop"}')
    (folder / "shop.py").write_text(APP)

    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        raise SetupError("not in this test", "run the command by hand")

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(launch, "spark_engine", lambda app, config: InlineEngine(run_container))
        patch.setattr(servers, "KafkaServer", refuse)
        patch.setattr(servers, "ZooKeeperServer", refuse)
        patch.setattr("headrace.cli.ui.pages", refuse)
        patch.setattr("headrace.cli.run.pages", refuse)
        patch.setattr(demo, "_started_broker", refuse)
        patch.setattr("headrace.demo.run.own_folder", refuse)
        patch.setattr(connector, "with_connector", refuse)
        patch.setattr("headrace.adapters.spark.class_archive.make_archive", refuse)  # it runs a Spark
        yield folder


def _run(arguments: list[str]) -> Result:
    """One run; what is wrong with how it ended is an assertion."""
    began_s = time.monotonic()
    result = CliRunner().invoke(application, arguments, input="")
    shown = f"{[argument[:200] for argument in arguments]}\n{result.output[-3000:]}"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"an exception came out of {shown}") from result.exception
    assert "Traceback" not in result.output, shown
    assert "mistake in Headrace" not in result.output, shown
    of_health = set(Health) if arguments[0] == "status" and "--exit-code" in arguments else set()
    assert result.exit_code in {0, 1, 2} | of_health, shown
    if result.exit_code == 1 and arguments[0] != "doctor":
        said = re.findall(r"^error: ", result.stderr, re.MULTILINE)
        assert len(said) == 1 or "has nothing under key" in result.stderr, shown
    if result.exit_code == 2:
        assert "Usage: " in result.stderr or "error: " in result.stderr, shown
    assert time.monotonic() - began_s < BOUND_S, shown
    return result


@pytest.mark.search
@pytest.mark.parametrize("path", sorted(LEAVES), ids=" ".join)
def test_any_arguments(hostile_place: Path, path: tuple[str, ...]) -> None:
    @settings(max_examples=100, suppress_health_check=list(HealthCheck))
    @given(_arguments(path))
    def run(arguments: list[str]) -> None:
        _run(arguments)

    run()


def test_a_pipe_is_read_and_written_where_another_process_is_at_its_end(hostile_place: Path) -> None:
    """Without one it is refused in a moment: nothing waits for ever."""
    export = ["checkpoint", "export", "shop.py", "--output", "fifo"]
    assert "fifo cannot be written" in _run(export).stderr
    assert "fifo cannot be read: no process writes to this pipe" in _run(["checkpoint", "import", "fifo", "shop.py"]).stderr
    exported = _run(["checkpoint", "export", "shop.py"]).stdout
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit((hostile_place / "fifo").read_text)
        until_s = time.monotonic() + BOUND_S
        while _run(export).exit_code != 0:
            assert time.monotonic() < until_s
        assert len(reader.result(BOUND_S)) == len(exported)
        until_s = time.monotonic() + BOUND_S
        writer = pool.submit((hostile_place / "fifo").write_text, exported)
        while _run(["checkpoint", "import", "fifo", "shop.py", "--yes"]).exit_code != 0:  # the writer may not be there yet
            assert time.monotonic() < until_s
            if writer.done():  # it was, and the command had just given up
                writer = pool.submit((hostile_place / "fifo").write_text, exported)


@pytest.mark.parametrize("system", [*SYSTEMS, *(f"log:{text}" for text in TEXTS)])
def test_a_system_that_cannot_be(hostile_place: Path, system: str) -> None:
    for command in (["stream", "list"], ["stream", "describe", "x"], ["status", "shop.py"]):
        _run([*command, "--system", system])
    if not system.startswith("log:") or any(part in system for part in ("\0", "\udc9b", "x" * 300, "loop")):
        assert _run(["stream", "create", "x", "--system", system]).exit_code in (1, 2)


@pytest.mark.parametrize("command", ["describe", "consume", "delete", "expand", "produce", "create"])
@pytest.mark.parametrize("name", ["x\udc9b", "\0", "", "x" * 5_000, "x\u202e", "../x", "."])
def test_a_stream_of_no_possible_name(hostile_place: Path, command: str, name: str) -> None:
    options = ["--partitions", "8"] if command in ("expand", "create") else []
    result = _run(["stream", command, name, *options])
    assert result.exit_code in (1, 2)
    assert "hint: " in result.stderr, result.stderr
