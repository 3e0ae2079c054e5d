"""The form of a store as text (`StoreSpec.form`): its parts, and in words what an edit has changed of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.model.durations import duration_text, time_text

_FORM = re.compile(
    r"(?P<what>.+) key=(?P<key>.+) value=(?P<value>.+?)"
    r"(?: windows=(?:(?P<size>\d+)us/(?P<advance>\d+)us|session/(?P<gap>\d+)us|sliding/(?P<length>\d+)us"
    r"|unlimited/(?P<begin>-?\d+)us))?",
    re.DOTALL,
)
_DECIMAL = re.compile(r":decimal\(\d+,(\d+)\)\)$")  # the type behind an aggregate's field
UNKNOWN = "spark"  # in place of a serde: what Spark's type will say
_KINDS = {
    "count": "counts",
    "named": "named aggregates",
    "table-count": "counts of a grouped table",
    "table-named": "named aggregates of a grouped table",
    "table-reduce": "values folded by reduce() of a grouped table",
    "table-aggregate": "states of aggregate(initial=, adder=, subtractor=)",
    "limited": "updates that wait for their time",
    "limited-windows": "updates of windows that wait for their time",
    "sent": "the foreign keys of a table's rows",
    "foreign": "rows under their foreign keys",
    "results": "results of a join by foreign keys",
    "deleted": "rows without a result of a join by foreign keys",
    "grouped": "where the rows of a grouped table were sent",
    "grouped-windows": "where the results of windows were sent that are grouped",
    "reduce": "values folded by reduce()",
    "aggregate": "states of aggregate(initial=, function=)",
    "table": "the values of a table",
    "versioned": "the newest values of a table with a history",
    "versions": "the versions of a table's values",
    "waiting": "records that wait for a table of versions",
    "global": "the values of a global table",
    "joined": "records that wait for a join",
    "suppress": "results of windows that are not closed",
    "window": "a WindowStore's values",
    "key-value": "a KeyValueStore's values",
    "list": "a ListStore's values",
    "map-str": "a MapStore's values, by texts",
    "map-bytes": "a MapStore's values, by bytes",
    "map-int": "a MapStore's values, by numbers",
    "duplicates": "the times of records that were let through",
}


@dataclass(frozen=True, slots=True)
class FormParts:
    """`what`: the kind of store with its details. Lengths, and where the one window without an end begins (`begin_us`), in µs;
    None where there are no such windows."""

    what: str
    key: str
    value: str
    size_us: int | None = None
    advance_us: int | None = None
    gap_us: int | None = None
    length_us: int | None = None
    begin_us: int | None = None

    @property
    def kind(self) -> str:
        return self.what.partition(" ")[0]

    @property
    def details(self) -> str:
        return self.what.partition(" ")[2]


def parts_of(form: str) -> FormParts | None:
    """The parts of a form; None for one of a version that knows more kinds.

    >>> parts_of("count key=string value=long windows=session/300000000us").gap_us
    300000000
    """
    match = _FORM.fullmatch(form)
    if match is None:
        return None
    names = ("size", "advance", "gap", "length", "begin")
    lengths = (None if match[name] is None else int(match[name]) for name in names)
    return FormParts(match["what"], match["key"], match["value"], *lengths)


def changes_of(before: str, now: str) -> list[str]:
    """What differs between two forms, in words; a serde that is not known yet differs from none. Empty: nothing does.

    >>> changes_of("count key=string value=long windows=session/300000000us",
    ...            "count key=string value=long windows=session/600000000us")
    ['its gap was 5 minutes, is 10 minutes']
    >>> changes_of("count key=string value=long", "named n=count key=string value=json<n bigint>")
    ['it held counts, would hold named aggregates (n=count)']
    """
    if before == now:
        return []
    old, new = parts_of(before), parts_of(now)
    if old is not None and new is not None:
        found = [*_kinds(old, new), *_serdes(old, new), *_windows(old, new)]
        if found or UNKNOWN in (old.key, old.value, new.key, new.value):
            return found
    return [f"it held `{before}`, would hold `{now}`"]


def _kinds(old: FormParts, new: FormParts) -> Iterator[str]:
    if old.kind != new.kind:
        yield f"it held {_kind(old)}, would hold {_kind(new)}"
    elif old.what != new.what:
        yield from _details(old, new)


def _serdes(old: FormParts, new: FormParts) -> Iterator[str]:
    for part, before, now in (("keys", old.key, new.key), ("values", old.value, new.value)):
        # what the values of other kinds of aggregates are follows from their kind
        follows = part == "values" and old.what != new.what
        if before != now and UNKNOWN not in (before, now) and not follows:
            yield f"its {part} were `{before}`, are `{now}`"


def scales_in(form: str) -> dict[str, int]:
    """Of the aggregates of decimal fields in a store's form how many digits their fields have behind the point.

    >>> scales_in("named n=count,m=max(value.a:decimal(4,2)),s=sum(value.b:bigint) key=string value=json")
    {'m': 2}
    """
    parts = parts_of(form)
    found = {} if parts is None else aggregates_in(parts.details)
    matches = {name: _DECIMAL.search(aggregate) for name, aggregate in found.items()}
    return {name: int(match[1]) for name, match in matches.items() if match is not None}


def _details(old: FormParts, new: FormParts) -> Iterator[str]:
    if not old.kind.endswith("named"):
        yield "its values " + ", now ".join("expire" if one.details == "expiring" else "never expire" for one in (old, new))
        return
    before, now = aggregates_in(old.details), aggregates_in(new.details)
    for name in sorted(before.keys() - now.keys()):
        yield f"its aggregate {name}={_shown(before[name])} is missing"
    for name in sorted(now.keys() - before.keys()):
        yield f"its aggregate {name}={_shown(now[name])} is new"
    for name in sorted(before.keys() & now.keys()):
        if before[name] != now[name]:
            yield f"its aggregate {name} was {_shown(before[name])}, is {_shown(now[name])}"
    if before == now:
        yield f"its aggregates were in the order {', '.join(before)}, are in the order {', '.join(now)}"


def _windows(old: FormParts, new: FormParts) -> Iterator[str]:
    if old.gap_us is not None and new.gap_us is not None:
        if old.gap_us != new.gap_us:
            yield f"its gap was {duration_text(old.gap_us)}, is {duration_text(new.gap_us)}"
    elif old.size_us is not None and new.size_us is not None:
        if old.size_us != new.size_us:
            yield f"the size of its windows was {duration_text(old.size_us)}, is {duration_text(new.size_us)}"
        are_tumbling = (old.advance_us, new.advance_us) == (old.size_us, new.size_us)
        if old.advance_us != new.advance_us and not are_tumbling:
            yield f"their advance was {duration_text(old.advance_us or 0)}, is {duration_text(new.advance_us or 0)}"
    elif _window_words(old) != _window_words(new):
        yield f"it had {_window_words(old)}, has {_window_words(new)}"


def _window_words(parts: FormParts) -> str:
    if parts.gap_us is not None:
        return f"sessions with a gap of {duration_text(parts.gap_us)}"
    if parts.length_us is not None:
        return f"sliding windows of {duration_text(parts.length_us)}"
    if parts.begin_us is not None:
        return f"one window from {time_text(parts.begin_us)} on"
    if parts.size_us is None:
        return "no windows"
    every = "" if parts.advance_us == parts.size_us else f" every {duration_text(parts.advance_us or 0)}"
    return f"windows of {duration_text(parts.size_us)}{every}"


def _kind(parts: FormParts) -> str:
    aggregates = ", ".join(f"{name}={_shown(one)}" for name, one in aggregates_in(parts.details).items())
    known = _KINDS.get(parts.kind, parts.what)
    return f"{known} ({aggregates})" if parts.kind.endswith("named") else known


def _shown(aggregate: str) -> str:
    """`sum(value.x:bigint)` as people write it: its type behind it."""
    call, colon, kind = aggregate.removesuffix(")").partition(":")
    return f"{call}) of {kind}" if colon else aggregate


def aggregates_in(details: str) -> dict[str, str]:
    """The named aggregates of a form, in their order: between the commas outside of brackets.

    >>> aggregates_in("n=count,m=max(value.a:decimal(4,2))")
    {'n': 'count', 'm': 'max(value.a:decimal(4,2))'}
    """
    parts, depth = [""], 0
    for character in details:
        depth += (character in "(<") - (character in ")>")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return {name: aggregate for name, _, aggregate in (part.partition("=") for part in parts)}
