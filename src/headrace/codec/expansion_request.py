"""The request that a command leaves for the driver of an application once it has expanded a stream that this reads."""

from __future__ import annotations

import msgspec

PARTITION_CHECKS = "partition-checks"  # namespace of the requests that ask to look at once


def expansion_request(stream: str, partitions: int, requested_by: str) -> bytes:
    """What a command leaves in `PARTITION_CHECKS` once it has expanded a stream."""
    return msgspec.json.encode({"stream": stream, "partitions": partitions, "by": requested_by})


def expansion_of(request: bytes) -> tuple[str, str] | None:
    """The stream of such a request, and who left it; None where it does not say. A request may come from anybody."""
    try:
        said = msgspec.json.decode(request, type=dict[str, str | int])
    except msgspec.MsgspecError:
        return None
    stream, by = said.get("stream"), said.get("by")
    return (stream, by) if isinstance(stream, str) and isinstance(by, str) else None
