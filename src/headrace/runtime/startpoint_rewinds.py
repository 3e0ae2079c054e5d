"""Owns taking tasks' states back with their positions, where a startpoint asks for it: to which kept version, and the way
back while nothing has been committed since."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.core.state_versions import (
    KeptVersion,
    before_rewind,
    brought_back,
    left_aside,
    no_version,
    rewound,
    usable,
    version_for,
)
from headrace.model.checkpoint import Checkpoint
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.streams import SSP
from headrace.ports import SystemConsumer
from headrace.runtime.state_versions import Versions, to_store

EARLIEST = Startpoint(PositionType.EARLIEST)


class StateRewinds:
    """`versions`: those that are kept. `stateful`: the sub-topologies that have state. `born`: partitions that came by an
    expansion."""

    def __init__(
        self,
        versions: Versions,
        stateful: Collection[str | None],
        born: Collection[SSP],
        consumer: SystemConsumer,
        now_us: int,
    ) -> None:
        self._versions, self._stateful, self._born = versions, stateful, born
        self._consumer, self._now_us = consumer, now_us
        self._left: list[KeptVersion] = []

    def taken_back(self, checkpoint: Checkpoint, targets: Mapping[SSP, int]) -> Checkpoint | None:
        """The task with the newest kept state that is not after `targets`, and where that was; None where its state can stay,
        because it has none or is not after them itself. `StateError` where no version is old enough."""
        ahead = any(checkpoint.positions[ssp] > target for ssp, target in targets.items())
        if checkpoint.task.sub_topology not in self._stateful or not ahead:
            return None
        beginnings = {ssp: self._consumer.register(ssp, EARLIEST) for ssp in checkpoint.positions}
        stored = self._versions.get(checkpoint.task, ())
        found = usable(stored, checkpoint, beginnings, self._born)
        version = version_for(found, targets)
        if version is None:
            raise no_version(checkpoint.task, found, targets)
        self._left.append(left_aside(stored, checkpoint, version, self._now_us))
        return rewound(checkpoint, version)

    def went_back(self, checkpoint: Checkpoint) -> bool:
        """Whether a task's state went back, and nothing was committed since."""
        return before_rewind(self._versions.get(checkpoint.task, ()), checkpoint) is not None

    def as_it_was(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """The task as it was before it went back; None where it has committed something since, or never did. From then on it
        never went back: what is kept of that time counts again."""
        if not self.went_back(checkpoint):
            return None
        versions, was = brought_back(self._versions[checkpoint.task], checkpoint)
        self._versions = {**self._versions, checkpoint.task: versions}
        self._left.extend(version for version in versions if version.checkpoint.round_id == checkpoint.round_id)
        return was

    @property
    def written(self) -> dict[str, bytes]:
        """What is to be stored with the plan: where the tasks come from, so that its files stay."""
        return to_store(self._left)
