"""Edits that give tasks other names or inputs: positions follow the partitions, or the edit is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

SERDES: dict[str, Any] = {"key": hr.String(), "value": hr.Long()}
HOUR = 3_600_000_000
Edit = Callable[[hr.App], object]


class OneTask(hr.SystemStreamPartitionGrouper):
    def group(self, previous_assignment: Any, ssps: Iterable[hr.SystemStreamPartition]) -> Any:
        return {hr.TaskName.parse("Partition_0"): frozenset(ssps)}


def app_of(make: Edit, **config: Any) -> hr.App:
    app = hr.App("edited", **config)
    make(app)
    return app


def run(app: hr.App, directory: Path, sent: Sequence[tuple[str, str, int]] = (), output: str = "out") -> list[int]:
    """Send (stream, key, value), run, and give the values that this run wrote to `output`, sorted."""
    with Driver(app, directory=directory, partitions=3) as d:
        d.read(output)
        for stream, key, value in sent:
            d.send(stream, key, value)
        d.run()
        return sorted(record.value for record in d.read(output, value=hr.Long()))


def six(start: int, stream: str = "in") -> list[tuple[str, str, int]]:
    return [(stream, f"k{number % 6}", number) for number in range(start, start + 6)]


def plain(app: hr.App) -> None:
    app.stream("in", **SERDES).to("out")


def plain_from_the_end(app: hr.App) -> None:
    app.stream("in", start="latest", **SERDES).to("out")


def counted(app: hr.App) -> None:
    app.stream("in", **SERDES).group_by_key().count(store="c").to("out")


# --- other tasks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "groupers",
    [
        (None, "system_stream_partition"),
        ("system_stream_partition", "partition"),
        (OneTask, None),
        (None, OneTask),
        ("all_ssps_to_every_task", None),
    ],
    ids=["ssp", "partition", "from one task", "to one task", "from all"],
)
@pytest.mark.parametrize("make", [plain, plain_from_the_end])
def test_without_state_positions_follow_the_partitions_to_other_tasks(
    tmp_path: Path, groupers: tuple[Any, Any], make: Edit
) -> None:
    before, after = groupers
    run(app_of(make, ssp_grouper=before), tmp_path, six(0))
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:  # while the job is down
        log.produce("in", [("k", 6), ("l", 7)], key=hr.String(), value=hr.Long())
    assert run(app_of(make, ssp_grouper=after), tmp_path, [("in", "m", 8)]) == [6, 7, 8]


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, "system_stream_partition"), (None, OneTask)],
    ids=["other names", "joined"],
)
def test_with_state_other_tasks_are_refused(tmp_path: Path, before: Any, after: Any) -> None:
    run(app_of(counted, ssp_grouper=before), tmp_path, six(0))
    words = r"task Partition_\d has state, and partition \d of stream 'in'"
    with pytest.raises(hr.IncompatibleChangeError, match=words) as refused:
        Driver(app_of(counted, ssp_grouper=after), directory=tmp_path).open()
    assert "ssp_grouper" in str(refused.value)
    assert run(app_of(counted, ssp_grouper=before), tmp_path, six(6)) == [2] * 6, "the refused start has changed nothing"


def test_a_grouper_that_makes_the_same_tasks_is_no_change(tmp_path: Path) -> None:
    run(app_of(counted, ssp_grouper="partition"), tmp_path, six(0))
    assert run(app_of(counted, ssp_grouper=hr.GroupByPartition), tmp_path, six(6)) == [2] * 6


def test_with_state_tasks_stay_as_they_are_where_a_grouper_of_ones_own_is_taken_out(tmp_path: Path) -> None:
    run(app_of(counted, ssp_grouper=OneTask), tmp_path, six(0))
    assert run(app_of(counted), tmp_path, six(6)) == [2] * 6


def test_a_new_store_at_the_stored_positions_may_come_with_other_tasks(tmp_path: Path) -> None:
    run(app_of(plain), tmp_path, six(0))
    assert run(app_of(counted, ssp_grouper="system_stream_partition"), tmp_path, six(6)) == [1] * 6


def timed(app: hr.App) -> None:
    class Waits(hr.Processor):
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: hr.Record) -> None:
            self.context.timer("later", after="1 hour", clock="wall")

        def on_timer(self, timer: Any) -> None:
            self.context.forward(value=1)

    app.stream("in", **SERDES).process(Waits, key=hr.String(), value=hr.Long()).to("out")


def test_with_timers_alone_other_tasks_are_refused(tmp_path: Path) -> None:
    run(app_of(timed), tmp_path, six(0))
    with pytest.raises(hr.IncompatibleChangeError, match=r"task Partition_\d has state"):
        Driver(app_of(timed, ssp_grouper="system_stream_partition"), directory=tmp_path).open()
    with Driver(app_of(timed), directory=tmp_path, partitions=3) as d:
        d.advance("2 hours")
        d.run()
        assert len(d.read("out")) == 6


def test_where_its_timers_are_taken_out_other_tasks_go_on(tmp_path: Path) -> None:
    run(app_of(timed), tmp_path, six(0))
    assert run(app_of(plain, ssp_grouper="system_stream_partition"), tmp_path, six(6)) == list(range(6, 12))


def test_a_task_with_state_cannot_go_with_its_input(tmp_path: Path) -> None:
    def counting(stream: str) -> Edit:
        return lambda app: app.stream(stream, **SERDES).group_by_key().count(store="c").to("out")

    run(app_of(counting("x"), ssp_grouper="system_stream_partition"), tmp_path, six(0, "x"))
    edited = app_of(counting("y"), ssp_grouper="system_stream_partition")
    with pytest.raises(hr.IncompatibleChangeError, match=r"has state, of records of 'x', and there would be no such task"):
        Driver(edited, directory=tmp_path, partitions=3).open()


# --- another name of a sub-topology -------------------------------------------------------------------------------------


def one_repartition(app: hr.App) -> None:
    app.stream("in", **SERDES).repartition(hr.Repartitioned(name="b")).to("out")


def merged_repartitions(app: hr.App) -> None:
    stream = app.stream("in", **SERDES)
    first = stream.filter(lambda r: r.value == 100).repartition(hr.Repartitioned(name="a"))
    stream.repartition(hr.Repartitioned(name="b")).merge(first).to("out")


def test_positions_follow_a_repartition_stream_whose_sub_topology_is_named_by_another(tmp_path: Path) -> None:
    assert run(app_of(one_repartition), tmp_path, six(0)) == list(range(6))
    assert run(app_of(merged_repartitions), tmp_path, [("in", "x", 100)]) == [100, 100]


# --- inputs that go and come back ---------------------------------------------------------------------------------------


def reading(*streams: str) -> Edit:
    def make(app: hr.App) -> None:
        first, *others = [app.stream(name, **SERDES) for name in streams]
        for other in others:
            first = first.merge(other)
        first.group_by_key().count(store="c").to("out")

    return make


def test_an_input_that_comes_back_goes_on_where_it_was(tmp_path: Path) -> None:
    for streams, sent, counts in [
        (("x", "y"), [("x", "k", 0), ("y", "k", 0)], [2]),
        (("x",), [("x", "k", 0)], [3]),
        (("x",), [("x", "k", 0)], [4]),  # and over a start that changes nothing
        (("x", "y"), [("x", "k", 0), ("y", "k", 0)], [6]),
        (("x", "y"), [], []),
    ]:
        assert run(app_of(reading(*streams)), tmp_path, sent) == counts


def test_what_came_while_it_was_out_is_read_then(tmp_path: Path) -> None:
    run(app_of(reading("x", "y")), tmp_path, [("x", "k", 0), ("y", "k", 0)])
    run(app_of(reading("x")), tmp_path, [("x", "k", 0)])
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.produce("y", [("k", 1), ("k", 2)], key=hr.String(), value=hr.Long())
    assert run(app_of(reading("x", "y")), tmp_path) == [5]


def test_an_input_that_was_made_anew_while_it_was_out_begins_as_a_new_one(tmp_path: Path) -> None:
    run(app_of(reading("x", "y")), tmp_path, [("x", "k", 0), ("y", "k", 0), ("y", "k", 0)])
    run(app_of(reading("x")), tmp_path)
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.delete_stream("y")
        log.create_stream("y", 3)
        log.produce("y", [("k", 1)], key=hr.String(), value=hr.Long())
    with Driver(app_of(reading("x", "y")), directory=tmp_path, partitions=3) as d:
        d.run()
        assert d.store("c").all() == {"k": 4}


def test_an_input_that_lost_records_while_it_was_out_is_refused(tmp_path: Path) -> None:
    run(app_of(reading("x", "y")), tmp_path, [("x", "k", 0), ("y", "k", 0)])
    run(app_of(reading("x")), tmp_path)
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.produce("y", [(None, 1), (None, 2)], key=hr.String(), value=hr.Long())
        log.produce("y", [("k", 1), ("k", 2)], key=hr.String(), value=hr.Long())
        log.purge("y", log.end_offsets("y"))
    with pytest.raises(hr.OffsetOutOfRangeError, match=r"stream 'y' partition \d: the position is"):
        Driver(app_of(reading("x", "y")), directory=tmp_path).open()


def test_without_state_an_input_comes_back_to_other_tasks(tmp_path: Path) -> None:
    def both(app: hr.App) -> None:
        app.stream("x", **SERDES).merge(app.stream("y", **SERDES)).to("out")

    run(app_of(both), tmp_path, six(0, "x") + six(10, "y"))
    run(app_of(lambda app: app.stream("x", **SERDES).to("out")), tmp_path, six(20, "x"))
    again = run(app_of(both, ssp_grouper="system_stream_partition"), tmp_path, [("y", "k", 30)])
    assert again == [30]


# --- a repartition that is taken out ------------------------------------------------------------------------------------


def failing(app: hr.App) -> None:
    def fails(record: hr.Record) -> int:
        raise ValueError("not today")

    app.stream("in", **SERDES).repartition(hr.Repartitioned(name="b")).map_values(fails, value=hr.Long()).to("out")


def test_a_repartition_with_unread_records_cannot_be_taken_out(tmp_path: Path) -> None:
    with pytest.raises(hr.RecordError, match="not today"):
        run(app_of(failing), tmp_path, six(0))
    words = r"repartition stream 'b' .*holds 6 offsets that were not read"
    with pytest.raises(hr.IncompatibleChangeError, match=words) as refused:
        Driver(app_of(plain), directory=tmp_path).open()
    assert "caught-up" in str(refused.value)
    assert run(app_of(one_repartition), tmp_path) == list(range(6)), "the refused start has changed nothing"


def test_a_repartition_that_was_read_to_its_end_may_go_and_come_back(tmp_path: Path) -> None:
    assert run(app_of(one_repartition), tmp_path, six(0)) == list(range(6))
    assert run(app_of(plain), tmp_path, [("in", "k", 6)]) == [6]
    assert run(app_of(one_repartition), tmp_path, [("in", "k", 7)]) == [7]


# --- longer windows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "aggregate", [lambda g: g.count(store="w"), lambda g: g.reduce(lambda a, b: a + b, store="w")], ids=["count", "reduce"]
)
@pytest.mark.parametrize("change", [{"retention": "7 days"}, {"grace": "7 days"}, {"retention": "7 days", "grace": "1 day"}])
def test_windows_that_are_kept_longer_now_keep_what_they_hold(
    tmp_path: Path, aggregate: Callable[[Any], Any], change: dict[str, str]
) -> None:
    def windowed(**kept: str) -> hr.App:
        def make(app: hr.App) -> None:
            grouped = app.stream("in", **SERDES).group_by_key().windowed_by(hr.Tumbling("1 hour", **kept))
            aggregate(grouped).to("out")

        return app_of(make)

    with Driver(windowed(retention="2 hours"), directory=tmp_path) as d:
        for _ in range(2):
            d.send("in", "a", 1, at=0)
        d.run()
    with Driver(windowed(**change), directory=tmp_path) as d:
        for _ in range(2):
            d.send("in", "b", 1, at=5 * HOUR)
            d.run()
        d.send("in", "a", 1, at=2)
        d.run()
        assert d.store("w").get("a", at=0) == 3
        for day in (8, 9):  # and are deleted when that is over
            d.send("in", "b", 1, at=day * 24 * HOUR)
            d.run()
        assert d.store("w").get("a", at=0) is None
