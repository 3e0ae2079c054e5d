"""Plans of a standalone group: a leader makes one and commits it, each processor loads it.

A plan is made twice: once to see which processors it changes, and once more when these can commit nothing any more
(protocol.md 7). What is decided is in `core.group` and `core.job_plan`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from headrace.codec.job_records import origin_entry, plan_origin_of, scales_of, startpoints_of, stored_operators
from headrace.core.affinity.groupers import LocalityInfo
from headrace.core.elasticity.scales import decided
from headrace.core.group.drafts import GroupDraft, WantedPlan, group_draft
from headrace.core.group.grants import GroupChange, after_change, known_to_have_begun, lanes_of, processor_tasks
from headrace.core.group.state import ModelOrigin
from headrace.core.job_plan.planner import planned
from headrace.core.job_plan.programs import programs_of
from headrace.core.topology.sub_topologies import sub_topologies_of, watched_streams
from headrace.driver.planning.job_plan import JobPlan
from headrace.driver.planning.job_planner import JobPlanner, uncollected, with_limits, with_seen
from headrace.driver.planning.load_plan import load
from headrace.driver.planning.observe import observe, terms_of
from headrace.errors import UnavailableError
from headrace.exchange.fault_injection import reached
from headrace.model.change import ChangeRequest, Outcome
from headrace.model.streams import SSP
from headrace.model.topology import SourceKind
from headrace.ports.coordinator_store import JobReader

LOG = logging.getLogger("headrace.group")
TRIES_MAX = 5  # each time more processors are found that a plan changes


@dataclass(frozen=True, slots=True, eq=False)
class PlanOrder:
    """What a leader wants a plan for. `is_replan`: the group has planned in this run; `origin`: code and run of the leader;
    `requests`: why another plan is due; `locality`: where tasks have run, as processors have said."""

    epoch: int
    now_us: int
    wanted: WantedPlan
    is_replan: bool
    origin: ModelOrigin
    requests: Sequence[ChangeRequest] = ()
    locality: LocalityInfo = field(default_factory=LocalityInfo)


@dataclass(frozen=True, slots=True, eq=False)
class GroupPlanner:
    """Plans of the application that `planner` plans for a single driver."""

    planner: JobPlanner

    def origin(self) -> ModelOrigin | None:
        """What the plan in force was made for, as it is stored with it; None where no group has made it."""
        return plan_origin_of(self.planner.backend.system.metadata_store(self.planner.topology.application))

    @uncollected()
    def draft(self, order: PlanOrder) -> GroupDraft:
        """The plan that would be committed now; nothing is changed. Raises what cannot be planned."""
        planner, backend = self.planner, self.planner.backend
        config, system, store = planner.config, backend.system, backend.store
        slots = backend.engine.slots
        terms = terms_of(planner.topology, config, system.name, slots, None, order.is_replan, planner.sides)
        shape = order.wanted.shape
        terms = replace(
            terms, processors=shape.processors, next_version=shape.version, forgets_locality=shape.forgets
        )
        config.check_sub_topologies(sub.title for sub in terms.subs)
        reached("start", 6)
        elsewhere = None if backend.elsewhere is None else backend.elsewhere.requests()
        snapshot = observe(terms, system, store, epoch=order.epoch, now_us=order.now_us, elsewhere=elsewhere)
        snapshot = replace(
            snapshot,
            requests=(*order.requests, *snapshot.requests),
            locality=snapshot.locality.with_newer(order.locality),
        )
        return group_draft(planned(terms, snapshot), snapshot, order.wanted, store.grants() or {})

    def commit(self, order: PlanOrder, changed: Collection[str]) -> tuple[JobPlan, frozenset[str]]:
        """Take the grants of the `changed` processors back, fence their lanes, plan again with what is committed then, and
        commit; the plan, and the processors that it has changed, which may be more. Nothing but these grants has changed where
        this raises."""
        fenced, began_s = frozenset(changed), time.monotonic()
        for _ in range(TRIES_MAX):
            self.take_back(order.epoch, fenced)
            made = self.draft(order)
            if made.to_fence <= fenced:
                plan = self.planner.commit(made.draft, made.snapshot, self._change(made, order, fenced))
                took_us = {"plan": round((time.monotonic() - began_s) * 1e6)}
                applied = (one for one in plan.changes.values() if one.outcome is Outcome.APPLIED)
                self.planner.backend.changed([replace(one, phases_us=took_us) for one in applied])
                return plan, fenced | made.gains
            fenced |= made.to_fence
        raise UnavailableError(
            f"application {self.planner.topology.application!r}: {TRIES_MAX} plans each changed other processors",
            "its streams or requests change all the time; it is tried again",
        )

    def _change(self, made: GroupDraft, order: PlanOrder, fenced: frozenset[str]) -> GroupChange:
        store, gains, snapshot = self.planner.backend.store, made.gains - fenced, made.snapshot
        before, model = store.grants() or {}, snapshot.model
        begun = known_to_have_begun(before, model, snapshot.checkpoints)
        grants = after_change(before, fenced, made.portions, order.wanted.present, store.numbers_used(), gains, begun)
        had = processor_tasks(model, gains) if model is not None else frozenset()
        return GroupChange(processor_tasks(made.draft.job_model, fenced | gains) - had, grants, order.origin)

    def grant(self, order: PlanOrder, processors: Collection[str]) -> None:
        """Give these new grants under the plan in force: they are other incarnations of processors that have tasks in it."""
        store = self.planner.backend.store
        self.take_back(order.epoch, processors)
        grants = after_change(store.grants() or {}, processors, processors, order.wanted.present, store.numbers_used())
        store.write_grants(order.epoch, grants, origin_entry(order.origin))

    def take_back(self, epoch: int, processors: Collection[str]) -> None:
        """From now on these processors commit nothing: take their grants back, then fence all lanes but those of the others."""
        store = self.planner.backend.store
        grants = store.grants() or {}
        reached("group", 1)
        store.write_grants(epoch, {id_: grant for id_, grant in grants.items() if id_ not in processors})
        reached("group", 2)
        self.fence_others(epoch)
        reached("group", 3)

    def fence_others(self, epoch: int) -> None:
        """Fence every lane that was ever used but those of the processors that have a grant: nothing is committed from then on
        but under these grants."""
        store = self.planner.backend.store
        model = store.job_model()
        spared = {} if model is None else lanes_of(model, (store.grants() or {}).keys())
        used = {title: frozenset(range(count)) for title, count in store.lanes_used().items()}
        store.fence(epoch, {title: lanes - spared.get(title, frozenset()) for title, lanes in used.items()})

    def ends_of_inputs(self) -> dict[str, int]:
        """By SSP the end of all that was written so far to what the application reads from outside."""
        system, found = self.planner.backend.system, dict[str, int]()
        for sub in sub_topologies_of(self.planner.topology):
            for source in sub.sources:
                if source.kind is not SourceKind.REPARTITION:
                    ends = system.high_watermarks(source.stream)
                    found |= {str(SSP(system.name, source.stream, number)): end for number, end in ends.items()}
        return found

    def to_lead(self, epoch: int, made: GroupDraft | None) -> JobPlan:
        """The plan in force, as a leader goes by it. `made`: the last one that it has made, which has left that as it is; None
        where there is none: what waits is looked up then."""
        backend = self.planner.backend
        plan = self.loaded(backend.store, epoch, None)
        if made is not None:
            return with_seen(plan, made.draft, made.snapshot.streams)
        asked = scales_of(backend.system.metadata_store(self.planner.topology.application))
        return replace(plan, waiting_scales=decided(plan.scale_terms, asked, plan.model, plan.checkpoints).waiting)

    def loaded(self, store: JobReader, epoch: int, processor_id: str | None) -> JobPlan:
        """The plan in force, for rounds of one processor under its grant `epoch`. Streams that are written have as many
        partitions as they have now: a key's records are written by one processor."""
        planner, backend = self.planner, self.planner.backend
        system = backend.system
        terms = terms_of(planner.topology, planner.config, system.name, backend.engine.slots, None, True, planner.sides)
        metadata = system.metadata_store(planner.topology.application)
        model = store.job_model()
        if model is None:
            raise UnavailableError(
                f"application {planner.topology.application!r}: no job model is stored yet",
                "it is tried again, when the leader has planned",
            )
        written = {one.name: one.partitions for one in system.streams(of=planner.topology.application)}
        written |= {name: count for name, count in model.partition_counts.items() if name in written}  # as the others write
        has_replay = any(record.replay for record in startpoints_of(metadata).records.values())
        operators = stored_operators(metadata) or ()
        programs = programs_of(terms, planner.sides, model, written, operators, has_replay)
        programs = with_limits(planner.topology, programs, system)
        watched = watched_streams(terms.subs, planner.config.dead_letter_stream)
        counts = {name: written[name] for name in watched if name in written} | dict(model.partition_counts)
        plan = load(store, metadata, terms, programs, epoch)
        scale_terms = replace(plan.scale_terms, in_group=True)
        return replace(plan, scale_terms=scale_terms, found_counts=counts, processor_id=processor_id)
