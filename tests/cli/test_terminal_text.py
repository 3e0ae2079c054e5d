"""Nothing that a command prints is obeyed by a terminal: records, errors, arguments, user's exceptions, tables, JSON."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.driver import progress_display as progress
from headrace.errors import HeadraceError
from headrace.terminal_text import SafeStream, raw_of, safe_line, safe_text
from headrace.wiring import launch
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

Run = Callable[..., Any]
SOURCE = str(Path(hr.__file__).parents[1])
ACTED_ON = [
    *(chr(number) for number in [*range(0x20), *range(0x7F, 0xA0)] if chr(number) not in "\n\t"),
    *"\u00ad\u180e\u200b\u2060\u2064\u206a\u206f\ufeff\U000e0000\U000e0041\U000e007f",
    *"\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
]
HOSTILE = "".join(ACTED_ON)
UNSAFE = re.compile(f"[{re.escape(HOSTILE)}\ud800-\udfff]")


def harmless(result: Any) -> str:
    """What a command printed, on both streams, once nothing in it is unsafe."""
    text: str = result.stdout + result.stderr
    assert not UNSAFE.search(text), UNSAFE.findall(text)
    return text


@given(st.text(st.characters()))
def test_what_is_made_visible_is_safe_and_all_else_stays(text: str) -> None:
    assert not UNSAFE.search(safe_text(text).replace("\r\n", "\n"))
    assert not UNSAFE.search(safe_line(text)) and "\n" not in safe_line(text)
    assert safe_text(safe_text(text)) == safe_text(text)
    assert safe_text("plain \n\tüñ→ 😀 text\r\n") == "plain \n\tüñ→ 😀 text\r\n"
    assert safe_text("می\u200cروم 👩\u200d🚀") == "می\u200cروم 👩\u200d🚀"


def test_what_no_terminal_shows_is_shown_as_its_code() -> None:
    assert safe_text("a\u200bb\ufeffc\u00add\U000e0041\U000e007f") == "a\\u200bb\\ufeffc\\u00add\\udb40\\udc41\\udb40\\udc7f"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_that_is_made_visible_is_the_same_json(text: str) -> None:
    assert json.loads(safe_text(json.dumps([text], ensure_ascii=False))) == [text]


def test_what_an_encoding_does_not_have_is_escaped() -> None:
    raw = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    SafeStream(raw).writelines(["µ", "\udc9b"])
    raw.flush()
    assert raw.buffer.getvalue() == b"\\xb5\\udc9b"  # type: ignore[attr-defined]
    assert raw_of(SafeStream(raw)) is raw and raw_of(raw) is raw


@given(st.lists(st.binary()), st.sampled_from(["utf-8", "ascii", "latin-1"]))
def test_bytes_that_are_written_below_are_safe_too(parts: list[bytes], encoding: str) -> None:
    raw = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    below = SafeStream(raw).buffer
    for part in parts:
        assert below.write(part) == len(part)
    below.close()
    text = raw.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    assert not UNSAFE.search(text.replace("\r\n", "\n"))


def test_text_in_bytes_stays_wherever_it_is_cut() -> None:
    raw = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stream = SafeStream(raw)
    for byte in "plain üñ→ 😀\n".encode():
        stream.buffer.write(bytes([byte]))
    stream.buffer.write(b"\x9b\x1b[2J")
    stream.buffer.flush()
    assert raw.buffer.getvalue().decode() == "plain üñ→ 😀\n\\x9b\\u001b[2J"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        stream.buffer.write("text")
    with pytest.raises(AttributeError):
        _ = SafeStream(io.StringIO()).buffer


@pytest.mark.parametrize("below", ["sys.stdout.buffer", "sys.stdout.detach()"])
def test_a_file_may_put_a_text_stream_of_its_own_over_standard_output(tmp_path: Path, below: str) -> None:
    (tmp_path / "wrap.py").write_text(
        f"import io, sys\nsys.stdout = io.TextIOWrapper({below}, encoding='utf-8', line_buffering=True)\n"
        "import headrace as hr\nsys.stdout.buffer.write(b'bytes \\xc3\\xbc\\x9b\\n')\nprint('ü\\x1b[2J')\n"
        "app = hr.App('w')\napp.stream('in').to('out')\n"
    )
    shown = subprocess.run(
        [sys.executable, "-m", "headrace", "describe", "wrap.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": SOURCE},
        capture_output=True,
        check=False,
    )
    assert (shown.returncode, shown.stderr) == (0, b"")
    lines = shown.stdout.decode().splitlines()
    assert lines[:2] == ["bytes ü\\x9b", "ü\\u001b[2J"] and any("in" in line for line in lines[2:])


def test_records_come_back_as_they_are_and_are_harmless(fresh: Run) -> None:
    value = {"text": HOSTILE, HOSTILE: ["x"]}
    with hr.open_system("log:./data") as log:
        log.create_stream("words", 1)
        record = hr.Record(HOSTILE, value, 0, (("h", HOSTILE.encode()), (HOSTILE, b"x")))
        log.produce("words", [record], key=hr.String(), value=hr.Json())
    for options in (("--key", "string", "--value", "json"), ("--key", "string"), ()):
        consumed = fresh("stream", "consume", "words", *options)
        harmless(consumed)
        line = json.loads(consumed.stdout)
        assert line["key"] == HOSTILE and line["headers"] == {"h": HOSTILE, HOSTILE: "x"}
    assert json.loads(fresh("stream", "consume", "words", "--key", "string", "--value", "json").stdout)["value"] == value


FAILING = f"""
import headrace as hr

