"""Any operator over any sequence of elasticity factors gives what it gives without: outputs, state, and nothing twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.client.state_reader import entries_of
from headrace.core.topology.sub_topologies import stores_of
from headrace.model.topology import SourceKind
from headrace.testing import Driver

HOUR_US = 3_600_000_000
START_US = 1_700_000_000_000_000 // HOUR_US * HOUR_US
KEYS = [f"k{number}" for number in range(24)]
WAYS = ((1, 8, 1), (1, 2, 8, 4, 1), (4, 1, 16, 2), (8, 2, 8, 2), (2, 2, 1, 64, 1))
TEXT, JSON = hr.String(), hr.Json()
OF_TIME = ("~timers.event", "~timers.wall", "~expiry")


def at(hours: float) -> int:
    return START_US + round(hours * HOUR_US)


# --- applications: each has an input "in", some others beside it, and gives its results to "out" -----------------------------


def counted(app: hr.App) -> None:
    app.stream("in", key=TEXT, value=JSON).group_by_key().count(store="s").to_stream(emit="each").to("out", value=hr.Long())


def final_windows(app: hr.App) -> None:
    rows = app.stream("in", key=TEXT, value=JSON)
    hours = rows.group_by_key().windowed_by(hr.Tumbling("1 hour", grace="0 seconds"))
    counts = hours.aggregate(n=hr.count(), last=hr.max("timestamp"), store="s")
    counts.suppress(hr.until_window_closes()).to_stream().to("out", value=JSON)


def sessions(app: hr.App) -> None:
    rows = app.stream("in", key=TEXT, value=JSON)
    one = rows.group_by_key().windowed_by(hr.Session("3 hours", grace="0 seconds"))
    one.aggregate(n=hr.count(), store="s").suppress(hr.until_window_closes()).to_stream().to("out", value=JSON)


def both(left: Any, right: Any) -> Any:
    return {"left": left and left["n"], "right": right and right["n"]}


def joined(how: str) -> Callable[[hr.App], None]:
    def add(app: hr.App) -> None:
        left = app.stream("in", key=TEXT, value=JSON)
        right = app.stream("beside", key=TEXT, value=JSON)
        getattr(left, how)(right, both, within="2 hours", grace="0 seconds", store="s", value=JSON).to("out")

    return add


def with_table(app: hr.App) -> None:
    table = app.table("beside", key=TEXT, value=JSON, store="s")
    app.stream("in", key=TEXT, value=JSON).left_join(table, both, value=JSON).to("out")


def with_global_table(app: hr.App) -> None:
    table = app.global_table("beside", key=TEXT, value=JSON, store="s")
    rows = app.stream("in", key=TEXT, value=JSON)
    rows.left_join(table, both, key=lambda record: f"k{record.value['n'] % len(KEYS)}", value=JSON).to("out")


def distinct(app: hr.App) -> None:
    rows = app.stream("in", key=TEXT, value=JSON)
    rows.drop_duplicates(lambda record: str(record.value["n"] % 3), within="5 hours", store="s").to("out")


class Expiring(hr.Processor[Any, Any, Any, Any]):
    """Says how often a key came within four hours; the store forgets by itself."""

    stores: ClassVar = [hr.KeyValueStore("s", value=hr.Long(), ttl="4 hours")]

    def process(self, record: Any) -> None:
        store = self.context.store("s")
        store.put((store.get() or 0) + 1)
        self.context.forward(value={"n": store.get()})


def expiring(app: hr.App) -> None:
    app.stream("in", key=TEXT, value=JSON).process(Expiring, value=JSON).to("out")


class Alarm(hr.Processor[Any, Any, Any, Any]):
    """Sets a timer of each clock with most records, replaces them with others and cancels one with the rest."""

    stores: ClassVar = [hr.KeyValueStore("s", value=hr.Long())]

    def process(self, record: Any) -> None:
        number, context = record.value["n"], self.context
        context.store("s").put(number)
        if number % 5 == 4:
            context.cancel_timer("by time")
        else:
            context.timer("by time", at=record.timestamp_us + (1 + number % 7) * HOUR_US // 2)
        if number % 7 != 6:
            context.timer("by clock", after="90 minutes", clock="wall")

    def on_timer(self, timer: Any) -> None:
        self.context.forward(key=timer.key, value={"timer": timer.name, "n": self.context.store("s").get()})


def alarms(app: hr.App) -> None:
    app.stream("in", key=TEXT, value=JSON).process(Alarm, value=JSON).to("out")


APPS: Mapping[str, Callable[[hr.App], None]] = {
    "count": counted,
    "final windows": final_windows,
    "sessions": sessions,
    "join": joined("join"),
    "left join": joined("left_join"),
    "outer join": joined("outer_join"),
    "table": with_table,
    "global table": with_global_table,
    "distinct": distinct,
    "expiring": expiring,
    "timers": alarms,
}


def app_of(add: Callable[[hr.App], None], factor: int = 1) -> hr.App:
    app = hr.App("through", elasticity_factor=factor)
    add(app)
    return app


def held_by(driver: Driver) -> dict[str, dict[bytes, bytes]]:
    """All entries of all tasks, by database: of stores, and of what is due."""
    (runner,) = driver._opened.runners
    databases = {place for node in runner.program.nodes for place in (store.kept_in for store in stores_of(node))}
    heads = [checkpoint.head for checkpoint in runner.checkpoints.values()]
    files = driver._held.preparer.files
    return {name: dict(entries_of(heads, files, name)) for name in (*sorted(databases), *OF_TIME)}


def outcome(app: hr.App, factors: Sequence[int], seed: int, partitions: int = 1) -> tuple[dict[Any, list[Any]], Any]:
    """Per key what an application has given, in order, and its store, over phases of one seed; between two phases the factor
    changes. Input is in order of time, with silences in which windows and entries end."""
    draw = Random(seed)
    with Driver(app, start=START_US, partitions=partitions, overrides=["max_records_per_round=17"]) as driver:
        streams = [stream for stream in ("in", "beside") if stream in app.topology().inputs]
        hour, number = 0.0, 0
        for factor in factors:
            if factor != scale_of(driver):
                driver.elasticity(factor)
            for _ in range(draw.randrange(1, 4)):
                for _ in range(draw.randrange(5, 50)):
                    key, stream = draw.choice(KEYS), draw.choice(streams)
                    hour, number = hour + draw.choice([0.0, 0.05, 0.2]), number + 1
                    is_deletion = stream == "beside" and number % 11 == 0 and is_table(app)
                    value = None if is_deletion else {"n": number}
                    driver.send(stream, key, value, at=at(hour))
                driver.run()
                driver.advance("1 hour")
                hour += draw.choice([0.0, 0.0, 1.0, 6.0])
        for _ in range(3):  # what is open at the end ends
            hour += 12.0
            for stream in streams:
                for key in KEYS[:2]:
                    driver.send(stream, key, {"n": 0}, at=at(hour))
            driver.run()
            driver.advance("6 hours")
        driver.run()
        given: dict[Any, list[Any]] = defaultdict(list)
        for record in driver.read("out", from_start=True):
            given[record.key].append((record.value, record.timestamp_us))
        held = held_by(driver)
        assert driver.counters.get("late_records", 0) == 0
        return dict(given), held


def is_table(app: hr.App) -> bool:
    return any(source.kind is SourceKind.TABLE for source in app.topology().sources)


def scale_of(driver: Driver) -> int:
    return driver._opened.plan.model.sub_topology(None).elasticity_factor


@pytest.mark.parametrize("factors", WAYS, ids=lambda factors: "-".join(map(str, factors)))
@pytest.mark.parametrize("kind", APPS)
def test_every_operator_gives_the_same_through_changes_of_the_factor(kind: str, factors: Sequence[int]) -> None:
    seed = 100 * tuple(APPS).index(kind) + WAYS.index(tuple(factors))
    expected, held = outcome(app_of(APPS[kind]), [1] * len(factors), seed)
    given, holds = outcome(app_of(APPS[kind], factors[0]), factors, seed)
    assert sum(map(len, expected.values())) > 20
    assert given == expected
    assert holds == held
