"""What rounds begin with: a plan that is committed, and what runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.driver.planning.job_plan import JobPlan
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner


class RoundMaintenance(Protocol):
    """What follows rounds, see `driver.maintenance`; in a group a processor has less of it than a single driver."""

    def began(self, runner: SubTopologyRunner) -> None: ...

    def committed(self, runner: SubTopologyRunner) -> None: ...

    def keep(self) -> None: ...

    def keep_locality(self) -> None: ...

    def tidy(self) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class PreparedJob:
    """A plan that is committed, a runner for each of its sub-topologies, and what is done in the background. `phases_s`: what
    took how long."""

    plan: JobPlan
    runners: tuple[SubTopologyRunner, ...]
    maintenance: RoundMaintenance
    phases_s: Mapping[str, float] = field(default_factory=dict)
