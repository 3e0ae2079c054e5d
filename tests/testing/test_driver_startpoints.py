"""`Driver.startpoint`: a test rewinds its own application, or has it skip."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver
from headrace.wiring.startpoint_previews import startpoint_of
from headrace.wiring.startpoints import Startpoints


def words() -> Any:
    app = hr.App("words")
    stream = app.stream("words", key=hr.String(), value=hr.String())
    stream.group_by_key().count(store="counts").to_stream().to("counts")
    return app


def counted(driver: Driver) -> dict[str, int]:
    return {record.key: record.value for record in driver.read("counts")}


def test_what_is_read_again_counts_again_from_the_next_run_on() -> None:
    with Driver(words()) as d:
        for key in ("a", "b", "b"):
            d.send("words", key, "x")
        d.run()
        assert counted(d) == {"a": 1, "b": 2}
        (id_,) = d.startpoint("words", "earliest")
        assert id_
        assert counted(d) == {}
        assert d.run() == 1
        assert counted(d) == {"a": 2, "b": 4}
        assert d.run() == 0


def test_what_is_skipped_never_counts() -> None:
    with Driver(words()) as d:
        d.send("words", "a", "x")
        d.run()
        d.send("words", "a", "skipped")
        d.startpoint("words", "latest")
        d.send("words", "b", "behind the end as it was: it is at the next run")
        d.run()
        assert counted(d) == {"a": 1}
        d.send("words", "c", "x")
        d.run()
        assert counted(d) == {"c": 1}


@pytest.mark.parametrize(
    ("startpoint", "again"),
    [
        (2, 1),
        (timedelta(minutes=90), 1),
        ("2026-01-01T00:00:00Z", 3),
        ("2026-01-01T01:00:00Z", 2),
        (hr.Startpoint(hr.PositionType.LATEST), 0),
    ],
)
def test_positions_are_given_as_everywhere(startpoint: Any, again: int) -> None:
    with Driver(words(), start="2026-01-01T00:00:00Z") as d:
        for _ in range(3):
            d.send("words", "a", "x")
            d.advance("1 hour")
        d.run()
        d.read("counts")
        d.startpoint("words", startpoint)
        d.run()
        assert counted(d) == ({"a": 3 + again} if again else {})


def test_one_partition_is_set_alone() -> None:
    with Driver(words(), partitions=2) as d:
        for partition in (0, 1):
            d.send("words", f"key-{partition}", "x", partition=partition)
        d.run()
        d.read("counts")
        d.startpoint("words", "earliest", partition=1)
        d.run()
        assert counted(d) == {"key-1": 2}


@pytest.mark.parametrize(
    ("stream", "startpoint", "options", "error"),
    [
        ("word", "latest", {}, hr.StreamNotFoundError),
        ("words", 2, {}, hr.OffsetOutOfRangeError),
        ("words", "latest", {"partition": 1}, hr.ConfigError),
        ("words", "latest", {"task": "Partition_1"}, hr.ConfigError),
        ("words", "soon", {}, hr.ConfigError),
    ],
)
def test_what_cannot_be_is_refused_at_once(stream: str, startpoint: Any, options: dict[str, Any], error: Any) -> None:
    with Driver(words()) as d:
        d.send("words", "a", "x")
        with pytest.raises(error):
            d.startpoint(stream, startpoint, **options)
        d.run()
        assert counted(d) == {"a": 1}


def test_a_driver_that_is_not_open_says_so() -> None:
    with pytest.raises(hr.RoundFailedError, match="not open"):
        Driver(words()).startpoint("words", "latest")


def test_an_expansion_and_a_startpoint_come_together() -> None:
    with Driver(words(), partitions=2) as d:
        d.send("words", "a", "x")
        d.run()
        d.read("counts")
        d.startpoint("words", "earliest")
        d.expand("words", 4)
        d.run()
        assert counted(d) == {"a": 2}


def test_state_goes_back_with_the_position_where_that_is_asked_for() -> None:
    with Driver(words(), overrides=["state_version_interval_s=0"]) as d:
        for _ in range(3):
            d.send("words", "a", "x")
            d.run()
        assert counted(d) == {"a": 3}
        d.startpoint("words", "earliest", state="rewind")
        d.run()
        assert (counted(d), d.store("counts").get("a")) == ({"a": 3}, 3)


@pytest.mark.parametrize("state", ["keep", "rewind"])
@pytest.mark.parametrize("startpoint", ["earliest", "latest", "bootstrap", 1, timedelta(minutes=90)])
@pytest.mark.parametrize("partition", [None, 1])
def test_a_plan_begins_where_the_preview_says(startpoint: Any, state: str, partition: int | None) -> None:
    app = hr.App("met")
    left, right = (app.stream(name, key=hr.String(), value=hr.String()) for name in ("left", "right"))
    left.join(right, lambda a, b: a + b, within="1 day", value=hr.String(), store="met").to("out")
    with Driver(app, partitions=2, overrides=["state_version_interval_s=0"]) as d:
        for _ in range(3):
            for number in range(2):
                for stream in ("left", "right"):
                    d.send(stream, f"key-{number}", "x", partition=number)
            d.run()
            d.advance("1 hour")
        before = {task: dict(one.positions) for rounds in d._made.rounds for task, one in rounds.checkpoints.items()}
        with Startpoints("met", d._config(), app.topology(), d._system) as points:
            preview = points.preview("left", startpoint_of(startpoint, d.now_us), partition=partition, state=state)
            points.write(preview)
        d._plan_anew()
        after = {task: dict(one.positions) for rounds in d._made.rounds for task, one in rounds.checkpoints.items()}
        moved_beside = {move.ssp.stream for move in preview.moves} == {"left", "right"}
        assert moved_beside == (state == "rewind" and startpoint != "latest")
        for move in preview.moves:
            assert move.task is not None
            assert before[move.task][move.ssp] == move.before
            before[move.task][move.ssp] = move.after
        assert after == before
