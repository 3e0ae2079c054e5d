"""The names that an application has on a broker: topics, groups, transactional ids.

Every prefix ends in a separator, so that rights on those of `flight` do not cover `flight-delays`.
"""

from __future__ import annotations


def metadata_topic(application: str) -> str:
    return f"{application}-metadata"


def checkpoint_topic(application: str) -> str:
    return f"{application}-checkpoints"


def coordinator_id(application: str) -> str:
    """The coordinator's transactional id."""
    return f"{application}/coordinator"


def coordinator_group(application: str) -> str:
    """The group whose one position is the epoch: a worker reads it in milliseconds."""
    return f"{application}.coordinator"


def transactional_id(application: str, sub_topology: str, lane: int) -> str:
    return f"{application}/{sub_topology}/{lane}"


def group_of(application: str, sub_topology: str, task: str | None = None) -> str:
    """The group of a sub-topology's positions; with `task` that of the SSPs which several tasks read."""
    return f"{application}.{sub_topology}" if task is None else f"{application}.{sub_topology}.{task}"
