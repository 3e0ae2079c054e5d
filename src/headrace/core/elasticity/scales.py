"""Which scale each sub-topology has from a plan on: what was in force, what the configuration says now, what is requested.

A start keeps what is in force. The configuration counts where it was edited: where it says something else than it did at the
last look. Requests come after it, in their order; the last one for a sub-topology wins. A factor that would make one task of
tasks at different positions waits until they are together, and all else is done without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.core.elasticity.recut import Recut, positions_to_reach, recut_of
from headrace.core.job_plan.groupers import AllSspsToEveryTask, GroupByPartition, SystemStreamPartitionGrouper
from headrace.core.keys.key_layout import SLOTS
from headrace.core.topology.store_forms import parts_of
from headrace.core.topology.sub_topologies import SubTopology, broadcast_databases
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel
from headrace.model.scale import AUTOMATIC, Scale, ScaleInForce, ScaleRequest, StoredScales
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

CONTAINERS_MAX = 4_096
BY_CONFIGURATION = ""
SLOTS_OF_GROUP = "in a group each slot of a processor is a container of every sub-topology"


@dataclass(frozen=True, slots=True)
class ScaledSub:
    """A sub-topology as its scale goes. `broadcast`: streams that every task reads whole; `whole`: the databases of these."""

    name: str | None
    broadcast: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()

    @property
    def title(self) -> str:
        return self.name or "source"


def scaled_sub(sub: SubTopology) -> ScaledSub:
    broadcast = frozenset(source.stream for source in sub.sources if source.broadcast)
    return ScaledSub(sub.name, broadcast, broadcast_databases(sub.nodes))


@dataclass(frozen=True, slots=True, eq=False)
class ScaleTerms:
    """What is known of a job. `configured`: the scale that the configuration gives, by name. `grouper`: of a sub-topology with
    so many containers. `in_group`: a standalone group runs it, where each slot of a processor is a container."""

    subs: tuple[ScaledSub, ...] = ()
    configured: Callable[[str | None], Scale] = lambda name: Scale()
    grouper: Callable[[int], SystemStreamPartitionGrouper] = lambda containers: GroupByPartition()
    in_group: bool = False


@dataclass(frozen=True, slots=True)
class ScaleRequests:
    """What is requested, by id and in order, and what is on record. `unreadable`: by id, what is wrong with them. `refused`:
    those that no plan can be made with, and why."""

    stored: StoredScales = field(default_factory=StoredScales)
    requests: Mapping[str, ScaleRequest] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def refusing(self, why: str) -> ScaleRequests:
        """The same, with all that is open refused."""
        return replace(self, refused={**self.refused, **dict.fromkeys(self.open, why)})

    @property
    def open(self) -> dict[str, ScaleRequest]:
        """Those that are not done with."""
        out = {*self.stored.settled, *self.refused}
        return {id_: one for id_, one in self.requests.items() if id_ not in out}


@dataclass(frozen=True, slots=True)
class ScaleChange:
    """The scale of a sub-topology, by its title, as a plan changes it. `by`: who has asked; `reason`: why, as they say."""

    sub_topology: str
    before: Scale
    after: Scale
    by: str = BY_CONFIGURATION
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """What comes of it.

    `in_force`: by title, with this plan. `recuts`: of the sub-topologies whose factor changes. `waiting`: titles of those
    whose change waits, with the scale that is wanted and the positions to reach before. `settled`: requests that are done with;
    of these `refused` and why, `superseded` by a later one before they came into force.
    """

    in_force: Mapping[str, ScaleInForce] = field(default_factory=dict)
    recuts: tuple[Recut, ...] = ()
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    changes: tuple[ScaleChange, ...] = ()
    settled: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    superseded: tuple[str, ...] = ()

    def factor_of(self, title: str) -> int:
        return self.in_force[title].scale.factor

    def containers_of(self, title: str) -> int | None:
        """How many are wanted; None for as many as the engine runs at once."""
        return self.in_force[title].scale.containers or None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A change that waits for tasks to come together: at `positions`, by whole partition."""

    recut: Recut
    positions: Mapping[SSP, int]
    by: str = BY_CONFIGURATION

    def behind(self, checkpoints: Mapping[TaskName, Checkpoint]) -> dict[TaskName, int]:
        """The tasks that are not there yet, and how many offsets each has before it. Tasks that an edit has taken away
        have no checkpoint: nothing waits for them."""
        found: dict[TaskName, int] = {}
        for task in sorted(self.recut.former & checkpoints.keys()):
            there = checkpoints[task].positions
            left = sum(max(0, target - there[ssp]) for ssp, target in self.positions.items() if ssp in there)
            if left:
                found[task] = left
        return found

    def text(self, checkpoints: Mapping[TaskName, Checkpoint]) -> str:
        """What the change waits for, for people."""
        behind = self.behind(checkpoints)
        if not behind:
            return f"factor {self.recut.factor} is about to come into force"
        last = max(behind, key=lambda task: behind[task])
        others = f" and {len(behind) - 1:,} others" if len(behind) > 1 else ""
        verb = "are" if others else "is"
        distance = f"{last}{others} {verb} behind, by {behind[last]:,} offsets"
        return f"factor {self.recut.factor} waits until tasks that are to be merged are together: {distance}"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """`setters`: of each part the request that set it last, "" for the configuration, absent where none did."""

    scale: Scale
    setters: Mapping[str, str] = field(default_factory=dict)


