"""`headrace dead-letters`: records that an application could not process are shown, put back, or discarded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headrace.cli.json_values import plain, text_of_bytes
from headrace.cli.output import counted, print_json, print_table, report, say
from headrace.cli.previews import confirm
from headrace.cli.targets import JsonOption, Target, YesOption, about_an_application, not_files, whole_number, with_options
from headrace.client.letters import LetterFilter
from headrace.errors import ConfigError, HeadraceError
from headrace.model.durations import time_us
from headrace.model.serde import Serde
from headrace.serdes.plain_values import value_of_json

if TYPE_CHECKING:
    from headrace.client.dead_letters import Corrected, DeadLetters
    from headrace.client.letters import DeadLetter

LIST_EXAMPLES = """\
headrace dead-letters list flights.py
headrace dead-letters list flights.py --reason SerdeError --limit 20
headrace dead-letters list flights.py --values --json > letters.jsonl     to correct them, see retry --from"""
SHOW_EXAMPLES = "headrace dead-letters show 0:17 flights.py"
COUNT_EXAMPLES = "headrace dead-letters count flights.py"
RETRY_EXAMPLES = """\
headrace dead-letters retry 0:17 0:18 --app flights.py
headrace dead-letters retry --reason ZeroDivisionError --app flights.py
headrace dead-letters retry --from letters.jsonl --app flights.py --yes"""
DISCARD_EXAMPLES = """\
headrace dead-letters discard --operator parse --until 2013-06-01T00:00:00Z --app flights.py
headrace dead-letters discard --all --app flights.py --yes"""
_SHOWN = ("id", "failed_at", "when", "source", "offset", "operator", "reason", "tries", "status")


_FILTER_OPTIONS: dict[str, Any] = {
    "reason": Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", help="Only those with this class of error, or this text in its message."),
    ],
    "operator": Annotated[str | None, typer.Option("--operator", metavar="NAME", help="Only those of this operator.")],
    "stream": Annotated[str | None, typer.Option("--stream", metavar="STREAM", help="Only records of this stream.")],
    "since": Annotated[str | None, typer.Option("--since", metavar="ISO", help="Only records of this time or later.")],
    "until": Annotated[str | None, typer.Option("--until", metavar="ISO", help="Only records of before this time.")],
}
IdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="Dead letters: PARTITION:OFFSET.", callback=not_files)
]
AllOption = Annotated[bool, typer.Option("--all", help="All that are open.")]


def filter_of(
    reason: str | None, operator: str | None, stream: str | None, since: str | None, until: str | None
) -> LetterFilter:
    since_us, until_us = (time_us(one, name) if one else None for one, name in ((since, "--since"), (until, "--until")))
    return LetterFilter(frozenset(), reason or "", operator or "", stream or "", since_us, until_us)


with_filter = partial(with_options, name="wanted", options=_FILTER_OPTIONS, made=filter_of)


@about_an_application
@with_filter
def list_letters(
    target: Target,
    wanted: LetterFilter,
    every: Annotated[bool, typer.Option("--every", help="Those that are dealt with too.")] = False,
    limit: Annotated[int, typer.Option("--limit", parser=whole_number(1), metavar="N", help="The newest so many.")] = 100,
    values: Annotated[bool, typer.Option("--values", help="JSON: keys and values too, decoded if they can be.")] = False,
    json: JsonOption = False,
) -> None:
    """List the dead letters that are open, the newest last: what could not be processed, by which operator, and why. JSON: a
    line each."""
    with opened_letters(target) as letters:
        found = letters.newest(limit, wanted, open_only=not every)
        shown = [document(letters, one, values=values) for one in reversed(found)]
    if json:
        for one in shown:
            print(msgspec.json.encode(one, enc_hook=str).decode())
    elif shown:
        names = ["record's time" if name == "when" else name.replace("_", " ") for name in _SHOWN]
        print_table(names, [[one[name] for name in _SHOWN] for one in shown], right=("offset", "tries"))
    else:
        say(f"application {target.application} has no open dead letter" + (" of these" if wanted.says_something else ""))


@about_an_application
def show(
    target: Target, id: Annotated[str, typer.Argument(metavar="ID", help="PARTITION:OFFSET.")], json: JsonOption = False
) -> None:
    """Show one dead letter: the record as it was read, decoded if it can be, and what is known of it."""
    with opened_letters(target) as letters:
        found = document(letters, letters.get(id), values=True)
    if json:
        print_json(found)
        return
    for name, value in found.items():
        if value is not None:
            text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
            print(f"{name.replace('_', ' ')}: {text}")


@about_an_application
@with_filter
def count(
    target: Target,
    wanted: LetterFilter,
    json: JsonOption = False,
) -> None:
    """Count the open dead letters, by operator and class of the error."""
    with opened_letters(target) as letters:
        found = letters.count(wanted)
    rows = [{"operator": name, "error_class": kind, "letters": number} for (name, kind), number in found.most_common()]
    if json:
        print_json({"application": target.application, "open": found.total(), "by_reason": rows})
    elif rows:
        print_table(("operator", "error class", "letters"), [list(row.values()) for row in rows], right=("letters",))
    else:
        say(f"application {target.application} has no open dead letter")


@partial(about_an_application, by_argument=False)
@with_filter
def retry(
    target: Target,
    wanted: LetterFilter,
    ids: IdsArgument = None,
    all_: AllOption = False,
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Corrected letters: lines of `list --values --json`, edited.")
    ] = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Put records back into the stream and the partition that they came from, each once, in transactions. A header,
    `headrace.tries`, counts. Shows first how many of which reason, then prompts.

    With --from the keys and values of a file take the place of those that failed, encoded by the serdes of APP's source. A
    record that comes back is processed after all that was there before: later than its neighbours.
    """
    with opened_letters(target) as letters:
        corrected = {} if from_ is None else _corrected(letters, from_)
        chosen = _chosen(letters, wanted, [*(ids or ()), *corrected], all_)
        _deal(target, chosen, "put back", lambda: letters.retry(chosen, corrected, _progress(len(chosen), json)), yes, json)


