"""Pauses of sub-topologies: no round of them runs, at the word of the leader of a standalone group (`core.group.pauses`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.model.streams import SSP


@dataclass(frozen=True, slots=True)
class Pause:
    """What a sub-topology is to do. `targets`: up to where its tasks are to read before they rest; absent: where they
    are."""

    number: int
    targets: Mapping[SSP, int] = field(default_factory=dict)


class Pauses:
    """Those of the sub-topologies of a generation, by title. `ask` and `all_rest` are for the thread that hears of pauses, the
    others for the thread of each sub-topology's rounds."""

    def __init__(self) -> None:
        self._asked: Mapping[str, Pause] = {}
        self._resting: dict[str, int] = {}  # title to the number of the pause that it rests for
        self._unsure: set[str] = set()  # a round of these has begun: of one that fails, some containers may still commit

    def ask(self, pauses: Mapping[str, Pause]) -> bool:
        """From now on these sub-topologies are to rest, and no others; whether that is new."""
        is_new = self._asked != pauses
        self._asked = pauses
        return is_new

    def all_rest(self, number: int, ended: Iterable[str]) -> bool:
        """Whether all rest that are asked to by the pause of this number. `ended`: those that run no more, by title; where the
        last round may still commit it does not rest."""
        asked = [title for title, pause in self._asked.items() if pause.number == number]
        over = set(ended) - self._unsure
        return all(title in over or self._resting.get(title) == number for title in asked)

    def of(self, title: str) -> Pause | None:
        """What is requested of it now."""
        return self._asked.get(title)

    def begins(self, title: str) -> None:
        """A round of it begins."""
        self._unsure.add(title)

    def ended(self, title: str) -> None:
        """What its round has committed is known, and no more can come of it."""
        self._unsure.discard(title)

    def is_unsure(self, title: str) -> bool:
        return title in self._unsure

    def rests(self, runner: SubTopologyRunner, pause: Pause | None) -> bool:
        """Whether no round of `runner` is to be planned under `pause`, and it rests; called between two of its rounds."""
        title = runner.sub.title
        if pause is None or runner.is_behind(pause.targets):
            self._resting.pop(title, None)
            return False
        self._resting[title] = pause.number
        return True
