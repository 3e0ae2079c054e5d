"""Which grouper the configuration means: one of ours by its name, or a user's class. Seed: SEP-5 (`ssp_grouper`)."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.core.job_plan.grouper_calls import raised_at, raised_text
from headrace.core.job_plan.groupers import (
    AllSspsToEveryTask,
    GroupByPartition,
    GroupByPartitionFixedTaskNum,
    GroupBySystemStreamPartition,
    GroupBySystemStreamPartitionFixedTaskNum,
    Groups,
    PreviousAssignment,
    SystemStreamPartitionGrouper,
    has_broadcast,
)
from headrace.driver.planning.user_objects import PLACE, loaded
from headrace.errors import ConfigError, HeadraceError, hint_of_missing
from headrace.model.streams import SSP

_ALL_TO_EVERY = ("AllSspsToEveryTask", "all_ssps_to_every_task")
_OURS: Mapping[str, Callable[[], SystemStreamPartitionGrouper]] = {
    "partition": GroupByPartition,
    "system_stream_partition": GroupBySystemStreamPartition,
    "GroupByPartition": GroupByPartition,
    "GroupBySystemStreamPartition": GroupBySystemStreamPartition,
    "GroupByPartitionFixedTaskNum": GroupByPartitionFixedTaskNum,
    "GroupBySystemStreamPartitionFixedTaskNum": GroupBySystemStreamPartitionFixedTaskNum,
}
_EXPECTED = "a class (or an object) with the method group(previous_assignment, ssps), as hr.SystemStreamPartitionGrouper has"


def grouper_of(value: object, tasks: int) -> SystemStreamPartitionGrouper:
    """The grouper that `ssp_grouper` names or is; unset, tasks are made by partition.

    `tasks`: how many tasks there are where each reads everything. `ConfigError` for what is no grouper.
    """
    if value is None:
        return GroupByPartition()
    if not isinstance(value, str):
        return _with_tasks(_made(value, "ssp_grouper"), tasks)
    if value in _ALL_TO_EVERY:
        return AllSspsToEveryTask(tasks)
    if value in _OURS:
        return _OURS[value]()
    if PLACE.fullmatch(value):
        return _with_tasks(_made(loaded("ssp_grouper", value, "a grouper", _EXPECTED), f"ssp_grouper {value!r}"), tasks)
    names = sorted([*_OURS, *_ALL_TO_EVERY])
    raise ConfigError(
        f"ssp_grouper {value!r} is not known",
        hint_of_missing(value, names, f"name one of {', '.join(names)}, or a class of your own as MODULE:NAME"),
    )


def _with_tasks(grouper: SystemStreamPartitionGrouper, tasks: int) -> SystemStreamPartitionGrouper:
    """The same, with a number of tasks where it is one of those that have one and does not say which."""
    return AllSspsToEveryTask(tasks) if type(grouper) is AllSspsToEveryTask and grouper.tasks is None else grouper


def _made(found: object, title: str) -> SystemStreamPartitionGrouper:
    """The grouper that an object of a user is, or that its class makes."""
    if isinstance(found, type):
        if inspect.isabstract(found) or not callable(getattr(found, "group", None)):
            raise _no_grouper(found, title)
        try:
            inspect.signature(found).bind()
        except (TypeError, ValueError):
            raise ConfigError(
                f"{title}: class {found.__qualname__} cannot be instantiated without arguments",
                "give the object instead of its class, or the arguments defaults",
            ) from None
        found = _instance_of(found, title)
    takes = _arguments_of(getattr(found, "group", None))
    if takes is None:
        raise _no_grouper(found, title)
    if takes == 1:
        warnings.warn(
            f"{title}: {type(found).__qualname__}.group(ssps) is deprecated, and is not told which task read a partition "
            "before: let it take group(previous_assignment, ssps)",
            DeprecationWarning,
            stacklevel=2,
        )
        return _Older(found)
    return found if isinstance(found, SystemStreamPartitionGrouper) else _Foreign(found)


def _instance_of(kind: type, title: str) -> object:
    """What a user's class makes; errors of ours and signals go through as they are."""
    try:
        return kind()
    except (HeadraceError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{title}: making a {kind.__qualname__} raised {raised_text(error)}",
            f"fix it at {raised_at(error)}; a grouper class is instantiated without arguments, once per sub-topology",
        ) from error


def _arguments_of(method: object) -> int | None:
    """How many of `previous_assignment` and `ssps` a bound method takes; None if it can be called with neither number."""
    if not callable(method):
        return None
    try:
        signature = inspect.signature(method)
    except ValueError:  # written in C, and as such no grouper
        return None
    named = {"broadcast": ()} if "broadcast" in signature.parameters else {}
    for count in (2, 1):
        try:
            signature.bind(*range(count), **named)
        except TypeError:
            continue
        return count
    return None


def _no_grouper(found: object, title: str) -> ConfigError:
    what = getattr(found, "__qualname__", None) or repr(found)
    return ConfigError(f"{title}: {what} is no grouper", f"expected {_EXPECTED}")


class _Foreign(SystemStreamPartitionGrouper):
    """A grouper of a class that is not derived from ours."""

    def __init__(self, grouper: Any) -> None:
        self.grouper = grouper

    def __str__(self) -> str:
        return type(self.grouper).__qualname__

    @property
    def takes_broadcast(self) -> bool:
        return has_broadcast(self.grouper.group)

    def group(self, previous_assignment: PreviousAssignment, ssps: Iterable[SSP], **shown: Iterable[SSP]) -> Groups:
        groups: Groups = self.grouper.group(previous_assignment, ssps, **shown)
        return groups


class _Older(_Foreign):
    """A grouper of which `group` takes the partitions only."""

    def group(self, previous_assignment: PreviousAssignment, ssps: Iterable[SSP], **shown: Iterable[SSP]) -> Groups:
        groups: Groups = self.grouper.group(ssps, **shown)
        return groups
