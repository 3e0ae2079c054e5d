"""An application on either system whose elasticity factor changes while producers never rest, and the verdict."""

from __future__ import annotations

import time
from pathlib import Path

import headrace as hr
from expansion.world import PARTITIONS, GrowingWorld
from scaling.scaling_job import OUTPUTS, judge
from support.checker import KillReport
from support.children import Children
from support.world import Place, World, waited

OUTPUT_PARTITIONS = 3
TRIES = 12


class ScalingWorld(GrowingWorld):
    """One application of `scaling_job`."""

    def __init__(self, folder: Path, place: Place, children: Children, shape: str) -> None:
        World.__init__(self, folder, place, children, f"scaling.scaling_job:{shape}")
        self.is_stateful = True
        self.system.create_stream(self.stream("in"), PARTITIONS)
        for part in OUTPUTS:
            self.system.create_stream(self.stream(part), OUTPUT_PARTITIONS)
        self.ledger = None

    def rescale(self, factor: int) -> None:
        with hr.elasticity(self.name, self.url) as scales:
            scales.set(factor)

    def rescale_apart(self, factor: int) -> None:
        """Of a gated job, while one of its tasks is behind the others, in the midst of a round; again and again, until the
        process is killed for it: whether the round had more records for that task is not known."""
        gate, before = self.folder / "gate", max(self.factors())
        for _ in range(TRIES):
            gate.touch()
            time.sleep(0.5)  # the others read on
            self.rescale(factor)
            time.sleep(0.7)  # the round is cut
            gate.unlink()
            waited(lambda: self.is_sprung() or not self.has_open_requests(), otherwise="the factor does not change")
            if self.is_sprung():
                return
            self.rescale(before)
            self.wait_until_settled()

    def factors(self) -> set[int]:
        """Those in force, by the names of the tasks that have checkpoints."""
        return {int(parts[2]) if len(parts := task.split("-")) == 3 else 1 for task in self.names_of_tasks()}

    def names_of_tasks(self) -> list[str]:
        return [task.rpartition("/")[2] for task in self.checkpoints()]

    def wait_for(self, factor: int) -> None:
        waited(lambda: self.factors() == {factor}, otherwise=f"the factor is {self.factors()}, expected {factor}")

    def judge(self, report: KillReport) -> None:
        assert self.ledger is not None
        judge(self.rows, self.ledger, report, self.state)
