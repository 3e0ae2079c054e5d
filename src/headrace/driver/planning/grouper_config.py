"""Which grouper the configuration means: one of ours by its name, or a user's class. Seed: SEP-5 (`ssp_grouper`)."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping

from headrace.config.objects import PLACE, loaded
from headrace.core.job_plan.grouper_calls import named_errors
from headrace.core.job_plan.groupers import (
    AllSspsToEveryTask,
    GroupByPartition,
    GroupByPartitionFixedTaskNum,
    GroupBySystemStreamPartition,
    GroupBySystemStreamPartitionFixedTaskNum,
    SystemStreamPartitionGrouper,
    UsersGrouper,
)
from headrace.errors import ConfigError, hint_of_missing

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
    """The grouper that `ssp_grouper` names or is; unset, tasks are made by partition. `tasks`: how many tasks there are where
    each reads everything. `ConfigError` for what is no grouper."""
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
    is_none = ConfigError(
        f"{title}: {getattr(found, '__qualname__', None) or repr(found)} is no grouper", f"expected {_EXPECTED}"
    )
    if isinstance(found, type):
        if inspect.isabstract(found) or not callable(getattr(found, "group", None)):
            raise is_none
        try:
            inspect.signature(found).bind()
        except (TypeError, ValueError):
            raise ConfigError(
                f"{title}: class {found.__qualname__} cannot be instantiated without arguments",
                "give the object instead of its class, or the arguments defaults",
            ) from None
        rule = "; a grouper class is instantiated without arguments, once per sub-topology"
        with named_errors(ConfigError, f"{title}: making a {found.__qualname__}", rule):
            found = found()
    takes = _arguments_of(getattr(found, "group", None))
    if takes is None:
        raise is_none
    if takes == 1:
        warnings.warn(
            f"{title}: {type(found).__qualname__}.group(ssps) is deprecated, and is not told which task read a partition "
            "before: let it take group(previous_assignment, ssps)",
            DeprecationWarning,
            stacklevel=2,
        )
    if isinstance(found, SystemStreamPartitionGrouper) and takes == 2:
        return found
    return UsersGrouper(found, is_older=takes == 1)


def _arguments_of(method: object) -> int | None:
    """How many of `previous_assignment` and `ssps` a bound method takes; None if it can be called with neither number."""
    for count in (2, 1):
        try:
            signature = inspect.signature(method)  # type: ignore[arg-type]
            signature.bind(*range(count), **({"broadcast": ()} if "broadcast" in signature.parameters else {}))
        except (TypeError, ValueError):  # not to be called; not with these; written in C, and as such no grouper
            continue
        return count
    return None
