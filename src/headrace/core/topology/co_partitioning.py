"""Whether what meets in an operator with state meets in one task: a key's records of all the streams it takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set

from headrace.core.topology.partition_families import meetings_of
from headrace.core.topology.partitioning import same_partitioner
from headrace.core.topology.sub_topologies import SubTopology, sharers_of
from headrace.errors import TopologyError
from headrace.model.job_model import TaskModel
from headrace.model.names import partitions_text
from headrace.model.tasks import TaskName
from headrace.model.topology import Function

_RESIDUES_MAX = 1_000_000  # counts with a larger common multiple share so few tasks that they may as well be refused


def check_co_partitioned(
    sub: SubTopology,
    counts: Mapping[str, int],
    tasks: Iterable[TaskModel],
    partitioners: Mapping[str, Function] | None = None,
) -> None:
    """`TopologyError` for an operator with state whose streams do not bring a key to one task.

    A key is in the partition with the number hash(key) mod count of every stream that is keyed alike, and that partition
    has to be in the same task everywhere. So the counts must be equal; or one of them is that of a stream that grew, and
    whose tasks stayed the same. A broadcast stream goes to all tasks, and is left out. Where a stream has one of
    `partitioners`, a key is where that says; then all must have the same one, and equal counts.
    """
    by_users = partitioners or {}
    owners: dict[str, dict[int, set[TaskName]]] = {}
    meetings = meetings_of([sub])
    sharing = {
        name: f"shares store {store!r} with {', '.join(map(repr, {*names} - {name}))}"
        for store, names in sharers_of(sub.nodes).items()
        for name in names
    }
    for task in tasks:
        if task.name.bucket is not None and task.name.bucket.index > 0:
            continue  # a key's bucket is the same in all streams, so whole tasks are all that matters
        for ssp in task.partitions:
            owners.setdefault(ssp.stream, {}).setdefault(ssp.partition, set()).add(task.name.whole)
    for operator, streams in {**meetings.joined, **meetings.keyed}.items():
        does = "joins by key" if operator in meetings.joined else sharing.get(operator, "keeps state by key")
        everywhere = {frozenset(names) for stream in streams for names in owners[stream].values()}
        if len(everywhere) == 1:  # one task, or the same ones, for all of it
            continue
        first = streams[0]
        for other in streams[1:]:
            apart = _residue_apart(owners[first], owners[other], first in by_users or other in by_users)
            of_first, of_other = by_users.get(first), by_users.get(other)
            if counts[first] != counts[other] and apart is not None:
                found = partitions_text(counts[first]), partitions_text(counts[other])
                fix = "put a repartition() between them and that operator, or give both streams as many partitions"
            elif not same_partitioner(of_first, of_other):
                found = f"partitioned by {_by(of_first)}", f"by {_by(of_other)}"
                fix = "give both repartitions one and the same partitioner, or put one repartition() behind where they meet"
            elif apart is not None:
                raise TopologyError(
                    f"{operator!r} {does} and takes records of the streams {first!r} and {other!r}, but their "
                    f"partitions {apart} are in different tasks: {_names(owners[first][apart])} and "
                    f"{_names(owners[other][apart])}",
                    "put a repartition() between them and that operator; or leave ssp_grouper unset, if it is why",
                )
            else:
                continue
            raise TopologyError(
                f"{operator!r} {does} and takes records of the streams {first!r} ({found[0]}) and {other!r} ({found[1]}): a "
                "key's records would come to different tasks",
                fix,
            )


def _residue_apart(first: Mapping[int, Set[TaskName]], other: Mapping[int, Set[TaskName]], by_users: bool) -> int | None:
    """The lowest hash whose keys are in different tasks of two streams; None if all are in the same.

    `first`, `other`: who reads partition 0, 1, … of each. Of 2 and 4 partitions the hashes 0 to 3 are all that there are:
    hash 3 is in partition 1 of the one and in 3 of the other. A user's partitioner says nothing of other counts.
    """
    among = math.lcm(len(first), len(other))
    if len(first) != len(other) and (by_users or among > _RESIDUES_MAX):
        return 0
    return next((r for r in range(among) if first[r % len(first)] != other[r % len(other)]), None)


def _by(partitioner: Function | None) -> str:
    return "the key" if partitioner is None else partitioner.label


def _names(tasks: Iterable[TaskName]) -> str:
    return ", ".join(map(str, sorted(tasks)))
