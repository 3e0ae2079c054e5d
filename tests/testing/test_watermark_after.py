"""What a round says of the next watermark: it is never above what the next round is given, or that round could miss state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver
from headrace.worker.task import TaskRun

SENT = st.tuples(st.sampled_from(["left", "right"]), st.sampled_from("abcd"), st.integers(0, 50))
ROUNDS = st.lists(st.tuples(st.lists(SENT, max_size=6), st.sampled_from([0, 0, 20, 90])), min_size=2, max_size=8)


def windows_of_two_streams(factor: int) -> hr.App:
    app = hr.App("after", elasticity_factor=factor, idle_timeout_s=60)
    left, right = (app.stream(name, key=hr.String(), value=hr.Long()) for name in ("left", "right"))
    within = {"within": "3 us", "grace": "1 us"}
    # its timers cause rounds in which all inputs are idle
    left.outer_join(right, lambda a, b: (a or 0) + (b or 0), value=hr.Long(), **within).to("pairs")
    other = left.select_key(lambda record: record.key + "!", key=hr.String()).group_by_key()
    other.windowed_by(hr.Tumbling("5 us", grace="2 us")).count(store="counts").to_stream().to("counts-of")
    return app


@pytest.mark.parametrize("factor", [1, 2])
@settings(max_examples=15)
@example(rounds=[([("left", "a", 50), ("right", "a", 10)], 90), ([], 0), ([("right", "a", 12)], 0), ([("right", "a", 13)], 0)])
@given(rounds=ROUNDS)
def test_the_next_watermark_is_not_below_what_was_said(factor: int, rounds: list[Any]) -> None:
    said: dict[tuple[str | None, str], int] = {}
    began, finish = TaskRun.begin, TaskRun.finish

    def begin(run: TaskRun) -> None:
        least = said.get((run.program.sub_topology, run.task))
        if least is not None:
            assert run.watermark_us is not None
            assert run.watermark_us >= least, f"{run.place}: {run.watermark_us}, the round before had said {least}"
        began(run)

    def finished(run: TaskRun, is_whole: bool = True) -> None:
        finish(run, is_whole)
        if (after_us := run.watermark_after_us) is not None:
            said[run.program.sub_topology, run.task] = after_us

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskRun, "begin", begin)
        patch.setattr(TaskRun, "finish", finished)
        with Driver(windows_of_two_streams(factor)) as d:
            for sent, idle_s in rounds:
                for stream, key, at in sent:
                    d.send(stream, key, at, at=at)
                d.run()
                if idle_s:
                    d.advance(f"{idle_s} seconds")
    assert factor == 1 or not said


def test_what_begins_and_expires_in_a_round_is_not_stored() -> None:
    app = hr.App("passing")
    rows = app.stream("in", key=hr.String(), value=hr.Long())
    for name, table in {
        "counts": rows.group_by_key().windowed_by(hr.Tumbling("5 us", grace="0 us")).count(store="counts"),
        "sums": rows.group_by_key().windowed_by(hr.Tumbling("5 us", grace="0 us")).reduce(lambda a, b: a + b, store="sums"),
    }.items():
        table.to_stream(emit="each").to(f"{name}-out")
    with Driver(app) as d:
        for at in range(100):
            d.send("in", "a", 1, at=at)
        d.run()
        assert d.store("counts").all() == d.store("sums").all() == {("a", 95): 5}
        assert len(d.read("counts-out")) == len(d.read("sums-out")) == 100
        d.send("in", "a", 1, at=99)
        d.run()
        assert d.store("counts").all() == d.store("sums").all() == {("a", 95): 6}
