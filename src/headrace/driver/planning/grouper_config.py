"""Which groupers the configuration means: one of ours by its name, or a user's class. Seeds: SEP-5 (`ssp_grouper`), SEP-11
(`task_name_grouper`)."""

from __future__ import annotations

import inspect
import typing
import warnings
from collections.abc import Callable, Mapping

from headrace.config.objects import PLACE, loaded
from headrace.core.affinity.groupers import TaskNameGrouper
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

_EXPECTED_OF_TASKS = (
    "a class (or an object) with the method group(tasks, processor_ids, previous_containers), as hr.TaskNameGrouper has"
)


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
    found = _object_of(found, title, _EXPECTED, "; a grouper class is instantiated without arguments, once per sub-topology")
    takes = _arguments_of(getattr(found, "group", None))
    if takes is None:
        raise _no_grouper(found, title, _EXPECTED)
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


def task_name_grouper_of(value: object) -> TaskNameGrouper | None:
    """The grouper that `task_name_grouper` names or is; None where it is unset. `ConfigError` for what is no grouper."""
    if value is None:
        return None
    title, found = "task_name_grouper", value
    if isinstance(value, str):
        title = f"task_name_grouper {value!r}"
        if not PLACE.fullmatch(value):
            raise ConfigError(f"{title} is not known", f"give MODULE:NAME of {_EXPECTED_OF_TASKS}")
        found = loaded("task_name_grouper", value, "a grouper", _EXPECTED_OF_TASKS)
    found = _object_of(found, title, _EXPECTED_OF_TASKS, "; a grouper class is instantiated without arguments")
    try:
        inspect.signature(found.group).bind((), (), ())  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        raise _no_grouper(found, title, _EXPECTED_OF_TASKS) from None
    return typing.cast(TaskNameGrouper, found)


def _no_grouper(found: object, title: str, expected: str) -> ConfigError:
    shown = getattr(found, "__qualname__", None) or repr(found)
    return ConfigError(f"{title}: {shown} is no grouper", f"expected {expected}")


def _object_of(found: object, title: str, expected: str, rule: str) -> object:
    """`found`, or where it is a class an object of it."""
    if not isinstance(found, type):
        return found
    if inspect.isabstract(found) or not callable(getattr(found, "group", None)):
        raise _no_grouper(found, title, expected)
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        raise ConfigError(
            f"{title}: class {found.__qualname__} cannot be instantiated without arguments",
            "give the object instead of its class, or the arguments defaults",
        ) from None
    with named_errors(ConfigError, f"{title}: making a {found.__qualname__}", rule):
        return found()


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
