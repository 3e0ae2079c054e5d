"""What golden files show: applications at work, and the plans that come of what happens to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import headrace as hr
from headrace.core.job_plan.groupers import AllSspsToEveryTask, GroupByPartition, Groups, PreviousAssignment
from headrace.core.job_plan.planner import Refusal
from headrace.core.job_plan.text import difference, text_of
from headrace.core.rewind.consistent_cuts import ConsistentCut
from headrace.core.rounds.for_each_round import Handover
from headrace.core.rounds.offset_ranges import OffsetRange
from headrace.core.topology.store_changes import StoreRequests
from headrace.errors import ConfigError
from headrace.model.change import ChangeKind, ChangeRequest
from headrace.model.checkpoint import RoundId
from headrace.model.startpoint import StatePolicy
from headrace.model.streams import SSP
from planning.planned_model import BOOTSTRAP, EARLIEST, LATEST, STRINGS, PlannedModel, offset

Part = tuple[str, str]  # what happens, and the text that comes of it


def counts(app: hr.App) -> None:
    """Counts by key, with state in the source sub-topology."""
    app.stream("clicks", **STRINGS).group_by_key().count(store="counts").to_stream().to("totals")


def two_parts(app: hr.App) -> None:
    """Counts by another key, behind a repartition stream."""
    clicks = app.stream("clicks", **STRINGS)
    clicks.group_by("value", hr.Repartitioned(name="by-page"), key=hr.String()).count(store="pages").to_stream().to("totals")


def two_inputs(app: hr.App) -> None:
    for stream in ("clicks", "views"):
        app.stream(stream, **STRINGS).to(f"{stream}-out")


def committed(world: PlannedModel, what: str, is_replan: bool = False) -> Part:
    made = world.plan(is_replan)
    if not isinstance(made, Refusal):
        world.commit(made)
    return what, text_of(made)


def first_start() -> Iterator[Part]:
    world = PlannedModel(two_parts, {"clicks": 4})
    world.write("clicks", 10)
    yield committed(world, "a first start: 4 partitions, 2 slots")
    world.write("tally-by-page-repartition", 10)
    world.run(6)
    yield committed(world, "a second start, after each task has read 6 records")
    world.edit(two_parts, containers=lambda name: 4 if name is None else 1, dead_letter_stream="rejects")
    yield committed(world, "with 4 containers of the source and 1 of by-page, and a dead-letter stream")


def expansion() -> Iterator[Part]:
    world = PlannedModel(counts, {"clicks": 2})
    world.write("clicks", 10)
    world.start()
    world.run(7)
    world.expand("clicks", 4)
    world.write("clicks", 5)
    world.snapshot = replace(world.snapshot, requests=(ChangeRequest(ChangeKind.EXPANSION, "clicks", "ann@desk"),))
    yield committed(world, "clicks grows from 2 to 4 partitions while the job runs", is_replan=True)
    world.snapshot = replace(world.snapshot, requests=())
    world.run(3)
    world.expand("clicks", 6)
    yield committed(world, "it grows to 6 while the job runs: no multiple", is_replan=True)
    yield "a start then", text_of(world.plan())
    world.expand("clicks", 12)
    yield committed(world, "it grows to 12, and the job starts")


def expansion_of_an_input_of_several() -> Iterator[Part]:
    world = PlannedModel(two_inputs, {"clicks": 2, "views": 3})
    world.start()
    world.expand("views", 4)
    yield committed(world, "views grows from 3 to 4 while the job runs: its readers stop, those of clicks too", is_replan=True)


def expansion_of_a_joined_input() -> Iterator[Part]:
    def joins(app: hr.App) -> None:
        left, right = app.stream("clicks", **STRINGS), app.table("rates", **STRINGS)
        left.join(right, lambda a, b: a, value=hr.String()).to("totals")

    world = PlannedModel(joins, {"clicks": 2, "rates": 2})
    world.start()
    world.expand("clicks", 4)
    yield committed(world, "clicks grows from 2 to 4 while the job runs, what it is joined with does not", is_replan=True)
    world.expand("rates", 4)
    yield committed(world, "rates has grown too", is_replan=True)


class OnlyTwo(GroupByPartition):
    """A grouper of a user, which cannot do with more than two partitions."""

    def group(self, previous_assignment: PreviousAssignment, ssps: Iterable[SSP]) -> Groups:
        found = sorted(ssps)
        if len({ssp.partition for ssp in found}) > 2:
            raise ConfigError("more than two partitions")
        return super().group(previous_assignment, found)


def expansion_that_a_grouper_refuses() -> Iterator[Part]:
    world = PlannedModel(two_parts, {"clicks": 2}, grouper=lambda count: OnlyTwo())
    world.start()
    world.expand("clicks", 4)
    world.request("a", "clicks", EARLIEST)
    yield committed(world, "clicks grows from 2 to 4, which the grouper refuses: its readers stop", is_replan=True)
    yield "a start then", text_of(world.plan())


def edits() -> Iterator[Part]:
    world = PlannedModel(two_inputs, {"clicks": 2, "views": 2})
    for stream in ("clicks", "views"):
        world.write(stream, 10)
    world.start()
    world.run(4)
    world.edit(lambda app: app.stream("clicks", **STRINGS).to("clicks-out"))
    yield committed(world, "views is taken out")
    world.run(2)
    world.edit(two_inputs)
    yield committed(world, "views is put back")
    world.create("views", 2)
    yield "views is another stream now", text_of(world.plan())


def stores() -> Iterator[Part]:
    world = PlannedModel(counts, {"clicks": 2})
    world.write("clicks", 10)
    world.start()
    world.run(4)

    def renamed(app: hr.App) -> None:
        app.stream("clicks", **STRINGS).group_by_key().count(store="tallies").to_stream().to("totals")

    world.edit(renamed)
    yield "the store has another name", text_of(world.plan())
    world.edit(renamed, stores=StoreRequests(renames={"counts": "tallies"}))
    yield committed(world, "with the request to rename it")
    world.edit(two_parts)
    yield "the store is removed, and another one is elsewhere", text_of(world.plan())
    world.edit(lambda app: app.stream("clicks", **STRINGS).to("totals"))
    yield committed(world, "the store is taken out")
    world.edit(renamed)
    yield "it is put back", text_of(world.plan())


def starts() -> Iterator[Part]:
    def build(app: hr.App) -> None:
        app.stream("clicks", start="latest", **STRINGS).to("out")
        app.stream("rates", start="bootstrap", **STRINGS).to("out")
        app.stream("views", start=7, reset_offset=True, **STRINGS).to("out")

    world = PlannedModel(build, {"clicks": 2, "rates": 2, "views": 2})
    for stream, records in (("clicks", 5), ("rates", 3), ("views", 6)):
        world.write(stream, records)
    yield committed(world, "clicks from the end, rates first, views from offset 7 at every start")
    world.write("views", 6)
    world.run(4)
    world.expand("clicks", 4)
    world.write("clicks", 2)
    yield committed(world, "clicks grows; views is read from offset 7 again")
    world.run(2)
    yield committed(world, "a new plan while the job runs: views stays where it is", is_replan=True)


def startpoints() -> Iterator[Part]:
    world = PlannedModel(counts, {"clicks": 2})
    world.write("clicks", 20)
    world.start()
    world.run(10)
    world.request("a", "clicks", offset(3))
    world.request("b", "clicks", LATEST, 1)
    yield committed(world, "back to offset 3 of partition 0, on to the end of 1", is_replan=True)
    world.request("c", "clicks", EARLIEST)
    yield committed(world, "a later one for partition 0", is_replan=True)
    world.delete("c")
    yield committed(world, "it is deleted: the one before counts again", is_replan=True)
    world.run(1)
    yield committed(world, "after a round")
    world.request("d", "clicks", BOOTSTRAP)
    world.request("e", "other", EARLIEST)
    yield committed(world, "a bootstrap, and one for a stream that the job does not read")
    world.request("f", "clicks", offset(99))
    yield "one for an offset that is not there, at a start", text_of(world.plan())
    world.request("g", "clicks", LATEST, 1)
    yield committed(world, "it and one that can be done, while the job runs", is_replan=True)


def rewind() -> Iterator[Part]:
    world = PlannedModel(two_parts, {"clicks": 2})
    world.write("clicks", 20)
    world.start()
    world.write("tally-by-page-repartition", 5)
    world.run(5)
    world.keep()
    written = {SSP("log", "tally-by-page-repartition", number): 5 for number in range(2)}
    source = {task: one.round_id for task, one in world.snapshot.checkpoints.items() if task.sub_topology is None}
    world.snapshot = replace(world.snapshot, cuts=(ConsistentCut(None, world.snapshot.now_us, source, written),))
    world.write("tally-by-page-repartition", 8)
    world.run(6)
    world.request("r", "clicks", offset(5), state=StatePolicy.REWIND)
    yield committed(world, "back to offset 5 with state: all tasks, and those behind by-page", is_replan=True)
    world.delete("r")
    yield committed(world, "it is deleted before anything was committed", is_replan=True)
    world.expire("clicks", 1)
    world.request("q", "clicks", offset(2), state=StatePolicy.REWIND)
    world.request("t", "clicks", offset(7), 1, state=StatePolicy.REWIND)
    yield committed(world, "to 2, for which no version is old enough and no record there, and of 1 to 7", is_replan=True)
    world.expire("clicks", 0)
    world.offsets.spans["clicks"] = [(0, 20)] * 2
    world.request("s", "clicks", offset(2), state=StatePolicy.REWIND)
    yield committed(world, "back to offset 2: before all versions, to the empty state", is_replan=True)


def refusals() -> Iterator[Part]:
    yield "an input that is not there", text_of(PlannedModel(counts, {"click": 2}).plan())
    world = PlannedModel(two_parts, {"clicks": 2})
    world.create("tally-by-page-repartition", 2, "other")
    yield "a repartition stream that belongs to another application", text_of(world.plan())
    world = PlannedModel(counts, {"clicks": 2}, grouper=AllSspsToEveryTask)
    yield "every task reads everything, under state", text_of(world.plan())
    world = PlannedModel(counts, {"clicks": 2})
    world.write("clicks", 10)
    world.start()
    world.run(4)
    world.expire("clicks", 6)
    yield "records were deleted before they were read", text_of(world.plan())
    world.edit(counts, on_lost_offsets="earliest")
    yield "with on_lost_offsets=earliest", text_of(world.plan())
    world = PlannedModel(two_parts, {"clicks": 2})
    world.start()
    world.write("tally-by-page-repartition", 3)
    world.edit(lambda app: app.stream("clicks", **STRINGS).to("totals"), stores=StoreRequests(drops=frozenset({"pages"})))
    yield "a repartition is taken out that holds records", text_of(world.plan())

    def joins(app: hr.App) -> None:
        left, right = app.stream("clicks", **STRINGS), app.table("rates", **STRINGS)
        left.join(right, lambda a, b: a, value=hr.String()).to("totals")

    yield "streams of 2 and 3 partitions are joined", text_of(PlannedModel(joins, {"clicks": 2, "rates": 3}).plan())


def broadcast() -> Iterator[Part]:
    def build(app: hr.App) -> None:
        rates = app.global_table("rates", **STRINGS)
        clicks = app.stream("clicks", **STRINGS)
        clicks.join(rates, lambda a, b: a, key=lambda record: record.value, value=hr.String()).to("totals")

    world = PlannedModel(build, {"clicks": 3, "rates": 1})
    world.write("rates", 4)
    yield committed(world, "a global table: every task reads it")


def handovers() -> Iterator[Part]:
    def build(app: hr.App) -> None:
        app.stream("clicks", **STRINGS).for_each_round(print)

    world = PlannedModel(build, {"clicks": 2})
    world.write("clicks", 20)
    world.start()
    world.run(10)
    first, second = (SSP("log", "clicks", number) for number in range(2))
    given = Handover(4, RoundId(1, None, 1), (OffsetRange(first, 5, 10), OffsetRange(second, 10, 12)))
    world.snapshot = replace(world.snapshot, handovers={"source": given})
    world.request("a", "clicks", offset(3))
    yield committed(world, "back to offset 3 of a stream that was handed over", is_replan=True)


def dry_runs() -> Iterator[Part]:
    """What requests would change: the difference of two plans. Nothing is committed."""
    world = PlannedModel(counts, {"clicks": 2})
    world.write("clicks", 20)
    world.start()
    world.run(10)
    before = world.plan(is_replan=True)
    snapshot = world.snapshot
    world.snapshot = snapshot.with_partitions({"clicks": 4})
    world.offsets.spans["clicks"] += [(0, 0)] * 2
    yield "clicks to 4 partitions", _lines(difference(before, world.plan(is_replan=True)))
    world.offsets.spans["clicks"] = world.offsets.spans["clicks"][:2]
    world.snapshot = snapshot
    world.request("a", "clicks", offset(3))
    yield "clicks back to offset 3", _lines(difference(before, world.plan(is_replan=True)))


def _lines(lines: tuple[str, ...]) -> str:
    return "".join(f"{line}\n" for line in lines)


SCENARIOS: tuple[Callable[[], Iterator[Part]], ...] = (
    first_start,
    expansion,
    expansion_of_an_input_of_several,
    expansion_of_a_joined_input,
    expansion_that_a_grouper_refuses,
    edits,
    stores,
    starts,
    startpoints,
    rewind,
    refusals,
    broadcast,
    handovers,
    dry_runs,
)


def text_of_scenario(scenario: Callable[[], Iterator[Part]]) -> str:
    return "\n".join(f"# {what}\n{text}" for what, text in scenario())
