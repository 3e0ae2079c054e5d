"""The kept versions of the tasks' states while a job runs, and the cuts through them: taking, storing and dropping them.

A thread of its own calls `keep` now and then. Only cuts are also taken on the way of rounds, in between two of them. In this
order, so that what is stored never names what is not there, whenever the process ends: hold the files, store the versions,
then the cuts that name them; later store that cuts are dropped, then that versions are, then delete the files. What falls in
between is an orphan, which the next start, or `keep`, collects.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.codec.documents import decode_version, encode
from headrace.codec.job_records import STATE_CUTS, STATE_VERSIONS
from headrace.core.rewind.consistent_cuts import ConsistentCut, cut_of, thinned_cuts
from headrace.core.rewind.replays import Replay, unfinished
from headrace.core.rewind.rewinds import Rewind, may_be_undone
from headrace.core.rewind.startpoint_rules import TaskPartition
from headrace.core.rewind.state_history import RetentionPolicy, StateVersion, by_task, is_due, new_versions, thinned
from headrace.model.checkpoint import Checkpoint
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.ports.coordinator_store import CoordinatorStore
from headrace.ports.metadata_store import MetadataStore

if TYPE_CHECKING:  # reading what is on record needs no Arrow
    from headrace.driver.maintenance.state_garbage import StateGarbage

LOG = logging.getLogger("headrace.job")

Versions = Mapping[TaskName, tuple[StateVersion, ...]]


def versions_of(metadata: MetadataStore) -> Versions:
    """The kept versions on record, by task, oldest first; also of removed tasks, until the driver has dropped them."""
    stored = sorted(metadata.all(STATE_VERSIONS).items())
    return by_task(decode_version(data, f"version {key!r} of a task's state") for key, data in stored)


@dataclass(frozen=True, slots=True)
class KeptTasks:
    """Of a sub-topology versions are kept, of all its `tasks`.

    `ends`: of one that goes by cuts, asks where each partition of the repartition streams that it writes ends: the high
    watermarks. None where nothing with state is behind it: then each task is for itself. `pause`: where others run its rounds,
    asks which pause they are in, None for none; else `began` and `committed` say.
    """

    tasks: Collection[TaskName]
    ends: Callable[[], Mapping[SSP, int]] | None = None
    pause: Callable[[], int | None] | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """What is on record when a plan begins. `rewinds`: those in force; `counting_again`: no version of these is taken until
    their replays end (`core.rewind.replays`)."""

    versions: Versions
    cuts: Iterable[ConsistentCut] = ()
    rewinds: Sequence[Rewind] = ()
    counting_again: Mapping[TaskPartition, Replay] = field(default_factory=dict)


class StateVersions:
    """The kept versions, and the cuts, of one plan. One thread keeps them; rounds report from others. `subs`: the
    sub-topologies of which versions are kept; versions of other tasks, and cuts of others, are dropped."""

    def __init__(
        self,
        store: CoordinatorStore,
        epoch: int,
        garbage: StateGarbage,
        subs: Mapping[str | None, KeptTasks],
        past: Past,
        keeping: RetentionPolicy,
        clock_us: Callable[[], int],
    ) -> None:
        self._garbage, self._subs, self._past = garbage, subs, past
        self._keeping, self._clock_us = keeping, clock_us
        all_versions = {version.key: version for kept in past.versions.values() for version in kept}
        all_cuts = {cut.key: cut for cut in sorted(past.cuts, key=lambda cut: cut.kept_us)}
        self._stored_versions = DurableMap(store, epoch, STATE_VERSIONS, all_versions)
        self._stored_cuts = DurableMap(store, epoch, STATE_CUTS, all_cuts)
        garbage.hold(version.checkpoint for version in all_versions.values())
        self._versions = {task: past.versions.get(task, ()) for kept in subs.values() for task in kept.tasks}  # that are wanted
        self._cuts = {
            name: tuple(cut for cut in all_cuts.values() if cut.sub_topology == name)
            for name, kept in subs.items()
            if kept.ends is not None
        }
        self._kept_us: dict[str | None, int | None] = {}
        for name, kept in subs.items():
            times_us = [version.kept_us for task in kept.tasks for version in self._versions[task]]
            if name in self._cuts:
                times_us = [cut.kept_us for cut in self._cuts[name]]
            self._kept_us[name] = max(times_us, default=None)
        self._cut_at: dict[str | None, tuple[Checkpoint, ...]] = {}  # what was current when a cut was last looked for
        # Per sub-topology how many rounds have begun, and which run. One that failed counts as running until the next commit:
        # some of its containers may have committed, others may still.
        self._begun: dict[str | None, int] = {}
        self._running: set[str | None] = set()
        self._rounds_lock = threading.Lock()  # of these two
        self._lock = threading.Lock()  # of what is wanted; nothing is requested or stored while it is held

    # --- what rounds report --------------------------------------------------------------------------------------

    def began(self, sub_topology: str | None) -> None:
        """A round of it is about to run."""
        with self._rounds_lock:
            self._begun[sub_topology] = self._begun.get(sub_topology, 0) + 1
            self._running.add(sub_topology)

    def committed(self, sub_topology: str | None) -> None:
        """A round of it was committed, and the garbage knows of it: the next one has not begun. Raises nothing."""
        with self._rounds_lock:
            self._running.discard(sub_topology)
        if sub_topology in self._cuts:
            self._take(sub_topology, self._clock_us())

    def _pause_of(self, sub_topology: str | None) -> int | None:
        """Which of its pauses it is in, None for none. As long as that stays the same, it writes nothing."""
        pause = self._subs[sub_topology].pause
        if pause is not None:
            return pause()
        with self._rounds_lock:
            return None if sub_topology in self._running else self._begun.get(sub_topology, 0)

    # --- keeping ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Take what is current when the plan is made; a job that runs for a minute a day has no other version of that day."""
        now_us = self._clock_us()
        for name in self._subs:
            self._take(name, now_us)

    def keep(self) -> None:
        """Take versions that are due, store them, and drop others. A failure is logged and no more: it is tried again."""
        try:
            now_us = self._clock_us()
            for name in self._subs:
                self._take(name, now_us)
            with self._lock:
                for name in self._subs:
                    self._thin(name, now_us)
                versions = {version.key: version for kept in self._versions.values() for version in kept}
                cuts = {cut.key: cut for kept in self._cuts.values() for cut in kept}
            self._store(versions, cuts)
        except Exception as error:
            LOG.warning("could not keep versions of the state: %s", error)

    def checkpoints(self) -> list[Checkpoint]:
        """Those of all versions that are, or may be, on record: what they read on from is not to be purged."""
        with self._lock:
            return self._all_checkpoints()

    def _all_checkpoints(self) -> list[Checkpoint]:
        found = {version.key: version for version in self._stored_versions.values}
        found |= {version.key: version for kept in self._versions.values() for version in kept}
        return [version.checkpoint for version in found.values()]

    def _store(self, versions: Mapping[str, StateVersion], cuts: Mapping[str, ConsistentCut]) -> None:
        is_changed = [
            self._stored_versions.put(versions),
            self._stored_cuts.put(cuts),
            self._stored_cuts.drop_others(cuts),
            self._stored_versions.drop_others(versions),
        ]
        if any(is_changed):
            with self._lock:  # what was taken in between is held, and stays so
                unnamed = self._garbage.hold_only(self._all_checkpoints())
            self._garbage.delete(unnamed)

    def _thin(self, name: str | None, now_us: int) -> None:
        if not self._keeping.most and self._may_be_undone(name):
            return  # where no version stays, the one for an undo does, as long as an undo is possible
        mine = {task: self._versions[task] for task in self._subs[name].tasks}
        if name in self._cuts:
            kept, self._cuts[name] = thinned_cuts(mine, self._cuts[name], now_us, self._keeping)
        else:
            kept = {task: thinned(versions, now_us, self._keeping) for task, versions in mine.items()}
        self._versions |= kept

    # --- taking -----------------------------------------------------------------------------------------------------

    def _take(self, name: str | None, now_us: int) -> None:
        ends = self._subs[name].ends
        if not is_due(self._kept_us[name], now_us, self._keeping):
            return
        if ends is None:
            with self._lock:
                current = self._garbage.hold_current(name)
                again = {task for task, _ in unfinished(self._past.counting_again, {one.task: one for one in current})}
                new = new_versions(self._versions, [one for one in current if one.task not in again], now_us)
                if new:
                    self._versions, self._kept_us[name] = _with_new(self._versions, new), now_us
            return
        try:
            self._take_cut(name, ends, now_us)
        except Exception as error:
            LOG.warning("could not keep a version of sub-topology %s, it is tried again: %s", name or "source", error)

    def _take_cut(self, name: str | None, ends: Callable[[], Mapping[SSP, int]], now_us: int) -> None:
        """In one pause of the sub-topology: ask where what it writes ends, and take the versions of all its tasks."""
        pause = self._pause_of(name)
        if pause is None or not self._may_cut(name, now_us):
            return
        known, written = self._garbage.current()[name], ends()
        if self._pause_of(name) != pause:
            return  # a round has begun
        with self._lock:
            current = self._garbage.hold_current(name)
            if current is not known or not is_due(self._kept_us[name], now_us, self._keeping):
                return  # a round was committed, or another thread took this one
            self._cut_at[name] = current
            before = {task: self._versions[task] for task in self._subs[name].tasks}
            new = new_versions(before, current, now_us)
            versions = _with_new(before, new)
            last = self._cuts[name][-1] if self._cuts[name] else None
            cut_us = now_us if last is None else max(now_us, last.kept_us + 1)  # no two have one key, whatever the clock does
            cut = cut_of(name, current, versions, written, cut_us)
            if cut is None:
                return
            if last is None or new or cut.rounds != last.rounds or self._is_too_old(last, now_us):
                self._versions |= versions
                self._cuts[name] = (*self._cuts[name], cut)
                self._kept_us[name] = now_us

    def due_cuts(self) -> frozenset[str | None]:
        """The sub-topologies of which a cut is due that would be another than the last."""
        now_us = self._clock_us()
        return frozenset(
            name for name in self._cuts if is_due(self._kept_us[name], now_us, self._keeping) and self._may_cut(name, now_us)
        )

    def _may_cut(self, name: str | None, now_us: int) -> bool:
        """Whether a cut would be another than the last, as far as that is known without asking, of states that are those of
        their positions, and none that may turn out to go by skipped ranges that were never there."""
        current = self._garbage.current()[name]
        is_known = current == self._cut_at.get(name)
        if is_known and not (self._cuts[name] and self._is_too_old(self._cuts[name][-1], now_us)):
            return False
        if unfinished(self._past.counting_again, {one.task: one for one in current}):
            return False
        return not self._may_be_undone(name)

    def _may_be_undone(self, name: str | None) -> bool:
        """Whether something that tasks of it went back for may be."""
        if not self._past.rewinds:
            return False
        checkpoints = {one.task: one for kept in self._garbage.current().values() for one in kept}
        return may_be_undone(self._subs[name].tasks, self._past.rewinds, checkpoints)

    def _is_too_old(self, cut: ConsistentCut, now_us: int) -> bool:
        return self._keeping.span_us is not None and now_us - cut.kept_us > self._keeping.span_us


