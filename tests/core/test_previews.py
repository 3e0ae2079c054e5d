"""What startpoints would do: moves, the stores behind a stream, and what is said of state."""

from __future__ import annotations

from dataclasses import replace

import pytest

import headrace as hr
from headrace.core.rewind.consistent_cuts import SubTopologyEdges
from headrace.core.rewind.previews import (
    NAMED_MAX,
    Move,
    StartpointPreview,
    StoresBehind,
    further_back,
    moves_between,
    moves_of,
    older_skipped,
    read_already,
    state_text,
    stores_behind,
    with_skipped_ranges,
)
from headrace.core.rewind.rewinds import RewindTarget
from headrace.core.rewind.skipped_ranges import Span
from headrace.core.rewind.state_history import StateVersion
from headrace.core.topology.compatibility import store_forms
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.startpoint import PositionType, Startpoint, StartpointEntry, StartpointKey, StatePolicy
from headrace.model.streams import SSP
from headrace.model.tasks import KeyBucket, PartitionGroup, TaskName
from headrace.model.topology import Topology

TASKS = [TaskName(PartitionGroup(partition)) for partition in range(3)]
A, B = (SSP("log", "a", partition) for partition in range(2))
WIDE = SSP("log", "wide", 0)  # read by two tasks
OWNERS = {A: [TASKS[0]], B: [TASKS[1]], WIDE: TASKS[:2]}
POSITIONS = {(TASKS[0], A): 10, (TASKS[1], B): 20, (TASKS[0], WIDE): 5, (TASKS[1], WIDE): 7}


BY_X = SSP("log", "shop-by-x-repartition", 0)
BEHIND = TaskName(PartitionGroup(0), "by-x")


def kept(task: TaskName, positions: dict[SSP, int], kept_us: int = 1_700_000_000_000_000) -> StateVersion:
    return StateVersion(Checkpoint(task, RoundId(1, task.sub_topology, 1), 1, positions), kept_us)


def entry(ssp: SSP, task: TaskName | None = None) -> StartpointEntry:
    key = StartpointKey(ssp, task)
    return StartpointEntry(f"{ssp}{task}", key, Startpoint(PositionType.EARLIEST), "me", 1)


class TestMoves:
    def test_every_task_that_reads_the_partition_moves(self) -> None:
        (one, two) = moves_of([entry(WIDE)], {entry(WIDE).id: 6}, OWNERS, POSITIONS)
        assert (one.task, one.before, one.after, one.read_again, one.skipped) == (TASKS[0], 5, 6, 0, 1)
        assert (two.task, two.before, two.after, two.read_again, two.skipped) == (TASKS[1], 7, 6, 1, 0)

    def test_one_for_a_task_moves_that_task_alone(self) -> None:
        asked = entry(WIDE, TASKS[1])
        assert [move.task for move in moves_of([asked], {asked.id: 0}, OWNERS, POSITIONS)] == [TASKS[1]]

    def test_a_partition_that_nobody_reads_yet_has_no_position(self) -> None:
        asked = entry(SSP("log", "a", 9))
        (move,) = moves_of([asked], {asked.id: 3}, OWNERS, POSITIONS)
        assert (move.task, move.before, move.after, move.read_again, move.skipped) == (None, None, 3, 0, 0)

    def test_they_come_by_stream_partition_and_task(self) -> None:
        asked = [entry(WIDE), entry(B), entry(A)]
        moves = moves_of(asked, {one.id: 0 for one in asked}, OWNERS, POSITIONS)
        assert [(move.ssp, move.task) for move in moves] == [(A, TASKS[0]), (B, TASKS[1]), (WIDE, TASKS[0]), (WIDE, TASKS[1])]

    def test_what_differs_between_two_plans_moves_and_what_was_requested(self) -> None:
        def at(task: TaskName, positions: dict[SSP, int]) -> Checkpoint:
            return Checkpoint(task, RoundId(1, task.sub_topology, 1), 1, positions)

        before = {TASKS[0]: at(TASKS[0], {A: 10, WIDE: 5}), BEHIND: at(BEHIND, {BY_X: 210})}
        before[TASKS[1]] = at(TASKS[1], {B: 20, WIDE: 7})
        after = {**before, TASKS[0]: at(TASKS[0], {A: 3, WIDE: 1}), BEHIND: at(BEHIND, {BY_X: 80})}
        given = [Move(A, TASKS[0], 10, 4), Move(B, TASKS[1], 20, 20), Move(SSP("log", "a", 9), None, None, 3)]
        positions = {**POSITIONS, (BEHIND, BY_X): 210}
        assert moves_between(given, before, after, positions) == (
            Move(A, TASKS[0], 10, 3),
            Move(B, TASKS[1], 20, 20),
            Move(SSP("log", "a", 9), None, None, 3),
            Move(WIDE, TASKS[0], 5, 1),
            Move(BY_X, BEHIND, 210, 80),
        )