def decided(
    terms: ScaleTerms, asked: ScaleRequests, model: JobModel | None, checkpoints: Mapping[TaskName, Checkpoint]
) -> ScaleDecision:
    """The scales that a plan is made with. `model` and `checkpoints`: as stored, None and empty before the first run."""
    before = {sub.title: _in_force(sub, terms, asked.stored, model) for sub in terms.subs}
    wanted = {sub.title: _configured(before[sub.title], terms.configured(sub.name)) for sub in terms.subs}
    refused = {id_: f"it cannot be read: {why}" for id_, why in asked.unreadable.items()} | dict(asked.refused)
    requests = asked.open
    for id_, request in requests.items():
        why = refusal_of(request, terms)
        if why is not None:
            refused[id_] = why
            continue
        for title in _titles_of(request, terms):
            wanted[title] = _with_request(wanted[title], id_, request)
    recuts: list[Recut] = []
    waiting: dict[str, Waiting] = {}
    in_force: dict[str, ScaleInForce] = {}
    for sub in terms.subs:
        title = sub.title
        now, then, by = wanted[title].scale, before[title].scale, _author(wanted[title], requests, before[title])
        if now.factor != then.factor and model is not None and checkpoints and _is_in(model, sub.name):
            recut = recut_of(model.sub_topology(sub.name), now.factor, sub.broadcast, _whole(sub, model))
            if positions := positions_to_reach(recut, checkpoints):
                waiting[title] = Waiting(recut, positions, by)
                in_force[title] = before[title]
                continue
            recuts.append(recut)
        in_force[title] = ScaleInForce(now, terms.configured(sub.name), by)
    settled, superseded = _settled(requests, refused, wanted, waiting, terms)
    return ScaleDecision(
        in_force,
        tuple(recuts),
        waiting,
        tuple(_changes(before, in_force, wanted, requests)) if model is not None else (),
        settled,
        refused,
        superseded,
    )


def stored_scales(asked: ScaleRequests, decision: ScaleDecision) -> StoredScales:
    """What is to be on record with a plan."""
    there = asked.requests.keys() | asked.unreadable.keys()
    settled = {*asked.stored.settled, *decision.settled} & there
    return StoredScales(dict(sorted(decision.in_force.items())), tuple(sorted(settled)))


def _in_force(sub: ScaledSub, terms: ScaleTerms, stored: StoredScales, model: JobModel | None) -> ScaleInForce:
    """As stored; of a job that was last run by an older version as its model has it."""
    found, configured = stored.scales.get(sub.title), terms.configured(sub.name)
    if model is None or not _is_in(model, sub.name):
        return ScaleInForce(configured, configured)
    factor = model.sub_topology(sub.name).elasticity_factor
    if found is None:
        known = Scale(factor, configured.containers)
        return ScaleInForce(known, known)
    return replace(found, scale=replace(found.scale, factor=factor))


def _is_in(model: JobModel, name: str | None) -> bool:
    return any(sub.name == name for sub in model.sub_topologies)


def _configured(before: ScaleInForce, now: Scale) -> _Wanted:
    wanted = _Wanted(before.scale)
    if now.factor != before.configured.factor:
        wanted = _Wanted(replace(wanted.scale, factor=now.factor), {"factor": BY_CONFIGURATION})
    if now.containers != before.configured.containers:
        setters = {**wanted.setters, "containers": BY_CONFIGURATION}
        wanted = _Wanted(replace(wanted.scale, containers=now.containers), setters)
    return wanted


def _with_request(wanted: _Wanted, id_: str, request: ScaleRequest) -> _Wanted:
    scale, setters = wanted.scale, dict(wanted.setters)
    if request.factor is not None:
        scale, setters["factor"] = replace(scale, factor=request.factor), id_
    if request.containers is not None:
        scale, setters["containers"] = replace(scale, containers=request.containers), id_
    return _Wanted(scale, setters)


