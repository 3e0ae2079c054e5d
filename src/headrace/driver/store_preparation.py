"""Local stores that are made in the background before another elasticity factor comes into force: in turns, each from the heads
that the tasks have come to. It only saves time: where it fails, stores are made when their tasks open them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from headrace.core.elasticity.preparation import bytes_to_read, heads_ahead, is_near
from headrace.core.elasticity.recut import Recut
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.errors import HeadraceError
from headrace.exchange.store_builder import StoreBuilder
from headrace.model.checkpoint import Head
from headrace.model.tasks import TaskName

LOG = logging.getLogger("headrace.job")
HEADS_WAIT_S = 120.0  # until a round that runs has ended


class StorePreparation:
    """The stores of the tasks that `recuts` make, by the titles of sub-topologies. Rounds must call `between_rounds`."""

    def __init__(self, recuts: Mapping[str, Recut], builder: StoreBuilder) -> None:
        self.recuts = recuts
        self._builder = builder
        self._wanted = set[str]()  # titles whose heads are to be taken between two rounds
        self._heads: dict[TaskName, Head] = {}
        self._taken = threading.Condition()
        self._built: set[TaskName] = set()
        self._is_done, self._is_ended = False, False
        self._holding: dict[str, SubTopologyRunner] = {}
        self._began_s = time.monotonic()
        self.seconds = 0.0  # how long it took
        threading.Thread(target=self._run, name="headrace-stores", daemon=True).start()

    def between_rounds(self, runner: SubTopologyRunner) -> None:
        """Take what the tasks of `runner` have come to, if that is wanted now, and have its rounds keep these files. Called by
        the thread of its rounds, so that none is on its way which would fold one."""
        title = runner.sub.title
        if title not in self._wanted:
            return
        checkpoints = runner.checkpoints
        with self._taken:
            if self._is_ended:
                return
            heads = {task: checkpoints[task].head for task in self.recuts[title].former}
            runner.planner.held_files = {task: len(head.files) for task, head in heads.items() if head is not None}
            self._holding[title] = runner
            self._heads |= heads_ahead(self.recuts[title], checkpoints)
            self._wanted.discard(title)
            self._taken.notify_all()

    @property
    def is_done(self) -> bool:
        """Whether the change may come: the stores are there but for a rest, or cannot be made ahead."""
        return self._is_done

    def text(self, title: str) -> str:
        """How far it is, for people; empty where it is done."""
        recut = self.recuts.get(title)
        if recut is None or self._is_done:
            return ""
        count = f"{len(self._built & recut.parents.keys()):,} of {len(recut.parents):,}"
        return f"factor {recut.factor} waits until local stores of its tasks are made: {count} are there"

    def end(self) -> None:
        """Give up what is not done, and let rounds fold files again."""
        with self._taken:
            self._is_ended = True
            for runner in self._holding.values():
                runner.planner.held_files = {}
            self._taken.notify_all()
        self._builder.close()

    def _run(self) -> None:
        try:
            self._prepare()
        except (HeadraceError, OSError) as error:  # no process may be started, say
            if not self._is_ended:
                why = getattr(error, "message", error)
                LOG.warning("local stores are made when their tasks begin, which takes longer: %s", why)
        finally:
            self._builder.close()
            self.seconds = time.monotonic() - self._began_s
            self._is_done = True

    def _prepare(self) -> None:
        prepared, turns = dict[TaskName, Head](), 0
        while (now := self._heads_now()) is not None and not (turns and is_near(prepared, now, turns)):
            LOG.info("making %d local stores from %.0f MB of state, turn %d", len(now), bytes_to_read(now) / 1e6, turns + 1)
            self._built.clear()
            self._builder.build(now, self._built.add)
            prepared, turns = now, turns + 1

    def _heads_now(self) -> dict[TaskName, Head] | None:
        """What tasks have come to, taken between their rounds; None where that takes too long, or this is ended."""
        with self._taken:
            self._wanted |= set(self.recuts)
            self._taken.wait_for(lambda: self._is_ended or not self._wanted, HEADS_WAIT_S)
            return None if self._is_ended or self._wanted else dict(self._heads)
