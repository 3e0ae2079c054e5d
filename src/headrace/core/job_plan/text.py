"""A plan as text, line by line: what golden files hold, and what the difference between two plans is made of.

The text is stable: sorted, without times and ids that are random. Each line names the task or stream that it is
about, so that a difference can be read without the lines around it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from headrace.core.job_plan.draft import Draft
from headrace.core.job_plan.planner import Refusal
from headrace.model.change import Change
from headrace.model.checkpoint import Checkpoint, identity_of
from headrace.model.durations import time_text
from headrace.model.job_model import JobModel
from headrace.model.names import partitions_text
from headrace.model.startpoint import StartpointRecord


def text_of(made: Draft | Refusal) -> str:
    """The whole plan; of a refusal the step, the error's class, its text and its hint.

    >>> from headrace.errors import ConfigError
    >>> print(text_of(Refusal(ConfigError("containers: expected 1", "give 1"), "tasks")), end="")
    refused by tasks: ConfigError: containers: expected 1
      hint: give 1
    """
    return "".join(f"{line}\n" for line in (_refusal(made) if isinstance(made, Refusal) else _plan(made)))


def difference(before: Draft | Refusal, after: Draft | Refusal) -> tuple[str, ...]:
    """The lines that a change of plan takes away ("- ...") and brings ("+ ..."), in their order; none where nothing changes."""
    lines = difflib.ndiff(text_of(before).splitlines(), text_of(after).splitlines())
    return tuple(line for line in lines if line[:1] in "+-")


def _refusal(refusal: Refusal) -> Iterator[str]:
    error = refusal.error
    yield f"refused by {refusal.step}: {type(error).__name__}: {error.message}"
    if error.hint is not None:
        yield f"  hint: {error.hint}"


def _plan(draft: Draft) -> Iterator[str]:
    model, seen = draft.job_model, draft.streams
    yield f"application {model.application}, job model {model.version}, {_elasticity(model)}"
    for stream, count in sorted(seen.counts.items()):
        before = seen.before.get(stream)
        was = "" if before in (None, count) else f", was {before}"
        yield f"reads {stream}: {partitions_text(count)}{was}{', recreated' if stream in seen.recreated else ''}"
    for stream, count in sorted(draft.creates.items()):
        yield f"creates {stream}: {partitions_text(count)}"
    for stream, error in sorted(seen.refused.items()):
        yield f"stops the readers of {stream}: {error.message}"
    for store, form in sorted(model.stores.items()):
        database = model.databases.get(store, store)
        yield f"store {store}: {form}{'' if database == store else f' in {database}'}"
    for sub in model.sub_topologies:
        for container in sub.containers:
            for task in container.tasks:
                lines = _checkpoint(draft.checkpoints[task.name]) if task.name in draft.checkpoints else [": no checkpoint"]
                yield from (f"{sub.title} container {container.lane} task {task.name}{line}" for line in lines)
    for one in model.left:
        yield f"left {one.task} {one.ssp}: {one.position}"
    for stream, record in sorted(draft.records.items()):
        expansions = "".join(f", {one.before} to {one.after}" for one in record.expansions)
        yield f"record {stream}: {partitions_text(record.partitions)}{expansions}"
    yield from _changes(draft)
    yield from (f"history: {_entry(change)}" for change in draft.changes.values())
    for kind, said in (("log", draft.log), ("note", draft.notes), ("applied", draft.applied)):
        yield from (f"{kind}: {line}" for line in said)


def _elasticity(model: JobModel) -> str:
    factors = {sub.title: sub.elasticity_factor for sub in model.sub_topologies}
    if len(set(factors.values())) == 1:
        return f"elasticity factor {min(factors.values())}"
    return f"elasticity factors {', '.join(f'{factor} of {title}' for title, factor in factors.items())}"


def _entry(change: Change) -> str:
    moved = " to ".join(part for part in (change.before, change.after) if part)
    parts = (f"{change.kind} {change.outcome}", change.what, moved, change.why)
    return ": ".join(filter(None, parts)) + (f", requested by {change.requested_by}" if change.requested_by else "")


def _checkpoint(checkpoint: Checkpoint) -> Iterator[str]:
    for ssp, position in sorted(checkpoint.positions.items()):
        mark = checkpoint.watermarks.get(ssp)
        yield f" reads {ssp} from {position}{'' if mark is None else f', watermark {time_text(mark)}'}"
    if checkpoint.head is not None:
        yield f" has state {identity_of(checkpoint.head)}"


def _changes(draft: Draft) -> Iterator[str]:
    """What of metadata the plan writes."""
    for id_, record in sorted(draft.changed_startpoints.items()):
        yield f"startpoint {id_}: {'forgotten' if record is None else _startpoint(record)}"
    for id_ in draft.done:
        yield f"request {id_} is done"
    for id_ in sorted(draft.waiting):
        yield f"request {id_} waits"
    for key, version in sorted(draft.rewind_changes.versions.items()):
        yield f"version {key}: {'deleted' if version is None else f'kept, left for {version.abandoned_for}'}"
    for rewind in draft.rewinds:
        for ssp, (start, end) in sorted(rewind.skipped_ranges.items()):
            yield f"skips {start} to {end - 1} of {ssp}"
    for title, handover in sorted(draft.handovers.items()):
        ranges = ", ".join(f"{piece.ssp} {piece.start} to {piece.end - 1}" for piece in handover.ranges)
        yield f"handover {title}: id {handover.id}, {ranges or 'nothing'}"


def _startpoint(record: StartpointRecord) -> str:
    moves = ", ".join(f"{one.task} {one.ssp} {one.before} to {one.offset}" for one in record.resolutions)
    replay = "" if record.replay is None else f", replay {record.replay}"
    return f"{record.status}{replay}{': ' if moves else ''}{moves}"
