"""`Driver.startpoint`: a test rewinds its own application, or has it skip."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.client.startpoint_previews import startpoint_of
from headrace.client.startpoints import Startpoints
from headrace.core.rewind.previews import Move
from headrace.driver.maintenance.state_versions import versions_of
from headrace.model.durations import time_us
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import Repartition
from headrace.testing import Driver
from headrace.testing.driver import START


def words() -> Any:
    app = hr.App("words")
    stream = app.stream("words", key=hr.String(), value=hr.String())
    stream.to("seen")
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


def kept(driver: Driver) -> list[tuple[int, int]]:
    """The versions on record: the position of each, and the minute of the driver's first day in which it was kept."""
    on_record = versions_of(driver._system.metadata_store("words"))
    begun_us = time_us(START, "start")
    return [
        (sum(version.checkpoint.positions.values()), (version.kept_us - begun_us) // 60_000_000)
        for versions in on_record.values()
        for version in versions
    ]


def work(driver: Driver, runs: int, then: str | None = None) -> None:
    for _ in range(runs):
        driver.send("words", "a", "x")
        driver.run()
        if then is not None:
            driver.advance(then)


def rewind(driver: Driver, offset: int) -> int:
    """Read on from `offset`, with the state taken back; how many records were read again."""
    driver.read("seen")
    driver.startpoint("words", offset, state="rewind")
    driver.run()
    return len(driver.read("seen"))


def test_every_run_keeps_a_version_where_there_is_no_interval_and_state_goes_back_to_the_newest() -> None:
    with Driver(words(), overrides=["state_version_interval_s=0", "keep_state_versions=9"]) as d:
        work(d, 3)
        d.send("words", "b", "one run")
        d.send("words", "a", "with two records")
        d.run()
        assert kept(d) == [(0, 0), (1, 0), (2, 0), (3, 0), (5, 0)]
        assert d.run() == 0
        assert len(kept(d)) == 5, "a run that does nothing has come to nothing new"
        assert rewind(d, 4) == 2, "from the version at 3, which is the newest that is not after 4"
        assert d.store("counts").all() == {"a": 4, "b": 1}
        assert rewind(d, 1) == 4
        assert d.store("counts").all() == {"a": 4, "b": 1}


def test_versions_are_as_far_apart_as_is_asked_for_by_the_clock_of_the_driver() -> None:
    with Driver(words(), overrides=["state_version_interval_s=120"]) as d:
        work(d, 6, then="1 minute")
        assert kept(d) == [(0, 0), (3, 2), (5, 4)]
        assert rewind(d, 4) == 3
        assert d.store("counts").get("a") == 6


def test_no_more_and_no_older_versions_are_kept_than_is_asked_for() -> None:
    newest = ["state_version_interval_s=0", "keep_state_versions=3", "keep_state_versions_s=0"]
    with Driver(words(), overrides=newest) as d:
        work(d, 5)
        assert kept(d) == [(4, 0), (5, 0)]
    young = ["state_version_interval_s=0", "keep_state_versions=9", "keep_state_versions_s=120"]
    with Driver(words(), overrides=young) as d:
        work(d, 5, then="1 minute")
        assert kept(d) == [(3, 2), (4, 3), (5, 4)]
    with Driver(words(), overrides=["state_version_interval_s=0", "keep_state_versions=1"]) as d:
        work(d, 2)
        assert kept(d) == []


def test_what_time_has_made_due_since_the_last_run_is_there_to_go_back_to() -> None:
    with Driver(words()) as d:
        work(d, 2)
        assert kept(d) == [(0, 0)], "it is too soon for another one"
        d.advance("1 hour")
        assert rewind(d, 2) == 0
        assert kept(d) == [(0, 0), (2, 60)]
        assert d.store("counts").get("a") == 2


def test_versions_stay_over_a_restart(tmp_path: Path) -> None:
    overrides = ["state_version_interval_s=0", "keep_state_versions=9"]
    with Driver(words(), directory=tmp_path, overrides=overrides) as d:
        work(d, 3)
        before = kept(d)
    shutil.rmtree(tmp_path / "stores")  # state is made anew from the files of the version alone
    with Driver(words(), directory=tmp_path, overrides=overrides) as d:
        assert kept(d) == before == [(0, 0), (1, 0), (2, 0), (3, 0)]
        assert rewind(d, 2) == 1
        work(d, 1)
        assert d.store("counts").get("a") == 4
        assert kept(d)[-1] == (4, 0)


def test_a_run_keeps_versions_and_purges_nothing_that_a_test_may_read() -> None:
    app = hr.App("words")
    stream = app.stream("words", key=hr.String(), value=hr.String())
    stream.select_key(lambda r: r.value, key=hr.String()).repartition(name="by-value").group_by_key().count(store="counts")
    with Driver(app, overrides=["state_version_interval_s=0", "keep_state_versions=1"]) as d:
        work(d, 3)
        (internal,) = (node.stream for node in app.topology().nodes if isinstance(node, Repartition))
        assert [record.key for record in d.read(internal)] == ["x", "x", "x"]


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
        before = {task: dict(one.positions) for rounds in d._prepared.runners for task, one in rounds.checkpoints.items()}
        with Startpoints("met", d._config(), app.topology(), d._system) as points:
            preview = points.preview("left", startpoint_of(startpoint, d.now_us), partition=partition, state=state)
            points.write(preview)
        d._replan()
        after = {task: dict(one.positions) for rounds in d._prepared.runners for task, one in rounds.checkpoints.items()}
        moved_beside = {move.ssp.stream for move in preview.moves} == {"left", "right"}
        assert moved_beside == (state == "rewind" and startpoint != "latest")
        for move in preview.moves:
            assert move.task is not None
            assert before[move.task][move.ssp] == move.before
            before[move.task][move.ssp] = move.after
        assert after == before


def by_value(source_has_state: bool) -> Any:
    """A count behind a repartition stream, and another behind a second one."""
    app = hr.App("words")
    stream = app.stream("words", key=hr.String(), value=hr.String())
    if source_has_state:
        stream.group_by_key().count(store="by-key")
    values = stream.select_key(lambda r: r.value, key=hr.String()).repartition(name="by-value")
    values.group_by_key().count(store="values")
    lengths = values.select_key(lambda r: str(len(r.key)), key=hr.String()).repartition(name="by-length")
    lengths.group_by_key().count(store="lengths")
    lengths.to("lengths")
    return app


def positions(driver: Driver) -> dict[TaskName, dict[SSP, int]]:
    return {task: dict(one.positions) for rounds in driver._prepared.runners for task, one in rounds.checkpoints.items()}


def written(driver: Driver) -> list[int]:
    """How many records each sub-topology of `by_value` has ever passed on."""
    names = ["words-by-value-repartition", "words-by-length-repartition", "lengths"]
    return [sum(driver._system.end_offsets(name).values()) for name in names]


def read_again(moves: Sequence[Move]) -> list[int]:
    found: Counter[str | None] = Counter()
    for move in moves:
        assert move.task is not None
        found[move.task.sub_topology] += move.read_again
    return [found[name] for name in (None, "by-value", "by-length")]


@pytest.mark.parametrize("source_has_state", [False, True])
@pytest.mark.parametrize(("startpoint", "partition"), [("earliest", None), ("earliest", 1), (5, 1), (7, 0), ("latest", 0)])
def test_what_is_behind_repartition_streams_begins_where_the_preview_says(
    startpoint: Any, partition: int | None, source_has_state: bool
) -> None:
    app = by_value(source_has_state)
    rounds_of = ["max_records_per_round=3", "keep_state_versions=9"]  # so that versions do not stand where cuts do
    with Driver(app, partitions=2, overrides=["state_version_interval_s=0", *rounds_of]) as d:
        for _ in range(4):
            for number in range(4):
                d.send("words", f"key-{number}", "word" * (number + 1), partition=number % 2)
            d.run()
        counts = {name: d.store(name).all() for name in ("values", "lengths")}
        before = positions(d)
        with Startpoints("words", d._config(), app.topology(), d._system) as points:
            preview = points.preview("words", startpoint_of(startpoint, d.now_us), partition=partition, state="rewind")
            points.write(preview)
        d._replan()
        for move in preview.moves:
            assert move.task is not None
            assert before[move.task][move.ssp] == move.before
            before[move.task][move.ssp] = move.after
        assert positions(d) == before
        expected = [preview.skipped_ranges] if preview.skipped_ranges else []
        assert [dict(rewind.skipped_ranges) for rewind in d._prepared.plan.rewinds] == expected
        assert bool(preview.skipped_ranges) == (startpoint != "latest")
        assert startpoint != 5 or read_again(preview.moves)[2], "a version behind stands before where the cut does"
        before_it = written(d)
        d.run()
        assert {name: d.store(name).all() for name in counts} == counts, "each record is counted once, all the same"
        passed_on = 0
        for again, was, now in zip(read_again(preview.moves), before_it, written(d), strict=True):
            assert now - was == again + passed_on, "each passes on what it reads: what is read again, and what is new"
            passed_on = now - was


def test_a_preview_says_that_what_it_takes_the_place_of_is_undone() -> None:
    with Driver(words(), overrides=["state_version_interval_s=0"]) as d:
        work(d, 3)
        (id_,) = d.startpoint("words", 1, state="rewind")
        d._replan()
        assert [list(one.values()) for one in positions(d).values()] == [[1]]
        with Startpoints("words", d._config(), d.app.topology(), d._system) as points:
            (note,) = points.preview("words", 2).notes
        assert note == (
            f"takes the place of startpoint {id_} (offset 1), which is pending: what went back for it is put where it was "
            "first, if nothing was committed there since"
        )
        d.startpoint("words", "latest")
        d._replan()
        assert [list(one.values()) for one in positions(d).values()] == [[3]]
        assert d.store("counts").get("a") == 3


def test_what_is_going_back_does_not_skip_what_is_yet_to_come_again() -> None:
    with Driver(words(), overrides=["state_version_interval_s=0", "keep_state_versions=9", "max_records_per_round=1"]) as d:
        work(d, 6)
        d.startpoint("words", 1, state="rewind")
        d._replan()
        (rounds,) = d._prepared.runners
        planned = d._scheduler.next(rounds, d.now_us / 1e6, d.now_us)
        assert planned is not None
        d._run_round(rounds, planned)
        with Startpoints("words", d._config(), d.app.topology(), d._system) as points:
            preview = points.preview("words", 4, state="rewind")
        assert [(move.before, move.after, move.skipped) for move in preview.moves] == [(2, 2, 0)]
        assert preview.notes == (
            "requested was offset 4 of words/0: an earlier rewind already reads that again, and nothing is skipped",
        )
        d.startpoint("words", 4, state="rewind")
        d._replan()
        assert [list(one.values()) for one in positions(d).values()] == [[2]]
        d.run()
        assert d.store("counts").get("a") == 6


def test_one_rewind_after_another_leaves_what_the_first_passes_over() -> None:
    """At one moment of the driver's clock."""
    with Driver(by_value(source_has_state=False), partitions=2, overrides=["state_version_interval_s=0"]) as d:
        for _ in range(2):
            for number in range(4):
                d.send("words", f"key-{number}", "word" * (number + 1), partition=number % 2)
            d.run()
        counts = {name: d.store(name).all() for name in ("values", "lengths")}
        for _ in range(2):
            d.startpoint("words", 2, state="rewind")
            d._replan()
            for rounds in d._prepared.runners[:2]:  # what is behind the second repartition stream has not gone on
                planned = d._scheduler.next(rounds, d.now_us / 1e6, d.now_us)
                assert planned is not None
                d._run_round(rounds, planned)
        assert len({rewind.key for rewind in d._prepared.plan.rewinds}) == 2
        d.run()
        assert {name: d.store(name).all() for name in counts} == counts


@pytest.mark.parametrize("keep_state_versions", [1, 5])
def test_one_that_takes_the_place_of_another_undoes_it_however_few_versions_are_kept(keep_state_versions: int) -> None:
    kept_of = [f"keep_state_versions={keep_state_versions}", "state_version_interval_s=0"]
    with Driver(by_value(source_has_state=False), partitions=2, overrides=kept_of) as d:
        for number in range(4):
            d.send("words", f"key-{number}", "word" * (number + 1), partition=number % 2)
        d.run()
        counts = {name: d.store(name).all() for name in ("values", "lengths")}
        for _ in range(2):
            d.startpoint("words", "earliest", 0, state="rewind")
            d._replan()
            d._prepared.maintenance.keep()
        assert len(d._prepared.plan.rewinds) == 1
        d.run()
        assert {name: d.store(name).all() for name in counts} == counts


ANYTHING: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 5),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=4),
    st.datetimes(timezones=st.sampled_from([None, UTC])),
    st.timedeltas(),
    st.sampled_from(["earliest", "latest", "bootstrap", b"1", (), [], {}, 1j, object(), *hr.PositionType]),
)
TYPED = st.builds(hr.Startpoint, st.just(hr.PositionType.SPECIFIC_OFFSET), st.integers(0, 2**63 - 1)) | st.builds(
    hr.Startpoint, st.just(hr.PositionType.TIMESTAMP), st.integers(-(2**63), 2**63 - 1)
)


