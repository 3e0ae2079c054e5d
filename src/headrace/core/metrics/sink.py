"""The port by which what is measured is kept or exported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from headrace.core.metrics.table import MetricValues
from headrace.model.change import Change


class MetricsSink(Protocol):
    """Where the driver takes what it measures: the metrics of `core.metrics.table`. It may keep them or export them. Called
    from several threads, a few times per round; each call is quick, and none raises. `sub_topology`: its title, `""` for what
    is the job's own. Of a sub-topology with more tasks than `core.metrics.observations.OBSERVED_TASKS_MAX` what has the task
    as label comes as `sum` and `max` in its place: of counters the highest of each record."""

    def begin(self, sub_topology: str) -> None:
        """A new plan is in force: its counters begin at 0, and tasks and containers of before may not exist any more."""

    def record(self, sub_topology: str, values: MetricValues, began_s: float, ended_s: float) -> None:
        """What was measured between two times of a clock that only goes forward: of counters what is added, of gauges the value
        at the end of it. What is not named has not changed."""

    def changed(self, changes: Iterable[Change]) -> None:
        """These changes of the plan are in force now, with how long they took as far as that is known."""
