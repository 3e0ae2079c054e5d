"""What is opened for a processor of a standalone group before it joins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headrace.core.group.state import Registration
from headrace.driver.group.coordinator import GroupSettings
from headrace.driver.group.group_planner import GroupPlanner
from headrace.driver.job_preparer import JobPreparer
from headrace.group.processor_group import ProcessorGroup
from headrace.model.commits import DriverLease
from headrace.ports.coordinator_store import JobReader


class StatePlace(Protocol):
    """Where a processor keeps state, which is to be one place for all of them. Both raise `StateError`."""

    def sign(self, run_id: str, state_id: str) -> None:
        """Leave there which run of the state with this id works there from now on: its first leader does."""

    def check(self, run_id: str) -> None:
        """Refuse a place that has not the sign of the run."""


@dataclass(frozen=True, slots=True, eq=False)
class LaunchedProcessor:
    """What a processor of a group runs with. `plans` and `reader`: for its own containers; `leading`: plans with a store that
    may take the application. `lease`: of this process, for a run of that id. `state_place`: where the state is kept.
    `is_known_dead`: whether the process that has made a registration is known to have ended. `close`: closes what was
    opened."""

    registration: Registration
    settings: GroupSettings
    group: ProcessorGroup
    preparer: JobPreparer
    plans: GroupPlanner
    reader: JobReader
    leading: GroupPlanner
    lease: Callable[[str], DriverLease]
    state_place: StatePlace
    new_run_id: Callable[[], str]
    is_known_dead: Callable[[Registration], bool]
    close: Callable[[], None]