def test_whatever_is_given_is_refused_or_applied_and_never_unreadable(tmp_path: Path) -> None:
    """By the driver and by `hr.startpoints`: no id without a request that a job can read."""
    app = words()
    with Driver(app, directory=tmp_path) as d:
        d.send("words", "a", "x")
        d.run()

    accepted = []
    arguments = st.one_of(
        st.fixed_dictionaries({"startpoint": ANYTHING | TYPED}),
        st.fixed_dictionaries({"startpoint": st.just("earliest"), "partition": ANYTHING}),
        st.fixed_dictionaries({"startpoint": st.just(0), "task": ANYTHING | st.just("Partition_0")}),
        st.fixed_dictionaries({"startpoint": st.just(1), "state": ANYTHING | st.just("keep")}),
    )

    @settings(max_examples=200, deadline=None)
    @given(arguments)
    def given_anything(arguments: dict[str, Any]) -> None:
        with hr.startpoints("words", f"log:{tmp_path / 'log'}") as points:
            try:
                ids = points.set("words", arguments.pop("startpoint"), **arguments)
            except hr.HeadraceError:
                return
            known = {one.entry.id: one for one in points.list()}
            assert points.unreadable() == {}
            assert all(known[id_].status is None for id_ in ids) and len(ids) == 1
            points.delete(*ids)
            accepted.append(ids)

    given_anything()
    assert len(accepted) > 5


@pytest.mark.parametrize(
    ("start", "read"),
    [
        (hr.Startpoint(hr.PositionType.SPECIFIC_OFFSET, 7), [7, 8, 9]),
        (7, [7, 8, 9]),
        (hr.Startpoint(hr.PositionType.TIMESTAMP, 5_000_000), [5, 6, 7, 8, 9]),
        ("1970-01-01T00:00:08Z", [8, 9]),
        (hr.Startpoint(hr.PositionType.EARLIEST), list(range(10))),
        (hr.Startpoint(hr.PositionType.BOOTSTRAP), list(range(10))),
        (hr.Startpoint(hr.PositionType.LATEST), list(range(10))),  # of a driver that is open, all comes later
    ],
)
def test_a_job_begins_where_its_stream_is_to_be_read_from(start: Any, read: list[int]) -> None:
    app = hr.App("begins")
    app.stream("in", key=hr.String(), value=hr.Long(), start=start).to("out")
    with Driver(app) as d:
        for number in range(10):
            d.send("in", "k", number, at=number * 1_000_000)
        d.run()
        d.send("in", "k", 10, at=0)
        d.run()
        assert [r.value for r in d.read("out")] == [*read, 10]
