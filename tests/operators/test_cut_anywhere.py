"""The results of every operator are the same wherever rounds are cut, as long as no record is later than its grace.

Times are drawn so that they often lie exactly at the bounds of windows, joins, graces and gaps: all of these lengths are a few
µs, and so are the steps between records. Joins, windows and duplicates have a plain model besides, which knows no rounds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver

pytestmark = pytest.mark.search
LENGTH = 4  # of windows, gaps, joins and lives, in µs
END_US = 1_000  # when all has closed
END_KEY = "end"

Sent = tuple[str, str, int, int]  # input, key, value, time
Results = list[tuple[Any, Any, int]]


def us(length_us: int) -> str:
    return f"{length_us} us"


@dataclass(frozen=True)
class Case:
    """An application that reads `inputs` and writes `out`. `late_us`: how far a record may be behind the latest before it.

    `tables_first`: at equal times the records of the first input come first, as a task takes them. `final`: only the last
    result of each key is the same, as tables give one per round.
    """

    make: Callable[[], hr.App]
    inputs: str = "a"
    late_us: int = 0
    final: bool = False
    tables_first: bool = False
    model: Callable[[Sequence[Sent]], Results] | None = None


# --- the applications -------------------------------------------------------------------------------------------------


def app_of(build: Callable[[hr.App, list[Any]], Any], inputs: str = "a", tables: str = "") -> Callable[[], hr.App]:
    def make() -> hr.App:
        app = hr.App("cut")
        read = [(app.table if name in tables else app.stream)(name, key=hr.String(), value=hr.Long()) for name in inputs]
        build(app, read).to("out", value=hr.Json())
        return app

    return make


def joined_streams(kind: str, grace: int) -> Case:
    def build(app: hr.App, read: list[Any]) -> Any:
        left, right = read
        options = {"within": us(LENGTH), "grace": us(grace), "value": hr.Json()}
        return getattr(left, kind)(right, lambda x, y: [x, y], **options)

    def model(sent: Sequence[Sent]) -> Results:
        sides = [[record for record in sent if record[0] == name] for name in "ab"]
        pairs = [(x, y) for x in sides[0] for y in sides[1] if x[1] == y[1] and abs(x[3] - y[3]) <= LENGTH]
        found = [(x[1], [x[2], y[2]], max(x[3], y[3])) for x, y in pairs]
        for side, emits in ((0, kind != "join"), (1, kind == "outer_join")):
            alone = [record for record in sides[side] if record not in [pair[side] for pair in pairs]]
            found += [(key, [value, None][:: 1 - 2 * side], at) for _, key, value, at in alone if emits]
        return found

    return Case(app_of(build, "ab"), "ab", grace, model=model)


WINDOWS = {
    "tumbling": lambda grace: hr.Tumbling(us(LENGTH), grace=us(grace)),
    "hopping": lambda grace: hr.Hopping(us(LENGTH), us(2), grace=us(grace)),
    "sliding": lambda grace: hr.Sliding(us(LENGTH), grace=us(grace)),
    "session": lambda grace: hr.Session(us(LENGTH), grace=us(grace)),
}


def windowed(kind: str, emit: str, grace: int) -> Case:
    def build(app: hr.App, read: list[Any]) -> Any:
        grouped = read[0].group_by_key().windowed_by(WINDOWS[kind](grace))
        table = grouped.aggregate(n=hr.count(), last=hr.last("value"), store="s")
        return table.to_stream(emit=emit).map(
            lambda r: (f"{r.key.key} {r.key.start_us} {r.key.end_us}", r.value), key=hr.String(), value=hr.Json()
        )

    def model(sent: Sequence[Sent]) -> Results:
        spans: dict[tuple[str, int, int], list[Sent]] = {}
        if kind == "session":
            for key in {record[1] for record in sent}:
                mine = sorted((record for record in sent if record[1] == key), key=lambda record: record[3])
                runs: list[list[Sent]] = []
                for record in mine:
                    if runs and record[3] - runs[-1][-1][3] <= LENGTH:
                        runs[-1].append(record)
                    else:
                        runs.append([record])
                spans |= {(key, run[0][3], run[-1][3]): run for run in runs}
        elif kind == "sliding":
            for _, key, _, at in sent:
                for start in (at - LENGTH, at + 1):
                    inside = [record for record in sent if record[1] == key and start <= record[3] <= start + LENGTH]
                    spans |= {(key, start, start + LENGTH): inside} if inside else {}
        else:
            step = LENGTH if kind == "tumbling" else 2
            for record in sent:
                for start in range(-LENGTH, END_US + 1, step):
                    if start <= record[3] < start + LENGTH:
                        spans.setdefault((record[1], start, start + LENGTH), []).append(record)
        # in the order in which they came
        came = {span: [record for record in sent if record in records] for span, records in spans.items()}
        return [
            (f"{key} {start} {end}", {"n": len(records), "last": records[-1][2]}, max(record[3] for record in records))
            for (key, start, end), records in came.items()
            if key != END_KEY
        ]

    is_ordered = kind == "session"  # what is last in a session that two have become is the later one's, by time
    late_us = 0 if is_ordered else grace
    return Case(app_of(build), "a", late_us, final=emit == "round", model=model if emit == "closed" else None)


def dropped(late: int) -> Case:
    def build(app: hr.App, read: list[Any]) -> Any:
        return read[0].drop_duplicates(within=us(LENGTH))

    def model(sent: Sequence[Sent]) -> Results:
        last: dict[str, int] = {}
        found = []
        for _, key, value, at in sent:
            if key not in last or abs(at - last[key]) >= LENGTH:
                last[key] = max(at, last.get(key, at))
                found.append((key, value, at))
        return found

    return Case(app_of(build), "a", late, model=model)


class Lives(hr.Processor[str, int, str, Any]):
    """Forwards what the record before it left in a store whose entries live for a while, and leaves its own value."""

    stores: ClassVar = [
        hr.KeyValueStore("lives", value=hr.Long(), ttl=us(LENGTH)),
        hr.WindowStore("by-time", value=hr.Long(), retention=us(LENGTH)),
    ]

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: hr.Record) -> None:
        lives, by_time = self.context.store("lives"), self.context.store("by-time")
        before = [value for _, value in by_time.range(0, END_US + 1)]
        self.context.forward(value=[lives.get(), before])
        lives.put(record.value)
        by_time.put(record.value, record.timestamp_us)


def lives_model(sent: Sequence[Sent]) -> Results:
    found: Results = []
    kept: dict[str, list[tuple[int, int]]] = {}
    for _, key, value, at in sent:
        mine = {when: each for when, each in kept.get(key, ()) if when + LENGTH > at}
        last = kept.get(key, ())[-1:]
        found.append((key, [next((each for when, each in last if when + LENGTH > at), None), list(mine.values())], at))
        kept.setdefault(key, []).append((at, value))
    return found


def as_of(grace: int) -> Case:
    """A join with a table of versions: each record waits for those that are as late as the grace allows."""

    def make() -> hr.App:
        app = hr.App("cut")
        table = app.table("a", key=hr.String(), value=hr.Long(), history=us(END_US))
        stream = app.stream("b", key=hr.String(), value=hr.Long())
        stream.left_join(table, lambda x, y: [x, y], value=hr.Json(), grace=us(grace)).to("out")
        return app

    def model(sent: Sequence[Sent]) -> Results:
        found: Results = []
        for name, key, value, at in sent:
            versions = {when: own for of, one, own, when in sent if (of, one) == ("a", key) and when <= at}
            if name == "b":
                found.append((key, [value, versions[max(versions)] if versions else None], at))
        return found

    return Case(make, "ab", grace, model=model)


CASES = {
    "as-of join, grace 0": as_of(0),
    "as-of join, grace 4": as_of(LENGTH),
    **{f"{kind}, grace {g}": joined_streams(kind, g) for kind in ("join", "left_join", "outer_join") for g in (0, 2)},
    **{
        f"{kind}, {emit}, grace {g}": windowed(kind, emit, g)
        for kind in WINDOWS
        for emit in ("closed", "each", "round")
        for g in (0, 2)
    },
    "drop_duplicates": dropped(0),
    "drop_duplicates, late": dropped(LENGTH),
    "lives": Case(app_of(lambda app, read: read[0].process(Lives, name="p", value=hr.Json())), model=lives_model),
    "stateless": Case(
        app_of(
            lambda app, read: (
                read[0].filter(lambda r: r.value % 3 > 0).flat_map_values(lambda r: [r.value] * 2, value=hr.Long())
            )
        ),
        late_us=END_US,
    ),
    "merge": Case(app_of(lambda app, read: read[0].merge(read[1]), "ab"), "ab", END_US),
    "reduce": Case(
        app_of(
            lambda app, read: (
                read[0].group_by_key().reduce(lambda x, y: x * 3 + y, value=hr.Long(), store="s").to_stream(emit="each")
            )
        ),
        late_us=END_US,
    ),
    "to_table": Case(app_of(lambda app, read: read[0].to_table(store="s").to_stream()), late_us=END_US, final=True),
    "stream with table": Case(
        app_of(lambda app, read: read[1].left_join(read[0], lambda x, y: [x, y], value=hr.Json()), "ab", tables="a"),
        "ab",
        tables_first=True,
    ),
    "table with table": Case(
        app_of(
            lambda app, read: read[0].outer_join(read[1], lambda x, y: [x, y], value=hr.Json()).to_stream(), "ab", tables="ab"
        ),
        "ab",
        late_us=END_US,
        final=True,
    ),
    "windows behind a repartition": Case(
        app_of(
            lambda app, read: (
                read[0]
                .select_key(lambda r: r.key, key=hr.String())
                .repartition(hr.Repartitioned(name="moved", number_of_partitions=1))
                .group_by_key()
                .windowed_by(hr.Tumbling(us(LENGTH), grace=us(0)))
                .count(store="s")
                .to_stream(emit="closed")
                .map(lambda r: (f"{r.key.key} {r.key.start_us}", r.value), key=hr.String(), value=hr.Long())
            )
        )
    ),
}


# --- what is sent, and in how many rounds -----------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from(["x", "y"]),
        st.sampled_from([0, 0, 1, 2, LENGTH, LENGTH + 1, LENGTH + 2]),  # from the latest time so far
        st.sampled_from([0, 0, 1, 2, LENGTH]),  # how much it is late, where it may be
    ),
    max_size=14,
)
CUTS = st.lists(st.booleans(), min_size=14, max_size=14)


def sent_of(case: Case, steps: Sequence[tuple[str, str, int, int]]) -> list[Sent]:
    """In the order in which they come."""
    latest, found = 0, []
    for number, (name, key, step, late) in enumerate(steps):
        latest += step
        time_us = max(0, latest - min(late, case.late_us))
        found.append((case.inputs[case.inputs.find(name) if name in case.inputs else 0], key, number, time_us))
    return sorted(found, key=lambda record: (record[3], record[0])) if case.tables_first else found


def results(case: Case, sent: Sequence[Sent], cuts: Sequence[bool]) -> Results:
    with Driver(case.make()) as d:
        for (name, key, value, at), is_cut in zip(sent, [*cuts, *[False] * len(sent)], strict=False):
            d.send(name, key, value, at=at)
            if is_cut:
                d.run()
        d.run()
        for name in case.inputs:
            d.send(name, END_KEY, 0, at=END_US)
        d.run()
        return [(r.key, r.value, r.timestamp_us) for r in d.read("out") if r.key is not None and END_KEY not in r.key]


def comparable(case: Case, found: Results) -> Any:
    if case.final:
        last = {key: value for key, value, _ in found}
        return {key: value for key, value in last.items() if value is not None}
    return Counter((key, json.dumps(value, sort_keys=True), at) for key, value, at in found)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=max(4, settings().max_examples // 20))
@given(steps=STEPS, cuts=CUTS)
@example(steps=[("b", "x", 0, 0), ("a", "y", 4, 0), ("b", "y", 0, 0), ("a", "x", 0, 0)], cuts=[False, False, True, True] * 4)
def test_results_are_the_same_wherever_rounds_are_cut(
    name: str, steps: list[tuple[str, str, int, int]], cuts: list[bool]
) -> None:
    case = CASES[name]
    sent = sent_of(case, steps)
    whole = results(case, sent, [])
    expected = comparable(case, whole)
    for way in (cuts, [True] * len(sent)):
        assert comparable(case, results(case, sent, way)) == expected, way
    if case.model is not None:
        assert expected == comparable(case, case.model(sent))
