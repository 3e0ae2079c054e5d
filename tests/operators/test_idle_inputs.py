"""Windows close once all inputs are idle, at one time in whichever order they became so."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

SECOND = 1_000_000
LAST_S = {"a": 9, "b": 25, "c": 18}  # the time of each input's last record
IDLE = "31 seconds"  # a little more than `idle_timeout_s`


def kept_apart(**options: Any) -> hr.App:
    """Three inputs, merged into one task, with final results of windows of 10 s."""
    app = hr.App("idle-inputs", **options)
    streams = [app.stream(name, key=hr.String(), value=hr.Json()) for name in LAST_S]
    merged = streams[0].merge(streams[1]).merge(streams[2])
    counts = merged.group_by_key().windowed_by(hr.Tumbling("10 seconds", grace="0 seconds")).count(store="counts")
    counts.suppress(hr.until_window_closes()).to_stream().to("out", key=hr.Windowed(hr.String()), value=hr.Json())
    return app


def closed(d: Driver) -> list[tuple[int, int]]:
    return [(r.key.start_us // SECOND, r.value) for r in d.read("out")]


@pytest.mark.parametrize("order", list(permutations(LAST_S)))
def test_windows_close_in_whichever_order_inputs_become_idle(order: tuple[str, ...]) -> None:
    with Driver(kept_apart()) as d:
        found = []
        for quiet in range(len(order)):
            for name in order[quiet:]:  # those before have had their last record, longer and longer ago
                d.send(name, "k", 1, at=LAST_S[name] * SECOND)
            d.run()
            d.advance(IDLE)
            found += closed(d)
        d.run()
        found += closed(d)
        # The watermark ends at 25 s, the last record of all: so the windows up to 20 s have closed, each once.
        assert [start for start, _ in found] == [0, 10], found


def test_nothing_closes_while_an_input_is_behind() -> None:
    with Driver(kept_apart()) as d:
        for _ in range(3):
            d.send("a", "k", 1, at=LAST_S["a"] * SECOND)
            for name, last_s in LAST_S.items():
                d.send(name, "k", 1, at=last_s * SECOND)
            d.run()
            d.advance("29 seconds")
            d.run()
            assert closed(d) == []


def test_a_job_that_reads_back_what_it_writes_gives_its_last_windows() -> None:
    app = hr.App("reads-back")
    events = app.stream("in", key=hr.String(), value=hr.Long())
    windows = events.group_by_key().windowed_by(hr.Tumbling("10 seconds", grace="0 seconds")).count(store="counts")
    windows.suppress(hr.until_window_closes()).to_stream().map(
        lambda r: (r.key.key, r.value), key=hr.String(), value=hr.Long()
    ).to("last")
    last = app.table("last", key=hr.String(), value=hr.Long(), store="last-counts")
    events.left_join(last, lambda now, before: now, value=hr.Long()).to("seen")
    with Driver(app) as d:
        d.send("last", "k", 0, at=0)
        for second in (1, 12, 23, 34):
            d.send("in", "k", 1, at=second * SECOND)
        for wait in ("1 second", "1 second", IDLE, IDLE, IDLE):
            d.run()
            d.advance(wait)
        assert [r.timestamp_us // SECOND for r in d.read("last")] == [0, 1, 12, 23]


def test_a_repartition_stream_is_as_far_as_its_idle_writers() -> None:
    app = hr.App("behind")
    events = app.stream("in", key=hr.String(), value=hr.Json())
    one = hr.Repartitioned(name="moved", number_of_partitions=1)
    moved = events.select_key(lambda r: r.value, key=hr.String()).repartition(one)
    windows = moved.group_by_key().windowed_by(hr.Tumbling("10 seconds", grace="0 seconds")).count(store="counts")
    windows.suppress(hr.until_window_closes()).to_stream().to("out", key=hr.Windowed(hr.String()), value=hr.Json())
    for order in permutations((0, 1)):
        with Driver(app, partitions=2) as d:
            for quiet in range(2):
                for partition in order[quiet:]:
                    d.send("in", f"{partition}", "k", at=(5 + 20 * partition) * SECOND, partition=partition)
                d.run()
                d.advance(IDLE)
            found = closed(d)
            for _ in range(2):
                d.run()
                d.advance(IDLE)
                found += closed(d)
            assert [start for start, _ in found] == [0], (order, found)
