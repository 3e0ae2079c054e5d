"""Rounds and changes of the plan as spans of a trace: what each span says, and when its parts were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.core.metrics.phases import COMMIT, OTHER, PHASES
from headrace.core.metrics.table import METRICS, MetricKind, MetricLabel, MetricValues
from headrace.model.change import LOCAL_STORES, Change
from headrace.model.checkpoint import RoundId

PREFIX = "headrace."
FIRST_ROUND = "first round"  # of a change: a span of its own, as each round


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took from `start_ns` to `end_ns` (since the epoch), and the parts that it had."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int | float]
    parts: tuple[Span, ...] = field(default=())


def round_span(sub_topology: str, round_id: RoundId | None, values: MetricValues, start_ns: int, end_ns: int) -> Span | None:
    """A committed round, of the metrics that were recorded with it; None where they are of no round. Its attributes are what it
    added to the counters of the sub-topology, its containers and its tasks: sums, as several of these work at once. The span of
    the containers has the phases of the round in it, each as long as it took: one after the other, though a container turns
    from reading to processing and back for each batch. What the driver commits is a span of its own."""
    if not values.get("round-ns", {}).get(""):
        return None
    attributes: dict[str, str | int | float] = {f"{PREFIX}sub_topology": sub_topology}
    if round_id is not None:
        attributes |= {f"{PREFIX}epoch": round_id.epoch, f"{PREFIX}round": round_id.number}
    for name, by_label in values.items():
        one = METRICS[name]
        if one.kind is MetricKind.COUNTER and one.is_summed and one.label is not MetricLabel.ROUND_PHASE:
            total = by_label["sum"] if "sum" in by_label else sum(by_label.values())
            attributes[PREFIX + name.replace("-", "_")] = round(total)
    committed_ns = max(start_ns, end_ns - round(values.get("round-commit-ns", {}).get("", 0)))
    phases = _in_containers(values.get("round-phase-ns", {}), end_ns - committed_ns, start_ns, committed_ns)
    parts = Span("containers", start_ns, committed_ns, {}, phases), Span("commit", committed_ns, end_ns, {})
    return Span(f"round of {sub_topology}", start_ns, end_ns, attributes, parts)


def _in_containers(phases_ns: Mapping[str, float], driver_ns: int, start_ns: int, end_ns: int) -> tuple[Span, ...]:
    """The phases of a round without the commit of the driver, which took `driver_ns`; the engine's time comes first."""
    lengths = dict(phases_ns)
    if COMMIT in lengths:
        lengths[COMMIT] = max(0, lengths[COMMIT] - driver_ns)
    found, at_ns = list[Span](), start_ns
    for name in (OTHER, *(phase for phase in PHASES if phase != OTHER)):
        if length_ns := round(lengths.get(name, 0)):
            found.append(Span(name, at_ns, min(end_ns, at_ns + length_ns), {}))
            at_ns = min(end_ns, at_ns + length_ns)
    return tuple(found)


def change_span(change: Change, end_ns: int) -> Span:
    """A change of the plan that is in force since `end_ns`: the phases that it took, one after the other; its first round is
    a span of its own.

    >>> from headrace.model.change import ChangeKind, Outcome
    >>> change = Change(0, ChangeKind.SCALE, "factor", Outcome.APPLIED, 2, pause_us=3, phases_us={"plan": 2, "fence": 1})
    >>> span = change_span(change, 10_000)
    >>> span.start_ns, [(part.name, part.start_ns, part.end_ns) for part in span.parts]
    (7000, [('fence', 7000, 8000), ('plan', 8000, 10000)])
    """
    phases = [(name, us * 1000) for name, us in change.ordered_phases_us.items() if name != FIRST_ROUND]
    in_pause = sum(ns for name, ns in phases if name not in (LOCAL_STORES, "end of the rounds"))
    whole_ns = sum(ns for _, ns in phases) + max(0, (change.pause_us or 0) * 1000 - in_pause)
    at_ns = start_ns = end_ns - whole_ns
    parts = []
    for name, phase_ns in phases:
        parts.append(Span(name, at_ns, at_ns + phase_ns, {}))
        at_ns += phase_ns
    facts = {"kind": change.kind.value, "what": change.what, "outcome": change.outcome.value, "job_model": change.job_model}
    facts |= {"requested_by": change.requested_by, "from": change.before, "to": change.after, "why": change.why}
    attributes = {PREFIX + name: fact for name, fact in facts.items() if fact != ""}
    return Span(f"change: {change.kind.value}", start_ns, end_ns, attributes, tuple(parts))
