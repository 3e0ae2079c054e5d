"""The form in which a driver publishes what it observes of a sub-topology, for other processes. It is for the same version's
readers only: what cannot be read was published by another."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import msgspec

from headrace.core.metrics.observations import SubTopologyLoad, SubTopologyObservation, TaskLoad, TaskObservation
from headrace.model.tasks import TaskName

_LOADS = ("last_10_s", "last_60_s")
_SHOWN_DIGITS = 6


def observation_document(seen: SubTopologyObservation) -> dict[str, Any]:
    """The observation as plain values; a task is a row, as there may be many. Numbers of tasks are rounded to a millionth."""
    plain: dict[str, Any] = msgspec.to_builtins(replace(seen, tasks=()))
    return plain | {"tasks": [_row(one) for one in seen.tasks]}


def observation_from(document: Any) -> SubTopologyObservation | None:
    """What was published; None for what this version cannot read."""
    try:
        parts: dict[str, Any] = {name: msgspec.convert(document[name], SubTopologyLoad) for name in _LOADS}
        parts["tasks"] = tuple(_task(*row) for row in document["tasks"])
        return SubTopologyObservation(**{**document, **parts})
    except (KeyError, TypeError, ValueError):  # msgspec's own errors are among these
        return None


def _row(one: TaskObservation) -> list[Any]:
    numbers = [*astuple(one.last_10_s), *astuple(one.last_60_s)]
    return [str(one.task), one.container, one.lag, *(round(number, _SHOWN_DIGITS) for number in numbers)]


def _task(name: str, container: int, lag: int, *numbers: float) -> TaskObservation:
    half = len(numbers) // 2
    return TaskObservation(TaskName.parse(name), container, lag, TaskLoad(*numbers[:half]), TaskLoad(*numbers[half:]))
