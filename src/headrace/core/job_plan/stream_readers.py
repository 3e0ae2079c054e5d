"""Which applications read a stream, and what its growth does to them: by their stored job models, before anything is done; and
what is said of partitions that a job does not read yet. Which write it is known by the operators that they last ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import lcm

from headrace.core.job_plan.growth_rules import PARTITIONS_MAX, changes_of, next_doubling
from headrace.core.topology.compatibility import in_use
from headrace.core.topology.operator_changes import RunOperator
from headrace.errors import IncompatibleChangeError
from headrace.model.job_model import JobModel


@dataclass(frozen=True, slots=True)
class Reader:
    """An application that reads a stream and knows it with `before` partitions; `refusal` is why it could not follow.

    `disorder` is why a key's records would not be read in order, where it could: what it has not seen of the growth yet.
    """

    application: str
    before: int
    warning: str | None = None
    refusal: IncompatibleChangeError | None = None
    disorder: str | None = None
    multiples_help: bool = True  # of what it knows; nothing does where a partitioner of its own writes the stream


def readers_of(stream: str, stream_id: str, present: int, partitions: int, models: Iterable[JobModel]) -> tuple[Reader, ...]:
    """The applications with these job models that read `stream`, by name, and what its growth to `partitions` does to each.

    `present`: how many it has now. A job that does not run may know it with fewer.
    One that read a stream of that name which was deleted since (by its id) is none of them: it is refused for that.
    """
    return tuple(_reader(stream, present, partitions, model) for model in models_that_read(stream, stream_id, models))


def models_that_read(stream: str, stream_id: str, models: Iterable[JobModel]) -> tuple[JobModel, ...]:
    """The job models of the applications that read the stream of that name and id, by the application's name."""
    return tuple(
        model
        for model in sorted(models, key=lambda model: model.application)
        if stream in model.partition_counts and model.stream_ids.get(stream, stream_id) == stream_id
    )


def is_output(stream: str, operators: Iterable[RunOperator]) -> bool:
    """Whether one of an application's operators writes the stream of that name, whatever its id: outputs go by names.

    >>> is_output("out", [RunOperator("in", "stream", "source", (), "in"), RunOperator("o", "to", "source", ("in",), "out")])
    True
    """
    return any(one.about == stream for one in operators if one.parents)


def _reader(stream: str, present: int, partitions: int, model: JobModel) -> Reader:
    before, has_state = model.partition_counts[stream], _is_under_state(stream, model)
    by_users = set(model.partitioned_by_users) if has_state else set()
    stateless, unordered = () if has_state else (stream,), model.partitioned_otherwise
    changes = changes_of({stream: before}, {stream: partitions}, unordered, by_users, stateless=stateless)
    return Reader(
        model.application,
        before,
        next((growth.warning for growth in changes.grown), None),
        changes.refused.get(stream),
        None if changes.refused or stream in unordered else _disorder(stream, present, partitions),
        stream not in by_users,
    )


def _disorder(stream: str, present: int, partitions: int) -> str | None:
    """Why a growth from `present` would put a key's records out of order, with a job that knows fewer; None if it would not.

    It knows 4, and there are 8: a key in partition 5 comes to partition 9 of 12, and from 4 to 12 it is waited for in 1 only.
    """
    if partitions % present == 0:
        return None
    return (
        f"stream {stream!r} has {present} partitions by now, and {partitions} is no multiple of {present}: what the "
        "application has not read of a key yet would not be read in the order in which it was written"
    )


def _is_under_state(stream: str, model: JobModel) -> bool:
    """Whether a sub-topology that reads it has stores."""
    places = {form.partition("|")[0] for form in in_use(model.stores).values()}
    return any(
        sub.title in places and any(ssp.stream == stream for task in sub.tasks for ssp in task.partitions)
        for sub in model.sub_topologies
    )


def count_for_all(readers: Iterable[Reader], present: int, at_least: int) -> int | None:
    """A count, not below `at_least`, that a stream of `present` partitions may grow to with every reader following.

    Doubled from what all their counts and `present` divide. None where a stream may not have so many, or nothing helps.

    >>> count_for_all([Reader("a", 4), Reader("b", 4)], 4, 6), count_for_all([Reader("a", 4), Reader("b", 6)], 6, 7)
    (8, 12)
    """
    known = list(readers)
    if not all(reader.multiples_help for reader in known):
        return None
    count = next_doubling(lcm(present, *(reader.before for reader in known)), at_least)
    return count if count <= PARTITIONS_MAX else None


@dataclass(frozen=True, slots=True)
class UnassignedPartitions:
    """The partitions of `stream` from `known` on, of `present`, which no task reads; `refusal` is why none will."""

    stream: str
    known: int
    present: int
    refusal: IncompatibleChangeError | None = None


def unassigned_of(
    model: JobModel, present: Mapping[str, int], stream_ids: Mapping[str, str]
) -> tuple[UnassignedPartitions, ...]:
    """What the job of `model` does not read yet, of streams that have `present` partitions and these ids now, by stream.

    Not of a stream that was recreated: it is another one, whatever its number.
    """
    return tuple(
        UnassignedPartitions(stream, reader.before, count, reader.refusal)
        for stream, count in sorted(present.items())
        if stream in stream_ids and count > model.partition_counts.get(stream, count)
        for reader in readers_of(stream, stream_ids[stream], count, count, [model])
    )


def unassigned_text(found: UnassignedPartitions, is_running: bool) -> str:
    """What is to be said of it.

    >>> unassigned_text(UnassignedPartitions("flights", 4, 8), is_running=False)
    "partitions 4 to 7 of stream 'flights' are not read yet: the job picks them up at its next start"
    >>> unassigned_text(UnassignedPartitions("flights", 4, 5), is_running=True)
    "partition 4 of stream 'flights' is not read yet: the job picks it up at its next check, within partition_check_interval_s"
    """
    last = found.present - 1
    one = last == found.known
    which = f"partition {last}" if one else f"partitions {found.known} to {last}"
    which += f" of stream {found.stream!r} {'is' if one else 'are'} not read"
    if found.refusal is None:
        when = "at its next check, within partition_check_interval_s" if is_running else "at its next start"
        return f"{which} yet: the job picks {'it' if one else 'them'} up {when}"
    ways = f"; how to recover: {found.refusal.hint}" if found.refusal.hint else ""
    return f"{which}; the next start will fail: {found.refusal.message}{ways}"