@partial(about_an_application, by_argument=False)
@with_filter
def discard(
    target: Target,
    wanted: LetterFilter,
    ids: IdsArgument = None,
    all_: AllOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Note that nothing is to be done about dead letters: they are not listed any more. They stay in their stream."""
    with opened_letters(target) as letters:
        chosen = _chosen(letters, wanted, ids or (), all_)
        _deal(target, chosen, "discarded", lambda: letters.discard(chosen, _progress(len(chosen), json)), yes, json)


def opened_letters(target: Target, system: Any = None) -> DeadLetters:
    """Those of the target; to be used in a `with`. `system`: its own, where that is open."""
    from headrace.client.dead_letters import DeadLetters

    found = DeadLetters(target.application, target.config, None if target.app is None else target.app.topology(), system)
    found.stream  # noqa: B018  before a system is opened: there may be none
    return found


def _chosen(letters: DeadLetters, wanted: LetterFilter, ids: Sequence[str], every: bool) -> list[DeadLetter]:
    wanted = replace(wanted, ids=frozenset(ids))
    if not wanted.says_something and not every:
        raise typer.BadParameter("say which: ids, --reason, --operator, --stream, --since, --until; or --all")
    found = list(letters.list(wanted, open_only=not ids))
    if missing := [id_ for id_ in ids if id_ not in {one.id for one in found}]:
        raise ConfigError(
            f"stream {letters.stream!r} has no dead letter {missing[0]!r}" + (" of these" if found else ""),
            "`headrace dead-letters list` shows their ids",
        )
    return found


def _deal(target: Target, chosen: list[DeadLetter], what: str, act: Any, yes: bool, json: bool) -> None:
    """Show what is chosen, prompt, and do it."""
    if not chosen:
        report(json, {"application": target.application, what.replace(" ", "_"): 0}, "no open dead letter is chosen")
        return
    if not json:
        reasons = Counter((one.operator, one.reason) for one in chosen)
        rows = [(name, reason, number) for (name, reason), number in reasons.most_common(20)]
        print_table(("operator", "reason", "letters"), rows, right=("letters",))
    many = counted(len(chosen), "dead letter")
    confirm(f"{many}: {'put back' if what == 'put back' else 'discard'}?", yes, json)
    done = act()
    report(json, {"application": target.application, what.replace(" ", "_"): done}, f"{what}: {counted(done, 'dead letter')}")


def _progress(total: int, json: bool) -> Any:
    return lambda done: None if json or total <= 500 else say(f"{done:,} of {total:,}")


def document(letters: DeadLetters, letter: DeadLetter, *, values: bool) -> dict[str, Any]:
    """For programs; with `values` its key and value, decoded by the serdes of its source where they can be."""
    from headrace.client.letters import described

    found: dict[str, Any] = described(letter)
    if values:
        problems = {}
        for side, data, serde in zip(("key", "value"), (letter.key, letter.value), letters.serdes(letter), strict=True):
            try:
                found[side] = None if data is None else text_of_bytes(data) if serde is None else plain(serde.decode(data))
            except Exception as error:  # a serde of the user's: anything may come
                found[side] = text_of_bytes(data or b"")
                problems[side] = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
        found["does_not_decode"] = problems or None
        found["headers"] = [(name, None if data is None else text_of_bytes(data)) for name, data in letter.headers]
    return found


def _corrected(letters: DeadLetters, path: Path) -> dict[str, Corrected]:
    """By id the key and value that a file gives, encoded. `ConfigError` names the line that does not fit."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}",
            "name a file that is there and that you may read",
        ) from None
    known: dict[str, DeadLetter] | None = None
    found: dict[str, Corrected] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            given = msgspec.json.decode(line)
            if not isinstance(given, dict) or not {"id", "key", "value"} <= given.keys() or not isinstance(given["id"], str):
                raise ConfigError("expected an object with id, key and value")
            known = {one.id: one for one in letters.list()} if known is None else known
            if given["id"] not in known:
                raise ConfigError(f"stream {letters.stream!r} has no dead letter {given['id']!r}")
            key, value = letters.serdes(known[given["id"]])
            found[given["id"]] = _encoded(given["key"], key), _encoded(given["value"], value)
        except (HeadraceError, msgspec.DecodeError, UnicodeDecodeError) as error:
            why = error.message if isinstance(error, HeadraceError) else f"it is no JSON: {error}"
            raise ConfigError(f"{path.name} line {number}: {why}", "nothing was put back; correct the line") from None
    if not found:
        raise ConfigError(f"{path.name} has no line", "write it with `headrace dead-letters list --values --json`")
    return found


def _encoded(value: Any, serde: Serde | None) -> bytes | None:
    from headrace.serdes.scalars import Bytes

    if value is None:
        return None
    chosen = serde or Bytes()
    return chosen.encode(value_of_json(value, chosen))