def _with_new(versions: Versions, new: Iterable[StateVersion]) -> dict[TaskName, tuple[StateVersion, ...]]:
    found = dict(versions)
    for version in new:
        task = version.checkpoint.task
        found[task] = (*found[task], version)
    return found


WRITTEN_AT_ONCE = 200  # values in one transaction: each version of a state holds the name of every file of its head
T = TypeVar("T")


class DurableMap(Generic[T]):
    """The values of a namespace, by key, that are or may be stored. Not thread-safe. What was begun to be stored counts as
    stored, and is written again until that is heard to be done; what was begun to be deleted counts as stored as well."""

    def __init__(self, store: CoordinatorStore, epoch: int, namespace: str, stored: Mapping[str, T]) -> None:
        self._store, self._epoch, self._namespace = store, epoch, namespace
        self._stored = dict(stored)
        self._unsure: set[str] = set()  # keys whose storing was begun, and not heard to be done

    @property
    def values(self) -> Iterable[T]:
        return self._stored.values()

    def put(self, wanted: Mapping[str, T]) -> bool:
        """Store those of `wanted` that are not known to be there; whether there were any."""
        new = {key: value for key, value in wanted.items() if key not in self._stored or key in self._unsure}
        self._stored |= new
        self._unsure |= new.keys()
        self._write({key: encode(value) for key, value in new.items()})
        self._unsure -= new.keys()
        return bool(new)

    def drop_others(self, wanted: Mapping[str, T]) -> bool:
        """Delete all that are not among `wanted`; whether there were any."""
        removed = self._stored.keys() - wanted.keys()
        self._write(dict.fromkeys(sorted(removed)))
        self._stored = {key: value for key, value in self._stored.items() if key not in removed}
        self._unsure -= removed
        return bool(removed)

    def _write(self, changes: Mapping[str, bytes | None]) -> None:
        left = iter(changes.items())
        while piece := dict(islice(left, WRITTEN_AT_ONCE)):
            self._store.write_metadata(self._epoch, self._namespace, piece)
