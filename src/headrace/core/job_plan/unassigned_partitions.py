"""What is said of partitions that a stream has by now, and that a stored job model does not know of yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.core.job_plan.stream_readers import readers_of
from headrace.errors import IncompatibleChangeError
from headrace.model.job_model import JobModel


@dataclass(frozen=True, slots=True)
class UnassignedPartitions:
    """The partitions of `stream` from `known` on, of `present`, which no task reads; `refusal` is why none will."""

    stream: str
    known: int
    present: int
    refusal: IncompatibleChangeError | None = None


def untaken_of(model: JobModel, present: Mapping[str, int], stream_ids: Mapping[str, str]) -> tuple[UnassignedPartitions, ...]:
    """What the job of `model` does not read yet, of streams that have `present` partitions and these ids now, by stream.

    Not of a stream that was recreated: it is another one, whatever its number.
    """
    return tuple(
        UnassignedPartitions(stream, reader.before, count, reader.refusal)
        for stream, count in sorted(present.items())
        if stream in stream_ids and count > model.partition_counts.get(stream, count)
        for reader in readers_of(stream, stream_ids[stream], count, count, [model])
    )


def untaken_text(untaken: UnassignedPartitions, is_running: bool) -> str:
    """What is to be said of it.

    >>> untaken_text(UnassignedPartitions("flights", 4, 8), is_running=False)
    "partitions 4 to 7 of stream 'flights' are not read yet: the job picks them up at its next start"
    >>> untaken_text(UnassignedPartitions("flights", 4, 5), is_running=True)
    "partition 4 of stream 'flights' is not read yet: the job picks it up at its next check, within partition_check_interval_s"
    """
    last = untaken.present - 1
    one = last == untaken.known
    which = f"partition {last}" if one else f"partitions {untaken.known} to {last}"
    which += f" of stream {untaken.stream!r} {'is' if one else 'are'} not read"
    if untaken.refusal is None:
        when = "at its next check, within partition_check_interval_s" if is_running else "at its next start"
        return f"{which} yet: the job picks {'it' if one else 'them'} up {when}"
    ways = f"; how to recover: {untaken.refusal.hint}" if untaken.refusal.hint else ""
    return f"{which}; the next start will fail: {untaken.refusal.message}{ways}"
