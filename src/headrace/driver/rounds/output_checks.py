"""Whether what a sub-topology writes to is still there: asked after a round that failed, as others may delete streams."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from headrace.core.topology.sub_topologies import SubTopology
from headrace.errors import IncompatibleChangeError, StreamNotFoundError
from headrace.ports import Streams

GONE_S = 2.0  # for this long a broker that has just started may know nothing of a stream


def output_streams(sub: SubTopology, dead_letter: str | None) -> tuple[str, ...]:
    """The streams that a sub-topology writes to by name, and others may change; a function may name any other."""
    named = {sink.stream for sink in sub.sinks if isinstance(sink.stream, str)}
    return tuple(sorted(named | ({dead_letter} if dead_letter is not None else set())))


def watched_streams(subs: Collection[SubTopology], dead_letter: str | None) -> set[str]:
    """The streams whose numbers of partitions a plan is made from: those that are read, and those that are written."""
    return {stream for sub in subs for stream in (*sub.reads, *sub.writes, *output_streams(sub, dead_letter))}


def check_outputs(streams: Streams, names: tuple[str, ...], counts: Mapping[str, int]) -> None:
    """`StreamNotFoundError` or `IncompatibleChangeError` where one of `names` was deleted, or has less than `counts` says."""
    for name in names:
        began_s = time.monotonic()
        while (found := _partitions(streams, name)) is None and time.monotonic() < began_s + GONE_S:
            time.sleep(0.1)
        if found is None:
            raise StreamNotFoundError(
                f"output stream {name!r} was deleted while the application runs",
                f"recreate it with {counts[name]} partitions and restart the application: it resumes from the last "
                "commit; the records of the deleted stream are lost",
            )
        if found < counts[name]:
            raise IncompatibleChangeError(
                f"output stream {name!r} has fewer partitions than when the application began: {found}, not {counts[name]}",
                "restart the application: it resumes from the last commit, with the partitions that exist",
            )


def _partitions(streams: Streams, name: str) -> int | None:
    try:
        return len(streams.high_watermarks(name))
    except StreamNotFoundError:
        return None