app = hr.App("failing", system="log:./data")

def fail(record):
    raise ValueError({HOSTILE!r} + "\\nhint: run this")

app.stream("words", key=hr.String()).map_values(fail, value=hr.String()).to("out")
"""


def test_a_users_exception_is_harmless_while_a_job_runs(
    fresh: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "spark_engine", lambda app, config: InlineEngine(run_container))
    (tmp_path / "failing.py").write_text(FAILING)
    with hr.open_system("log:./data") as log:
        log.create_stream("words", 1)
        log.produce("words", [(b"k", b"v")])
    text = harmless(fresh("run", "failing.py", "--until", "caught-up"))
    assert "\\u001b" in text and "ValueError" in text
    assert sum(line.startswith("hint: ") for line in text[text.index("\nerror: ") :].splitlines()) == 1
    assert fresh("run", "failing.py", "--until", "caught-up", "--set", "dead_letter_stream=dead").exit_code == 0
    for options in ((), ("--value", "json"), ("--value", "long")):
        harmless(fresh("stream", "consume", "dead", *options))
    harmless(fresh("status"))
    harmless(fresh("status", "--json"))


@pytest.mark.parametrize("raised", ["raise ValueError(HOSTILE)", "raise SystemExit(HOSTILE)", "print(HOSTILE)", "1 = HOSTILE"])
def test_what_comes_of_an_import_is_harmless(fresh: Run, tmp_path: Path, raised: str) -> None:
    name = "app\x1b]0;x\x07\u202e.py"
    source = f"import headrace as hr\nHOSTILE = {HOSTILE!r}\n{raised}  # \x9b\u202e\napp = hr.App('a')\n"
    (tmp_path / name).write_text(source)
    text = harmless(fresh("describe", name))
    assert "\\u001b" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe", HOSTILE],
        ["status", "--application", HOSTILE],
        ["status", "--system", f"log:{HOSTILE}"],
        ["status", "--system", HOSTILE],
        ["stream", "list", "--system", f"kafka://{HOSTILE}"],
        ["stream", "consume", "x", "--start", HOSTILE],
        ["stream", "consume", "x", "--key", HOSTILE],
        ["doctor", "--set", f"{HOSTILE}=1"],
        ["run", "x.py", "--until", HOSTILE],
        [HOSTILE],
        [f"--{HOSTILE}"],
        ["stream", HOSTILE],
        ["stream", "list", f"--{HOSTILE}"],
        ["stream", "create", "x", "--partitions", HOSTILE],
    ],
)
def test_arguments_are_harmless_where_they_are_refused(fresh: Run, arguments: list[str]) -> None:
    clean = [argument.replace("\0", "") for argument in arguments]
    result = fresh(*clean)
    assert result.exit_code in (1, 2)
    harmless(result)


def test_an_errors_own_text_is_harmless() -> None:
    assert str(HeadraceError("a\x1b[1m", "b\x9b\nc")) == "a\\u001b[1m\n  hint: b\\u009b\n  c"


def test_a_preview_is_harmless(tmp_path: Path) -> None:
    app = hr.App("p", system=f"log:{tmp_path / 'data'}")
    with hr.open_system(app.config_arguments["system"]) as log:
        log.create_stream("words", 1)
        log.produce("words", [(HOSTILE, HOSTILE + "\n\t")], key=hr.String(), value=hr.String())
    shown = repr(app.stream("words", key=hr.String(), value=hr.String()).preview(1))
    assert not UNSAFE.search(shown) and len(shown.splitlines()) == 4


def test_names_are_no_markup_in_the_live_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brackets would be styles, links, or an error that ends the display."""
    monkeypatch.setenv("COLUMNS", "300")
    waiting = "[/red][link=x]y[/link]:smile:\x1b"
    sub = {"records": 1, "records_per_s": 1, "lag": 0, "round": 1, "tasks": 1, "waiting_for": waiting}
    raw = io.StringIO()

    class Job:
        def status(self) -> dict[str, Any]:
            return {"running": True, "sub_topologies": {"[bold]source[/]": sub}}

    ended = threading.Event()
    ended.set()
    progress._live(progress._JobView(Job()).table, SafeStream(raw), ended)
    text = raw.getvalue()
    assert "[bold]source[/]" in text and "[/red][link=x]y[/link]:smile:\\u001b" in text


def test_a_question_on_a_terminal_is_asked_and_is_harmless(tmp_path: Path) -> None:
    with hr.open_system(f"log:{tmp_path / 'data'}") as log:
        log.create_stream("words", 1)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "stream", "delete", "words"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": SOURCE, "NO_COLOR": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, b"y\n")
    shown = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:
            break
        shown += data
        if not data:
            break
    os.close(ours)
    assert process.wait(60) == 0
    text = shown.decode().replace("\r\n", "\n")
    assert "delete words with 0 records? [y/N]" in text and text.endswith("deleted stream words\n")
    assert not UNSAFE.search(text)
