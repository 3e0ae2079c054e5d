"""Values, times and nulls of every operator agree with what Kafka Streams' own test driver gives for the same records."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver
from kafka_streams.cases import NAMES, sent_of

VECTORS: dict[str, list[list[str]]] = json.loads(Path(__file__).with_name("vectors.json").read_text())
ENDLESS = 9_223_372_036_854_775_807  # the end of an unlimited window there
END_US = 253_402_300_799_999_999
Out = tuple[str | None, str | None, int]  # key, value, time


def fold(state: int, value: int | None) -> int:
    return (state * 3 + (5 if value is None else value)) % 10007


def pair(left: Any, right: Any) -> str:
    return ",".join("null" if each is None else str(each) for each in (left, right))


def windows_of(name: str, length: str) -> Any:
    kind, us = name.partition("_")[0], f"{length} us"
    match kind:
        case "tumbling":
            return hr.Tumbling("10 us", grace=us)
        case "hopping":
            return hr.Hopping("10 us", "4 us", grace=us)
        case "sliding":
            return hr.Sliding("10 us", grace=us)
        case "session":
            return hr.Session("10 us", grace=us)
    return hr.Unlimited(start=int(length))


def folded(rows: Any) -> Any:
    is_session = isinstance(rows.windows, type(hr.Session("1 us")))
    merger = (lambda x, y: (x * 5 + y) % 10007) if is_session else None
    return rows.aggregate(initial=1, function=lambda s, r: fold(s, r.value), merger=merger, value=hr.Long())


def ended(state: int, record: hr.Record) -> int | None:
    return None if record.value % 7 == 0 else fold(state, record.value)


def cogrouped(a: Any, b: Any) -> Any:
    one, other = a.group_by_key(), b.group_by_key()
    return one.cogroup(lambda s, r: fold(s, r.value)).cogroup(other, lambda s, r: fold(s + 1, r.value))


def joined(name: str, left: Any, right: Any) -> Any:
    join, kind, *grace = name.split()
    method = {"inner": left.join, "left": left.left_join, "outer": getattr(left, "outer_join", None)}[kind]
    options: dict[str, Any] = {"value": hr.String()}
    if join == "stream_stream":
        options |= {"within": "4 us", "grace": f"{grace[0]} us"}
    if join == "foreign":
        options |= {"foreign_key": lambda r: f"k{r.value % 3}"}
    return method(right, pair, **options)


def view(table: Any) -> Any:
    return table.filter(lambda r: r.value % 2 == 0).map_values(lambda r: r.value + 1, value=hr.Long())


TABLES = {"group_table": "a", "table_view": "a", "table_table": "ab", "foreign": "ab", "stream_table": "b"}
PLAIN: dict[str, Callable[[Any], Any]] = {
    "count": lambda a: a.group_by_key().count(),
    "count_view": lambda a: view(a.group_by_key().count()),
    "reduce": lambda a: a.group_by_key().reduce(fold),
    "aggregate": lambda a: a.group_by_key().aggregate(initial=1, function=ended, value=hr.Long()),
    "group_table": lambda a: (
        a.group_by(lambda r: f"g{r.value % 2}", key=hr.String())
        .aggregate(initial=0, adder=lambda s, r: s + r.value, subtractor=lambda s, r: s - r.value, value=hr.Long())
    ),
    "table_view": view,
}


def app_of(name: str) -> hr.App:
    app = hr.App("vectors")
    kind, _, length = name.partition(" ")
    inputs: Any = {}
    for each in sorted({stream for stream, *_ in sent_of(name)} | {"a"}):
        read: Any = app.table if each in TABLES.get(kind, "") else app.stream
        inputs[each] = (app.global_table if (kind, each) == ("stream_global", "b") else read)(
            each, key=hr.String(), value=hr.Long()
        )
    if kind in PLAIN:
        made = PLAIN[kind](inputs["a"])
    elif kind == "cogroup":
        made = cogrouped(inputs["a"], inputs["b"]).aggregate(initial=1, value=hr.Long())
    elif kind == "cogroup_tumbling":
        rows = cogrouped(inputs["a"], inputs["b"]).windowed_by(windows_of("tumbling", length))
        made = rows.aggregate(initial=1, value=hr.Long())
    elif len(inputs) == 2:
        made = joined(name, inputs["a"], inputs["b"])
    else:
        rows = inputs["a"].group_by_key().windowed_by(windows_of(kind, length))
        if kind.endswith("_count"):
            made = rows.count()
        elif kind.endswith("_reduce"):
            made = rows.reduce(fold)
        else:
            made = folded(rows)
    (made.to_stream(emit="each") if hasattr(made, "to_stream") else made).to("out")
    return app


def ours(name: str) -> list[Out]:
    """A round for each record, as Kafka Streams takes them."""
    with Driver(app_of(name)) as d:
        for stream, key, value, time in sent_of(name):
            d.send(stream, key, value, at=time)
            d.run()
        d.run()
        return [(key_text(r.key), None if r.value is None else str(r.value), r.timestamp_us) for r in d.read("out")]


def key_text(key: Any) -> str | None:
    return f"{key.key} {key.start_us} {key.end_us}" if isinstance(key, hr.WindowedKey) else key


def theirs(name: str) -> list[Out]:
    parts = [[None if part == "null" else part for part in row] for row in VECTORS[name]]
    return [(key and key.replace(str(ENDLESS), str(END_US)), value, int(time or 0)) for key, value, time in parts]


def by_key(found: Iterable[Out]) -> dict[str | None, list[Out]]:
    """Of each key its updates in their order, without deletions of what is not there, and without what is undone at once: there
    a session that keeps its bounds is deleted before each update."""
    updates: dict[str | None, list[Out]] = defaultdict(list)
    for one in found:
        if one[1] is not None or (updates[one[0]] and updates[one[0]][-1][1] is not None):
            updates[one[0]].append(one)
    return {
        key: [one for one, then in pairwise([*mine, None]) if one is not None and not is_undone(one, then)]
        for key, mine in updates.items()
        if mine
    }


def is_undone(one: Out, then: Out | None) -> bool:
    """Of a window: a deletion after which it is there again; or the same update once more, which a sliding window that begins
    both right after one record and its length before another has there."""
    is_windowed = one[0] is not None and " " in one[0]
    return is_windowed and then is not None and (one[1] is None or one == then)


@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_kafka_streams(name: str) -> None:
    found, expected = ours(name), theirs(name)
    if name.startswith("stream_stream"):  # those without a match come by the watermark, there by stream time
        no_end = lambda rows: Counter(row for row in rows if row[0] != "end")  # noqa: E731
        assert no_end(found) == no_end(expected)
    else:
        assert by_key(found) == by_key(expected)
