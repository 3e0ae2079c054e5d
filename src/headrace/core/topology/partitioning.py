"""What a user's partitioner may answer, when two of them are one, and which inputs do not go by their keys.

Seeds: KIP-221 "StreamPartitioner"; SEP-5, "a customized partitioning algorithm". Without a partitioner a record goes by its
key (`core.keys.hashing`).
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any

from headrace.errors import OutOfRangeError
from headrace.model.topology import Function, Partitioning, Topology

PARTITIONER_ARGUMENTS = ("record", "number_of_partitions")
STREAM_ARGUMENT = "stream"


class TakesStream(StrEnum):
    """Whether a partitioner is given the name of the stream that it chooses a partition of, and how."""

    NO = "no"
    BY_NAME = "by name"
    THIRD = "third"


def takes_stream(partitioner: Callable[..., Any]) -> TakesStream:
    """By name where it has a parameter `stream` behind the first two; else as a third argument where it asks for three.

    >>> [takes_stream(one).value for one in (lambda r, n: 0, lambda r, n, *, stream: 0, lambda r, n, topic: 0)]
    ['no', 'by name', 'third']
    """
    try:
        signature = inspect.signature(partitioner)
    except (ValueError, TypeError):  # a built-in that says nothing of its arguments
        return TakesStream.NO
    names = list(signature.parameters)
    if STREAM_ARGUMENT in names:
        found = signature.parameters[STREAM_ARGUMENT]
        if found.kind is found.KEYWORD_ONLY or (found.kind is found.POSITIONAL_OR_KEYWORD and names.index(found.name) >= 2):
            return TakesStream.BY_NAME
    for count, takes in ((2, TakesStream.NO), (3, TakesStream.THIRD)):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return takes
    return TakesStream.NO


def called_for(partitioner: Callable[..., Any], stream: str) -> Callable[[Any, int], Any]:
    """The partitioner as a function of the record and the number of partitions alone."""
    match takes_stream(partitioner):
        case TakesStream.BY_NAME:
            return lambda record, partitions: partitioner(record, partitions, stream=stream)
        case TakesStream.THIRD:
            return lambda record, partitions: partitioner(record, partitions, stream)
    return partitioner


def chosen_partitions(given: object, partitions: int) -> tuple[int, ...] | None:
    """The partitions that a partitioner chose for a record: several take a copy each, none drops it; None is by its key.

    >>> chosen_partitions(2, 4), chosen_partitions([], 4), chosen_partitions([3, 0, 3], 4), chosen_partitions(None, 4)
    ((2,), (), (3, 0), None)

    Raises `TypeError` for what is no number of a partition, `OutOfRangeError` for one that the stream does not have. Seeds:
    KIP-221 "StreamPartitioner" (null is the default partitioner), KIP-837 (several, and none).
    """
    if given is None:
        return None
    if type(given) is int:  # the usual case
        return (checked_partition(given, partitions),)
    if isinstance(given, Collection) and not isinstance(given, str | bytes | bytearray | Mapping):
        return tuple(dict.fromkeys(checked_partition(_index(one, given), partitions) for one in given))
    return (checked_partition(_index(given, given), partitions),)


def checked_partition(number: int, partitions: int) -> int:
    """`number` if a stream of so many partitions has it."""
    if 0 <= number < partitions:
        return number
    raise OutOfRangeError(
        f"the partitioner gave partition {number}, and the stream has {partitions}: expected 0 to {partitions - 1}",
        "take the number modulo the number_of_partitions that the partitioner is given",
    )


def partitioned_otherwise(topology: Topology) -> tuple[str, ...]:
    """The streams, sorted, that are declared to be partitioned by something else than the key."""
    return tuple(sorted(source.stream for source in topology.sources if source.partitioning is Partitioning.OTHER))


def same_partitioner(one: Function | None, other: Function | None) -> bool:
    """Whether two streams are partitioned alike: both by the key, or both by one function.

    Two functions that only look alike are two: what a function will do cannot be known.
    """
    if one is None or other is None:
        return one is other
    return one.body is other.body or bool(one.body == other.body)  # equal: a method taken twice from one object


def _index(one: object, given: object) -> int:
    if not isinstance(one, bool):
        try:
            return operator.index(one)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise TypeError(
        f"the partitioner gave {given!r:.80}: expected the number of a partition, None for the one of its key, or a list"
        " of numbers, of which an empty one drops the record"
    )