class TestGaps:
    """Of 210 read, back to 80: what is between is read again, but for what is written again."""

    BACK = Move(BY_X, BEHIND, 210, 80)

    @pytest.mark.parametrize(
        ("spans", "in_skipped_ranges", "read_again"),
        [
            ((), 0, 130),
            (((100, 230),), 110, 20),
            (((20, 30), (80, 81), (209, 300)), 2, 128),
            (((10, 80), (210, 220)), 0, 130),
            (((0, 500),), 130, 0),
        ],
    )
    def test_what_lies_in_them_is_not_read(self, spans: tuple[Span, ...], in_skipped_ranges: int, read_again: int) -> None:
        (move,) = with_skipped_ranges([self.BACK], {BY_X: spans, A: ((0, 500),)})
        assert (move.in_skipped_ranges, move.read_again, move.skipped, move.is_back) == (in_skipped_ranges, read_again, 0, True)

    def test_nor_is_it_skipped(self) -> None:
        (move,) = with_skipped_ranges([Move(BY_X, BEHIND, 80, 210)], {BY_X: ((100, 150),)})
        assert (move.in_skipped_ranges, move.read_again, move.skipped, move.is_back) == (50, 0, 80, False)

    def test_a_partition_that_nobody_reads_yet_passes_over_nothing(self) -> None:
        (move,) = with_skipped_ranges([Move(BY_X, None, None, 80)], {BY_X: ((0, 500),)})
        assert (move.in_skipped_ranges, move.read_again, move.skipped) == (0, 0, 0)

    def test_those_of_earlier_rewinds_are_said_where_they_matter(self) -> None:
        older = {BY_X: ((20, 30), (90, 95)), A: ((0, 500),)}
        said = older_skipped([self.BACK], older, RewindTarget())
        assert said == "still skipped, because an earlier rewind wrote it again: 90 to 94 of shop-by-x-repartition/0"
        assert older_skipped([self.BACK], older, RewindTarget(skipped_ranges={BY_X: (85, 300)})) is None
        assert older_skipped([self.BACK], {BY_X: ((20, 30),)}, RewindTarget()) is None


def shop() -> Topology:
    """Two inputs into the source sub-topology; one of them goes on into another, and that one into a third."""
    app = hr.App("shop")
    sales = app.stream("sales", key=hr.String(), value=hr.Json())
    sales.group_by_key().count(store="per-shop")
    by_item = sales.select_key(lambda sale: sale.value["item"], key=hr.String()).group_by_key().count(store="per-item")
    again = by_item.to_stream().select_key(lambda one: str(one.value), key=hr.String())
    again.group_by_key().count(store="per-count")
    app.table("prices", key=hr.String(), value=hr.Double())
    return app.topology()


def model_of(topology: Topology) -> JobModel:
    subs = sub_topologies_of(topology)
    models = tuple(
        SubTopologyModel(
            sub.name,
            (
                ContainerModel(
                    0,
                    (TaskModel(TaskName(PartitionGroup(0), sub.name), tuple(SSP("log", one, 0) for one in sub.reads)),),
                ),
            ),
        )
        for sub in subs
    )
    return JobModel("shop", 1, models, stores=store_forms(topology))


