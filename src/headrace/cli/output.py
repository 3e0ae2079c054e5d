"""What commands print: JSON, tables and single lines on standard output, errors and progress on standard error."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import msgspec
import typer
from typer.core import TyperCommand, TyperGroup

from headrace import signals
from headrace.cli.json_values import plain
from headrace.errors import HeadraceError, SetupError
from headrace.model.durations import time_text
from headrace.terminal_text import SafeStream, indented, raw_of, safe_line

EXIT_ERROR, EXIT_USAGE, EXIT_BROKEN_PIPE = 1, 2, 141
_GIVEN_SHOWN_MAX = 200


class ReportingGroup(TyperGroup):
    """The root of all commands: shows errors as a line and a hint, and ends quietly when the reader has closed the pipe."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command; all that it prints, errors of usage too, goes through streams that keep a terminal safe."""
        with visible_output():
            return super().main(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        whole = bool(ctx.params.get("traceback"))  # whether our own stack trace was requested
        try:
            with signals.raised():
                result = super().invoke(ctx)
                sys.stdout.flush()  # a pipe that was closed is often noticed only here
            return result
        except HeadraceError as error:
            show_error(error, whole=whole)
            raise typer.Exit(EXIT_ERROR) from None
        except BrokenPipeError:
            _leave_standard_output()
            raise typer.Exit(EXIT_BROKEN_PIPE) from None
        except (KeyboardInterrupt, typer.Abort) as error:  # a prompt makes an Abort of a signal, and of an input that ended
            signalled = error if isinstance(error, KeyboardInterrupt) else error.__context__
            if not isinstance(signalled, KeyboardInterrupt):
                raise
            code, line = signals.end_of(signalled)
            say(line)
            raise typer.Exit(code) from None
        except OSError as error:
            where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
            show_error(SetupError(f"{shortened(where)}{error.strerror or error}", "check that path"), whole=whole)
            raise typer.Exit(EXIT_ERROR) from None
        except Exception as error:
            if isinstance(error, (typer.Exit, typer.Abort)) or hasattr(error, "exit_code"):  # wrong usage has one
                raise
            if whole:
                say("".join(traceback.format_exception(error)).rstrip())
            fail(f"{type(error).__name__}: {error}", "this is a mistake in Headrace; `headrace --traceback ...` shows where")


@contextmanager
def visible_output() -> Iterator[None]:
    """While the context is open, what is printed on standard output and standard error is `safe_text`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream and SafeStream(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class PlainCommand(TyperCommand):
    """A command whose usage line shows what must be given as it is: NAME, where some versions of Typer write {NAME}."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]


def _leave_standard_output() -> None:
    """Point it nowhere: Python flushes it once more at its end, and would complain."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        return  # it is no file, as in tests


def show_error(error: HeadraceError, *, whole: bool = False) -> None:
    """`error:` and `hint:` on standard error, below the traceback of the user's code if that raised; `whole`: of all code."""
    if whole:
        say("".join(traceback.format_exception(error)).rstrip())
    elif trace := getattr(error, "user_traceback", ""):
        say(f"{trace.rstrip()}\n")
    say(f"error: {indented(error.message)}")
    for note in getattr(error, "__notes__", ()):
        say(f"   at: {indented(note)}")
    if error.hint:
        say(f"hint: {indented(error.hint)}")


def fail(message: str, hint: str | None = None, code: int = EXIT_ERROR) -> NoReturn:
    """End with an error that is no exception of the library's."""
    show_error(HeadraceError(message, hint))
    raise typer.Exit(code)


def say(text: str) -> None:
    """A line for people, on standard error."""
    print(text, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """`value` as indented JSON on standard output."""
    try:
        text = msgspec.json.format(msgspec.json.encode(plain(value)), indent=2).decode()
    except UnicodeEncodeError:  # the name of a file that is no text; what is printed has its code (`safe_text`)
        text = json.dumps(plain(value), indent=2, ensure_ascii=False)
    print(text)


def report(as_json: bool, value: Any, line: str) -> None:
    """What a command has done: `value` as JSON, or a line for people."""
    if as_json:
        print_json(value)
    else:
        print(line)


def counted(count: int, what: str) -> str:
    """
    >>> counted(1, "record"), counted(2_000, "record")
    ('1 record', '2,000 records')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> None:
    """Columns wide enough for their values, never cut: output is for pipes too. `right`: those set to the right. Numbers get
    thousands separators."""
    texts = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in texts), 0) for i, name in enumerate(columns)]
    bold, normal = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else ("", "")

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(cells, widths, columns, strict=True)
        ]
        return "  ".join(padded).rstrip()

    out = raw_of(sys.stdout)
    out.write(bold)
    print(line(columns), end="")
    out.write(f"{normal}\n")
    for row in texts:
        print(line(row))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return " ".join(f"{name}:{_cell(one)}" for name, one in value.items())
    return safe_line(str(value))


def shortened(text: str) -> str:
    """A text that was given to us, short enough for a message.

    >>> shortened("x" * 1_000)[195:]
    'xxxxx… (1,000 characters)'
    """
    return text if len(text) <= _GIVEN_SHOWN_MAX else f"{text[:_GIVEN_SHOWN_MAX]}… ({len(text):,} characters)"


def iso(time_us: int | None) -> str | None:
    """µs since the epoch as ISO 8601 text in UTC; as a number where no calendar reaches."""
    return None if time_us is None else time_text(time_us)
