"""What the demonstration makes on a Kafka cluster: its topics, and a check that no other topic is ever touched.

The demonstration's folder notes the cluster before the first topic is made there, and only where none of them was there
before. So what has such a name on a recorded cluster is the demonstration's, and anywhere else it is not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from headrace.adapters.common.lease_holder import HEARTBEAT_STALE_US, is_known_dead
from headrace.demo import job
from headrace.errors import JobHeldError, StreamExistsError, StreamNotFoundError
from headrace.wiring import open_system

# Flights are of 2013: a broker that deletes by the time of records would take them away while they are read.
FOREVER = {"topic.retention.ms": "-1"}
STREAMS = (job.INPUT, f"{job.APPLICATION}-{job.REPARTITION}-repartition", job.OUTPUT)
TOPICS = (*STREAMS, *(f"{job.APPLICATION}-{own}" for own in ("metadata", "checkpoints")))


def begin_anew(url: str, is_ours: bool) -> str | None:
    """Take away what an earlier demonstration left on the cluster, if that `is_ours`; in words, what that was.

    `StreamExistsError` where topics of those names are somebody else's; `JobHeldError` while the application runs.
    """
    with open_system(url) as system:
        there = [name for name in TOPICS if _is_there(system, name)]
        if not there:
            return None
        if not is_ours:
            raise StreamExistsError(
                f"{url} has {', '.join(there)} already, and no demonstration of this folder made them",
                "give the demonstration a cluster of its own (headrace demo --with-kafka starts one), or delete them: "
                f"headrace stream delete {there[0]} --system {url} --force",
            )
        _refuse_while_driven(system, url)
        _delete(system, there)
    return f"{url} has the topics of an earlier demonstration; they are recreated"


def _is_there(system: Any, name: str) -> bool:
    try:
        system.end_offsets(name)
    except StreamNotFoundError:
        return False
    return True


def _refuse_while_driven(system: Any, url: str) -> None:
    holder = system.job_store(job.APPLICATION).holder()
    if holder is None or is_known_dead(holder):
        return
    if time.time_ns() // 1000 - holder.heartbeat_us <= HEARTBEAT_STALE_US:
        raise JobHeldError(
            f"application {job.APPLICATION!r} runs on {url}: process {holder.pid} on {holder.host}", "stop it first"
        )


def _delete(system: Any, names: Iterable[str]) -> None:
    for name in names:
        system.delete_stream(name)
