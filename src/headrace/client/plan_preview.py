"""What the next start of an application would change, and what an expansion of its streams would: nothing is stored."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.codec.job_records import STARTPOINTS
from headrace.config.loading import Config
from headrace.core.group.drafts import GroupStep, WantedPlan, group_draft, wanted_again
from headrace.core.job_plan.draft import Draft, PlanTerms, SeenStreams
from headrace.core.job_plan.growth_rules import check_expansion, refused_multiple
from headrace.core.job_plan.planner import Refusal, plan
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.job_plan.text import difference, text_of
from headrace.core.topology.sub_topologies import whole_name_of
from headrace.driver.planning.observe import observe, terms_of
from headrace.errors import ConfigError, HeadraceError, StreamNotFoundError, hint_of_missing
from headrace.model.job_model import JobModel
from headrace.model.topology import Topology
from headrace.ports.system import System
from headrace.wiring.launch import topology_before_engine
from headrace.wiring.matched_streams import as_matched
from headrace.wiring.request_store import metadata_elsewhere
from headrace.wiring.spark_sessions import local_slots


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """How the plan of an application would change.

    `before` and `after` are job models' versions, None where there is none: before the first start, and where the plan is
    refused with `error`. `lines` begin with "- " for what goes and "+ " for what comes; none where nothing changes.
    """

    application: str
    before: int | None
    after: int | None
    lines: tuple[str, ...]
    error: HeadraceError | None = None


def plan_preview(topology: Topology, config: Config, system: System, expanded: Mapping[str, int] | None = None) -> PlanPreview:
    """The difference between the plan that is stored and the one that a start would make now. `expanded`: streams, by name,
    that are to have so many partitions then. Errors for these as `stream expand` has them. Of a group it is the plan of its
    leader, for the processors that have tasks now."""
    known = topology_before_engine(as_matched(topology, config, system))
    config.check_sub_topologies(sub.title for sub in terms_of(known, config, system.name).subs)
    store = system.job_store(topology.application)
    model = store.job_model()
    wanted = None if model is None or config.coordinator is None else wanted_again(model)
    terms = _terms(terms_of(known, config, system.name, local_slots(config) or _containers(model)), wanted)
    with metadata_elsewhere(config, topology.application) as elsewhere:
        requests = None if elsewhere is None else elsewhere.requests(STARTPOINTS)
    snapshot = observe(terms, system, store, now_us=time.time_ns() // 1000, elsewhere=requests)
    counts = {_stream(name, terms, snapshot): count for name, count in (expanded or {}).items()}
    for stream, count in counts.items():
        check_expansion(stream, snapshot.streams[stream].partitions, count)
    made = plan(terms, snapshot.with_partitions(counts))
    before = None if snapshot.model is None else snapshot.model.version
    if isinstance(made, Refusal):
        planned = [(name, snapshot.streams[name].partitions, count) for name, count in counts.items() if name in terms.reads]
        bad = [one for one in planned if one[2] % one[1]] if made.step == "streams" else []
        error = refused_multiple(*bad[0], terms.application) if bad else made.error
        return PlanPreview(topology.application, before, None, (), error)
    if before is not None and wanted is not None and group_draft(made, snapshot, wanted, {}).step is GroupStep.NOTHING:
        return PlanPreview(topology.application, before, before, ())
    all_new = [f"+ {line}" for line in text_of(made).splitlines()]
    lines = all_new if before is None else difference(_stored(terms, snapshot), made)
    return PlanPreview(topology.application, before, made.job_model.version, tuple(lines))


def _stream(name: str, terms: PlanTerms, snapshot: Snapshot) -> str:
    """The whole name of a stream that is there and read, which may be a repartition's own: `by-carrier`."""
    whole, read = whole_name_of(terms.application, name, snapshot.streams), sorted(terms.reads)
    if whole in read:
        return str(whole)
    if whole_name_of(terms.application, name, read) is not None:
        raise StreamNotFoundError(f"stream {name!r} does not exist on {terms.url} yet", "the first start creates it")
    hint = f"the application reads: {', '.join(read)}"
    if whole is not None:
        raise ConfigError(f"application {terms.application!r} does not read stream {name!r}: its plan would stay", hint)
    raise StreamNotFoundError(f"stream {name!r} does not exist on {terms.url}", hint_of_missing(name, read, hint))


def _terms(terms: PlanTerms, wanted: WantedPlan | None) -> PlanTerms:
    """Those of a group, where a plan of one is wanted."""
    if wanted is None:
        return terms
    return replace(terms, processors=wanted.shape.processors, next_version=wanted.shape.version)


def _containers(model: JobModel | None) -> int:
    """How many containers a sub-topology gets that does not say, on a cluster that is not asked: as in the stored plan."""
    return max((len(sub.containers) for sub in model.sub_topologies), default=1) if model else 1


def _stored(terms: PlanTerms, snapshot: Snapshot) -> Draft:
    """The plan in force, as what is stored of it tells."""
    assert snapshot.model is not None
    counts = dict(snapshot.model.partition_counts)
    return Draft(
        terms,
        snapshot.offsets,
        streams=SeenStreams(counts=counts, before=counts),
        model=snapshot.model,
        records=snapshot.partition_records,
        checkpoints=snapshot.checkpoints,
        rewinds=tuple(snapshot.rewinds),
    )
