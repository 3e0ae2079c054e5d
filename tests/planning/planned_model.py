"""An application and all that is stored of it, as values: what plans are made from in memory, and what commits make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import headrace as hr
from headrace.core.job_plan.assignment import assignment_of, merged
from headrace.core.job_plan.draft import Draft, PlanTerms
from headrace.core.job_plan.groupers import GroupByPartition
from headrace.core.job_plan.planner import Refusal, plan, plan_while_running
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.job_plan.startpoint_requests import StartpointRequests
from headrace.core.rewind.startpoint_rules import offset_of
from headrace.core.rewind.state_history import StateVersion, by_task
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind
from headrace.model.startpoint import PositionType, Startpoint, StartpointEntry, StartpointKey, StartpointRequest, StatePolicy
from headrace.model.streams import SSP, StreamDescription

Build = Callable[[hr.App], object]
STRINGS: dict[str, Any] = {"key": hr.String(), "value": hr.String()}


@dataclass
class Table:
    """Offsets per stream: (beginning, end) of each partition. The record at offset n has time n."""

    spans: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def beginnings(self, stream: str) -> Mapping[int, int]:
        self.asked.append(stream)
        return {number: low for number, (low, _) in enumerate(self.spans[stream])}

    def ends(self, stream: str) -> Mapping[int, int]:
        self.asked.append(stream)
        return {number: high for number, (_, high) in enumerate(self.spans[stream])}

    high_watermarks = ends

    def for_time(self, stream: str, time_us: int) -> Mapping[int, int]:
        return {number: min(max(time_us, low), high) for number, (low, high) in enumerate(self.spans[stream])}

    def register(self, ssp: SSP, startpoint: Startpoint) -> int:
        low, high = self.spans[ssp.stream][ssp.partition]
        return offset_of(startpoint, ssp, low, high, lambda time_us: self.for_time(ssp.stream, time_us)[ssp.partition])


class PlannedModel:
    """One application on a system that is a table; `plan` makes its next plan, `commit` makes that the stored one."""

    def __init__(self, build: Build, streams: Mapping[str, int], **terms: Any) -> None:
        self.offsets = Table()
        self.snapshot = Snapshot(self.offsets, {})
        self.ids: dict[str, int] = {}
        for name, count in streams.items():
            self.create(name, count)
        self.edit(build, **terms)

    def edit(self, build: Build, **terms: Any) -> None:
        """The application is another from now on; `terms` are those of `PlanTerms`."""
        app = hr.App("tally")
        build(app)
        topology = app.topology()
        given: dict[str, Any] = {"grouper": lambda count: GroupByPartition(), "slots": 2, **terms}
        self.terms = PlanTerms(topology, sub_topologies_of(topology), "log", "log:./data", **given)

    def create(self, name: str, count: int, internal_of: str | None = None) -> None:
        """A stream, in the place of the one of that name."""
        self.ids[name] = self.ids.get(name, 0) + 1
        stream = StreamDescription(name, count, f"{name}#{self.ids[name]}", internal_of)
        self.snapshot = replace(self.snapshot, streams={**self.snapshot.streams, name: stream})
        self.offsets.spans[name] = [(0, 0)] * count

    def expand(self, name: str, count: int) -> None:
        self.snapshot = self.snapshot.with_partitions({name: count})
        self.offsets.spans[name] += [(0, 0)] * (count - len(self.offsets.spans[name]))

    def write(self, name: str, records: int) -> None:
        """This many more in each partition."""
        self.offsets.spans[name] = [(low, high + records) for low, high in self.offsets.spans[name]]

    def expire(self, name: str, before: int) -> None:
        self.offsets.spans[name] = [(min(before, high), high) for _, high in self.offsets.spans[name]]

    def request(
        self, id_: str, stream: str, startpoint: Startpoint, partition: int = 0, state: StatePolicy = StatePolicy.KEEP
    ) -> None:
        """A startpoint, in a request of its own."""
        key = StartpointKey(SSP("log", stream, partition))
        entry = StartpointEntry(id_, key, startpoint, "ann@desk", self.snapshot.now_us + 1, state)
        self._ask(f"request-{id_}", StartpointRequest((entry,)))

    def delete(self, *ids: str) -> None:
        self._ask(f"request-to-delete-{'-'.join(ids)}", StartpointRequest((), ids))

    def _ask(self, id_: str, request: StartpointRequest) -> None:
        asked = self.snapshot.startpoints
        self.snapshot = replace(self.snapshot, startpoints=replace(asked, requests={**asked.requests, id_: request}))

    # --- the driver ---------------------------------------------------------------------------------------------------

    def plan(self, is_replan: bool = False) -> Draft | Refusal:
        self.snapshot = replace(self.snapshot, epoch=self.snapshot.epoch + 1, now_us=self.snapshot.now_us + 1_000)
        terms = replace(self.terms, is_replan=is_replan)
        return plan_while_running(terms, self.snapshot) if is_replan else plan(terms, self.snapshot)

    def start(self, is_replan: bool = False) -> Draft:
        """A plan that is committed."""
        made = self.plan(is_replan)
        if isinstance(made, Refusal):
            raise made.error
        self.commit(made)
        return made

    def commit(self, made: Draft) -> None:
        """Make a plan the stored one, as the driver does, and create its streams."""
        for name, count in made.creates.items():
            internal = any(node.stream == name for node in made.terms.topology.repartitions)
            self.create(name, count, "tally" if internal else None)
        before, model = self.snapshot, made.job_model
        ids = {name: before.streams[name].id for name in made.creates}
        model = replace(model, stream_ids={name: ids.get(name, id_) for name, id_ in model.stream_ids.items()})
        records = {name: replace(one, stream_id=ids.get(name, one.stream_id)) for name, one in made.records.items()}
        versions = {one.key: one for kept in before.versions.values() for one in kept}
        rewinds = {one.key: one for one in before.rewinds}
        rewinds |= {key: one for key, one in made.rewind_changes.rewinds.items() if one is not None}
        versions |= {key: one for key, one in made.rewind_changes.versions.items() if one is not None}
        gone = {key for key, one in {**made.rewind_changes.versions, **made.rewind_changes.rewinds}.items() if one is None}
        self.snapshot = replace(
            before,
            model=model,
            checkpoints=dict(made.checkpoints),
            operators=made.edit.operators,
            assignment=merged(made.streams.assignment, assignment_of(model)),
            partition_records=records,
            startpoints=StartpointRequests(
                {id_: one for id_, one in before.startpoints.requests.items() if id_ not in made.done}, dict(made.startpoints)
            ),
            versions=by_task(one for key, one in versions.items() if key not in gone),
            rewinds=tuple(one for key, one in sorted(rewinds.items()) if key not in gone),
            flows=made.flows,
            handovers={**before.handovers, **made.handovers},
        )

    def run(self, records: int, with_state: bool = True) -> None:
        """A round: every task reads this many records of each partition, as far as it can, and has a state file more."""
        self.snapshot = replace(
            self.snapshot,
            now_us=self.snapshot.now_us + 1_000,
            checkpoints={task: self._read(one, records, with_state) for task, one in self.snapshot.checkpoints.items()},
        )

    def _read(self, one: Checkpoint, records: int, with_state: bool) -> Checkpoint:
        pending = {
            made.ssp: record.entry.id
            for record in self.snapshot.startpoints.records.values()
            for made in record.resolutions
            if made.task == one.task
        }
        positions = {ssp: min(at + records, self.offsets.ends(ssp.stream)[ssp.partition]) for ssp, at in one.positions.items()}
        number = one.round_id.number + 1
        file = StateFile(f"file-{number}", StateFileKind.SNAPSHOT, 10, 1, "c", number)
        has_state = with_state and any(sub.name == one.task.sub_topology and sub.stores for sub in self.terms.subs)
        return replace(
            one,
            round_id=RoundId(self.snapshot.epoch, one.task.sub_topology, number),
            positions=positions,
            head=Head(number, (file,)) if has_state else one.head,
            watermarks={ssp: 1_000 + at for ssp, at in positions.items() if at},
            spent_startpoints={ssp: id_ for ssp, id_ in pending.items() if positions.get(ssp, 0) != one.positions.get(ssp, 0)},
        )

    def keep(self) -> None:
        """Keep the present state of every task as a version."""
        kept = [StateVersion(one, self.snapshot.now_us) for one in self.snapshot.checkpoints.values()]
        old = [one for versions in self.snapshot.versions.values() for one in versions]
        self.snapshot = replace(self.snapshot, versions=by_task([*old, *kept]))


def offset(number: int) -> Startpoint:
    return Startpoint(PositionType.SPECIFIC_OFFSET, number)


EARLIEST, LATEST = Startpoint(PositionType.EARLIEST), Startpoint(PositionType.LATEST)
BOOTSTRAP = Startpoint(PositionType.BOOTSTRAP)
