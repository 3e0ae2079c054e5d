"""Owns what a user's partitioner may answer, when two of them are one, and which inputs do not go by their keys.

Seeds: KIP-221 "StreamPartitioner"; SEP-5, "a customized partitioning algorithm". Without a partitioner a record goes by its
key (`core.hashing`).
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping

from headrace.errors import OutOfRangeError
from headrace.model.topology import Function, Partitioning, Topology

PARTITIONER_ARGUMENTS = ("record", "number_of_partitions")


def chosen_partitions(given: object, partitions: int) -> tuple[int, ...]:
    """The partitions that a partitioner chose for a record: none drops it, several take a copy each.

    >>> chosen_partitions(2, 4), chosen_partitions(None, 4), chosen_partitions([3, 0, 3], 4)
    ((2,), (), (3, 0))

    Raises `TypeError` for what is no number of a partition, `OutOfRangeError` for one that the stream does not have.
    """
    if given is None:
        return ()
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

    Two functions that only look alike are two: nobody can say what a function will do.
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
        f"the partitioner gave {given!r:.80}: expected the number of a partition, None to drop the record, or a list of numbers"
    )