class TestStores:
    @pytest.mark.parametrize(
        ("stream", "own", "later"),
        [
            ("sales", ("per-shop",), ("per-count", "per-item")),
            ("prices", ("prices",), ()),
            ("shop-per-item-repartition", ("per-item",), ("per-count",)),
            ("shop-per-count-repartition", ("per-count",), ()),
        ],
    )
    def test_a_topology_tells_which_are_reached(self, stream: str, own: tuple[str, ...], later: tuple[str, ...]) -> None:
        topology = shop()
        found = stores_behind(model_of(topology), {stream}, topology)
        assert found == StoresBehind(own, later, has_tables_only=stream == "prices")

    def test_a_job_model_names_all_that_may_be(self) -> None:
        topology = shop()
        found = {one: stores_behind(model_of(topology), {one}) for one in ("sales", "shop-per-item-repartition")}
        assert found["sales"] == StoresBehind(("per-shop", "prices"), ("per-count", "per-item"), is_certain=False)
        assert found["shop-per-item-repartition"] == StoresBehind(("per-item",), ("per-count",), is_certain=False)

    @pytest.mark.parametrize("stream", ["sales", "prices", "shop-per-item-repartition", "shop-per-count-repartition"])
    def test_none_that_is_reached_is_left_out_by_the_model(self, stream: str) -> None:
        topology = shop()
        exact, known = stores_behind(model_of(topology), {stream}, topology), stores_behind(model_of(topology), {stream})
        assert {*exact.own, *exact.later} <= {*known.own, *known.later}

    def test_stores_that_are_gone_do_not_count(self) -> None:
        model = replace(model_of(shop()), stores={"old": "gone:source|form"})
        assert stores_behind(model, {"sales"}) == StoresBehind(is_certain=False)


SOURCE_AND_BEHIND = (
    SubTopologyEdges(None, ("a",), (BY_X.stream,), has_state=False),
    SubTopologyEdges("by-x", (BY_X.stream,), (), has_state=True),
)
VERSIONS = (kept(TASKS[0], {A: 4}), kept(BEHIND, {BY_X: 30}))


def preview(moves: list[Move], stores: StoresBehind, state: StatePolicy = StatePolicy.KEEP) -> StartpointPreview:
    return StartpointPreview("shop", (), tuple(moves), state, stores)


class TestWhatIsCounted:
    def test_what_virtual_tasks_read_of_one_partition_is_fetched_once(self) -> None:
        parts = [Move(A, replace(TASKS[0], bucket=KeyBucket(index, 2)), 10, 4 + index) for index in range(2)]
        wide = [Move(WIDE, TASKS[0], 5, 3), Move(WIDE, TASKS[1], 7, 3)]
        found = preview([*parts, Move(B, TASKS[1], 20, 17), *wide], StoresBehind())
        assert (found.read_again, found.skipped) == (6 + 3 + 2 + 4, 0), "tasks that read a partition whole fetch it each"


