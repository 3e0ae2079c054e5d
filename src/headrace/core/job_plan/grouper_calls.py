"""Calling a grouper, and that what it gives are tasks of the partitions that it was given. Seed: SEP-5 (`group`).

Its author, what it does to its arguments, and how often its answer can be walked, must not matter behind this point.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import PurePath
from typing import Any

from headrace.core.job_plan.groupers import Groups, PreviousAssignment, SystemStreamPartitionGrouper, takes_broadcast
from headrace.errors import PACKAGE_FOLDER, ConfigError, HeadraceError
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

_WANTED = "return a mapping of hr.TaskName to the partitions of that task, with each of the given ones in exactly one"


def groups_of(
    grouper: SystemStreamPartitionGrouper,
    previous: PreviousAssignment,
    ssps: Sequence[SSP],
    sub_topology: str,
    broadcast: Sequence[SSP] = (),
) -> Groups:
    """What `grouper` makes of `ssps`, each in exactly one group, as sets that can be walked again and again.

    `sub_topology`: the title of the one whose partitions they are. `broadcast`: partitions that every task reads: shown to a
    grouper that takes them, and in any number of the groups that it returns. It is given copies.

    `ConfigError` for what are no tasks of these partitions, and for what it raises; errors of ours and what Python raises at a
    signal are passed on as they are.
    """
    title = f"ssp_grouper {grouper}, sub-topology {sub_topology!r}"
    with named_errors(
        ConfigError, f"{title}: group()", ": it has to return tasks for any partitions and any previous assignment"
    ):
        shown = {"broadcast": list(broadcast)} if takes_broadcast(grouper) else {}
        groups = grouper.group(dict(previous), list(ssps), **shown)
        return _checked(groups, ssps, broadcast if shown else (), title)


@contextmanager
def named_errors(kind: type[HeadraceError], called: str, rule: str = "") -> Iterator[None]:
    """What a user's code raises within becomes a `kind` that says what was `called`, the line that raised, and the `rule`;
    errors of ours and what Python raises at a signal are passed on as they are."""
    try:
        yield
    except (HeadraceError, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # SystemExit too: a job must not end as if that had been requested
        raise kind(f"{called} raised {raised_text(error)}", f"fix it at {raised_at(error)}{rule}") from error


def raised_text(error: BaseException) -> str:
    """What was raised, in one line where its message is one.

    >>> raised_text(ValueError("no")), raised_text(SystemExit())
    ('ValueError: no', 'SystemExit')
    """
    message = str(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def raised_at(error: BaseException) -> str:
    """The innermost line of a user's Python that raised it, file and line: who gives a wrong name is the caller."""
    frames = traceback.extract_tb(error.__traceback__)
    not_of_users = (PACKAGE_FOLDER, "<")  # "<": a dataclass's own code
    users = [one for one in frames if not one.filename.startswith(not_of_users)] or frames
    return f"{PurePath(users[-1].filename).name}:{users[-1].lineno}" if users else "a place unknown"


def _checked(groups: Any, ssps: Sequence[SSP], broadcast: Collection[SSP], title: str) -> Groups:
    """`groups` made whole; `ConfigError` unless each of `ssps` is in exactly one, and nothing else but `broadcast` in any."""
    if not isinstance(groups, Mapping):
        raise ConfigError(f"{title}: group() returned {groups!r:.200}", _WANTED)
    known, of_all = set(ssps), set(broadcast)
    allowed, owners = known | of_all, dict[SSP, TaskName]()
    whole: dict[TaskName, frozenset[SSP]] = {}
    for name, members in groups.items():
        if not isinstance(name, TaskName) or name.sub_topology is not None or name.bucket is not None:
            raise ConfigError(
                f"{title}: {name if isinstance(name, TaskName) else repr(name)} is no name of a whole task",
                'make names as hr.TaskName.parse("Partition_3") or, of your own, hr.TaskName.parse("europe"), without a '
                "sub-topology or a key bucket",
            )
        if not isinstance(members, Iterable):
            raise ConfigError(f"{title}: the partitions of task {name} are {members!r:.200}", _WANTED)
        # One more than there are: an endless iterable has one twice by then, or one that is not known.
        owned = list(islice(members, len(ssps) + len(of_all) + 1))
        unknown = [f"{ssp!s:.200}" for ssp in owned if not isinstance(ssp, SSP) or ssp not in allowed]
        if unknown:
            raise ConfigError(
                f"{title}: task {name} has {min(unknown)}, which is none of the partitions that it was given", _WANTED
            )
        for ssp in owned if not of_all else [ssp for ssp in owned if ssp not in of_all]:
            if ssp in owners:
                raise ConfigError(f"{title}: partition {ssp} is {_twice(owners[ssp], name)}", _WANTED)
            owners[ssp] = name
        whole[name] = frozenset(owned)
    if missing := known - owners.keys():
        raise ConfigError(f"{title}: partition {min(missing)} is in no task", _WANTED)
    return whole


def _twice(one: TaskName, other: TaskName) -> str:
    return f"twice in task {one}" if one == other else f"in two tasks, {one} and {other}"
