"""The names that an application has on a broker: topics, groups, transactional ids; and the keys in its metadata topic.

Every prefix ends in a separator, so that rights on those of `flight` do not cover `flight-delays`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote


def metadata_topic(application: str) -> str:
    return f"{application}-metadata"


def checkpoint_key(task: str, job_model: int, exactly_once: bool) -> bytes:
    """The key of a task's checkpoint record. Where no transaction fences an attempt that sleeps past its successor, the version
    of the job model is in it: such a record must not take the place of one that counts (protocol.md 12)."""
    return (task if exactly_once else f"{task}@{job_model}").encode()


def checkpoint_topic(application: str) -> str:
    return f"{application}-checkpoints"


def coordinator_id(application: str) -> str:
    """The coordinator's transactional id."""
    return f"{application}/coordinator"


def coordinator_group(application: str) -> str:
    """The group whose one position is the epoch: a worker reads it in milliseconds."""
    return f"{application}.coordinator"


def lane_id(application: str, sub_topology: str, lane: int) -> str:
    """The transactional id of a lane."""
    return f"{application}/{sub_topology}/{lane}"


def group_of(application: str, sub_topology: str, lane: int | None = None) -> str:
    """The group of a sub-topology's positions; with `lane` that of the SSPs which other containers read as well.

    >>> group_of("flight", "by-carrier"), group_of("flight", "by-carrier", 2)
    ('flight.by-carrier', 'flight.by-carrier/2')
    """
    return f"{application}.{sub_topology}" if lane is None else f"{application}.{sub_topology}/{lane}"


def entry_key(namespace: str, name: str) -> bytes:
    """The key of a named value's record in the metadata topic: `<namespace>/<name>`, both quoted.

    >>> entry_key("startpoints", "a/b")
    b'startpoints/a%2Fb'
    """
    return f"{quote(namespace, safe='')}/{quote(name, safe='')}".encode()


def entries_of(stored: Mapping[bytes, bytes], namespace: str) -> dict[str, bytes]:
    """The values of a namespace, by name, in the order of the names; keys of other forms are somebody else's.

    >>> entries_of({b"a/1": b"x", b"b/2": b"y"}, "a")
    {'1': b'x'}
    """
    prefix = f"{quote(namespace, safe='')}/".encode()
    names = {key: unquote(key[len(prefix) :].decode("utf-8", "replace")) for key in stored if key.startswith(prefix)}
    return {name: stored[key] for key, name in sorted(names.items(), key=lambda item: item[1])}