class TestWhatIsSaid:
    BACK, ON, STILL = Move(A, TASKS[0], 10, 4), Move(B, TASKS[1], 20, 23), Move(A, TASKS[0], 4, 4)

    def test_without_a_store_nothing_is_counted_twice(self) -> None:
        assert state_text(preview([self.BACK], StoresBehind())) == "no store is behind it: no state is touched"

    def test_kept_state_counts_twice_and_misses_what_is_skipped(self) -> None:
        text = state_text(preview([self.BACK, self.ON], StoresBehind(("n",), ("m",))))
        assert text == (
            "state is kept: the 6 records that are read again count a second time in aggregates, and the 3 records that are "
            "skipped never come to them; the stores behind it: m, n"
        )

    def test_tables_count_nothing(self) -> None:
        text = state_text(preview([self.BACK], StoresBehind(("t",), has_tables_only=True)))
        assert text == "state is kept: the 6 records that are read again are put into tables again; the stores behind it: t"

    def test_what_may_not_be_reached_is_said_to(self) -> None:
        text = state_text(preview([self.BACK], StoresBehind(("n",), is_certain=False)))
        assert text.endswith("the stores that may be behind it: n")

    def test_nothing_moves(self) -> None:
        assert state_text(preview([self.STILL], StoresBehind(("n",)))) == "state is kept as it is: the stores behind it: n"

    def rewound(
        self, flows: tuple[SubTopologyEdges, ...], *versions: StateVersion, skipped_ranges: dict[SSP, Span] | None = None
    ) -> list[str]:
        past = RewindTarget({one.checkpoint.task: one for one in versions}, skipped_ranges or {})
        shown = preview([self.BACK], StoresBehind(("n",)), StatePolicy.REWIND)
        return state_text(replace(shown, past=past, flows=flows)).splitlines()

    def test_a_rewind_names_the_version(self) -> None:
        assert self.rewound((SubTopologyEdges(None, ("a",), (), has_state=True),), kept(TASKS[0], {A: 4})) == [
            "state of Partition_0 goes back to the version of 2023-11-14 22:13:20 UTC, at log.a.0 4"
        ]

    def test_the_empty_state_is_no_version(self) -> None:
        assert self.rewound((SubTopologyEdges(None, ("a",), (), has_state=True),), kept(TASKS[0], {A: 4}, 0)) == [
            "state of Partition_0 goes back to the empty state, at log.a.0 4"
        ]

    def test_what_goes_back_together_is_said_with_what_is_passed_over(self) -> None:
        """The source has no state: its tasks go back for what is behind."""
        said = self.rewound(SOURCE_AND_BEHIND, *VERSIONS, skipped_ranges={BY_X: (40, 230)})
        assert said == [
            "Partition_0 goes back to the version of 2023-11-14 22:13:20 UTC, at log.a.0 4",
            "state of by-x/Partition_0 goes back to the version of 2023-11-14 22:13:20 UTC, at log.shop-by-x-repartition.0 30",
            (
                "all tasks of sub-topology 'source' go back together, and the stores behind its repartition streams with them: "
                "none counts a record twice"
            ),
            "skipped, because it is written again: 40 to 229 of shop-by-x-repartition/0",
        ]

    def test_one_that_only_reads_a_repartition_stream_goes_back_alone(self) -> None:
        assert self.rewound(SOURCE_AND_BEHIND, VERSIONS[1]) == [
            "state of by-x/Partition_0 goes back to the version of 2023-11-14 22:13:20 UTC, at log.shop-by-x-repartition.0 30"
        ]

    def test_several_that_go_by_cuts_are_named(self) -> None:
        behind = (
            SubTopologyEdges("by-x", (BY_X.stream,), ("y",), has_state=False),
            SubTopologyEdges("by-y", ("y",), (), has_state=True),
        )
        (said,) = [line for line in self.rewound((SOURCE_AND_BEHIND[0], *behind), *VERSIONS) if line.startswith("all tasks")]
        assert said == (
            "all tasks of sub-topologies 'source', 'by-x' go back together, and the stores behind their repartition streams "
            "with them: none counts a record twice"
        )

    @pytest.mark.parametrize(("count", "rest"), [(0, ""), (1, "1 more task goes back"), (1200, "1,200 more tasks go back")])
    def test_of_many_few_are_named(self, count: int, rest: str) -> None:
        tasks = [TaskName(PartitionGroup(number)) for number in range(NAMED_MAX + count)]
        skipped_ranges = {replace(BY_X, partition=number): (number, number + 1) for number in range(NAMED_MAX + count)}
        said = self.rewound(SOURCE_AND_BEHIND, *(kept(task, {A: 4}) for task in tasks), skipped_ranges=skipped_ranges)
        assert said[NAMED_MAX - 1].startswith(f"Partition_{NAMED_MAX - 1} goes back")
        assert said[NAMED_MAX:-2] == ([rest] if rest else [])
        last = f"7 of shop-by-x-repartition/7{f' and {count:,} more' if count else ''}"
        assert said[-1].startswith("skipped, because it is written again: 0 of ") and said[-1].endswith(f", {last}")

    def test_what_has_no_state_does_not_go_back(self) -> None:
        without = preview([self.BACK], StoresBehind(), StatePolicy.REWIND)
        assert state_text(without) == "no store is behind it: no state is touched"
        maybe = preview([self.BACK], StoresBehind((), ("m",), is_certain=False), StatePolicy.REWIND)
        assert state_text(maybe) == "no task with state goes back: state stays as it is"
        assert state_text(preview([self.ON], StoresBehind(("n",)), StatePolicy.REWIND)) == (
            "no position goes back: state stays as it is"
        )

    def test_what_goes_further_back_than_was_asked_is_said(self) -> None:
        moves = [Move(A, TASKS[0], 10, 3), Move(WIDE, TASKS[0], 5, 1)]
        assert further_back([Move(A, TASKS[0], 10, 3)], moves) is None
        assert further_back([Move(B, TASKS[1], 20, 3)], moves) is None
        said = further_back([self.BACK, Move(WIDE, TASKS[0], 5, 1)], moves)
        assert said == "requested was offset 4 of a/0: a task resumes from the positions of the version that it goes back to"
        many = [Move(SSP("log", "a", number), TASKS[0], 10, 4) for number in range(10)]
        short = further_back(many, [replace(move, after=0) for move in many])
        assert short is not None and "offset 4 of a/7 and 2 more: a task" in short

    def test_what_is_read_again_already_is_said(self) -> None:
        assert read_already([self.BACK, self.ON], [self.BACK, self.ON]) is None
        said = read_already([self.BACK, self.ON], [self.BACK, replace(self.ON, after=20)])
        assert said == "requested was offset 23 of a/1: an earlier rewind already reads that again, and nothing is skipped"