def _author(wanted: _Wanted, requests: Mapping[str, ScaleRequest], before: ScaleInForce) -> str:
    """Who has set the scale last: of two requests for its two parts the later."""
    if not wanted.setters:
        return before.set_by
    of_requests = [id_ for id_ in requests if id_ in wanted.setters.values()]
    return requests[of_requests[-1]].requested_by if of_requests else BY_CONFIGURATION


def _titles_of(request: ScaleRequest, terms: ScaleTerms) -> list[str]:
    return [sub.title for sub in terms.subs if request.sub_topology in (None, sub.title)]


def _whole(sub: ScaledSub, model: JobModel) -> frozenset[str]:
    """The databases that every virtual task has whole; also those of global tables that were removed, in kept versions."""
    found = set(sub.whole)
    for store, place in model.stores.items():
        title, _, form = place.partition("|")
        parts = parts_of(form)
        if title == sub.title and parts is not None and parts.kind == "global":
            found.add(model.databases.get(store, store))
    return frozenset(found)


# --- requests ---------------------------------------------------------------------------------------------------------


def refusal_of(request: ScaleRequest, terms: ScaleTerms) -> str | None:
    """Why a request cannot be done, whatever the tasks' positions; None where it can. It may hold values of any type."""
    titles = [sub.title for sub in terms.subs]
    if request.sub_topology is not None and request.sub_topology not in titles:
        return f"there is no sub-topology {request.sub_topology!r}; there are: {', '.join(titles)}"
    factor, containers = request.factor, request.containers
    if factor is None and containers is None:
        return "it asks for nothing: expected a factor, a number of containers, or both"
    for name, given in (("elasticity factor", factor), ("containers", containers)):
        if given is not None and type(given) is not int:  # True is an int, and no number
            return f"{name} {given!r}: expected a whole number, as int"
    if not isinstance(request.reason, str):
        return f"reason {request.reason!r}: expected text"
    if factor is not None and (not 1 <= factor <= SLOTS or factor & (factor - 1)):
        return f"elasticity factor {factor}: expected a power of two, 1 to {SLOTS:,}{_nearest(factor)}"
    if containers is not None and not AUTOMATIC <= containers <= CONTAINERS_MAX:
        return f"containers {containers}: expected 1 to {CONTAINERS_MAX:,}, or automatic"
    grouper = terms.grouper(containers or 1)
    if terms.in_group and containers and not makes_as_many_tasks(grouper, containers):
        return (
            f"containers {containers}: {SLOTS_OF_GROUP}; start processors or stop some, or give each another number of slots "
            "(spark.master=local[N]); only the elasticity factor can be requested"
        )
    if factor is not None and factor > 1 and isinstance(grouper, AllSspsToEveryTask):
        return (
            f"elasticity factor {factor} under ssp_grouper {grouper}: every task reads everything there, and key buckets would "
            "take from each what it is there to read"
        )
    return None


def makes_as_many_tasks(grouper: SystemStreamPartitionGrouper, containers: int) -> bool:
    """Whether the number of containers says how many tasks there are, in a group as well.

    >>> makes_as_many_tasks(AllSspsToEveryTask(3), 3), makes_as_many_tasks(GroupByPartition(), 3)
    (True, False)
    """
    return isinstance(grouper, AllSspsToEveryTask) and grouper.tasks == containers


def _nearest(factor: int) -> str:
    """The powers of two beside a factor that is none.

    >>> _nearest(3), _nearest(0), _nearest(5_000)
    ('; the nearest are 2 and 4', '', '')
    """
    low = 1 << (factor.bit_length() - 1) if 1 < factor < SLOTS else 0
    return f"; the nearest are {low} and {2 * low}" if low else ""


def _settled(
    requests: Mapping[str, ScaleRequest],
    refused: Mapping[str, str],
    wanted: Mapping[str, _Wanted],
    waiting: Collection[str],
    terms: ScaleTerms,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The requests that are done with, and those of them that never came into force.

    One that waits keeps all that come after it: else it would be applied over them later.
    """
    settled, superseded = list(refused), []
    for id_, request in requests.items():
        if id_ in refused:
            continue
        counts_for = [title for title in _titles_of(request, terms) if id_ in wanted[title].setters.values()]
        if any(title in waiting for title in counts_for):
            break
        settled.append(id_)
        if not counts_for:
            superseded.append(id_)
    return tuple(settled), tuple(superseded)


def _changes(
    before: Mapping[str, ScaleInForce],
    after: Mapping[str, ScaleInForce],
    wanted: Mapping[str, _Wanted],
    requests: Mapping[str, ScaleRequest],
) -> Iterable[ScaleChange]:
    for title, now in after.items():
        if now.scale != before[title].scale:
            reasons = [requests[id_].reason for id_ in dict.fromkeys(wanted[title].setters.values()) if id_ in requests]
            yield ScaleChange(title, before[title].scale, now.scale, now.set_by, "; ".join(filter(None, reasons)))
