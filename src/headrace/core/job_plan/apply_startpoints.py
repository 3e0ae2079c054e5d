"""Applying startpoints when a job is planned: read the requests, resolve each once, and move the positions.

What comes of it is written in the job model's transaction, before anything is read (protocol.md 1): the positions in the
checkpoints, and a record of each startpoint. A request is removed after that; what is on record is not applied again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from headrace.core.job_plan.apply_rewinds import StateRewinds
from headrace.core.job_plan.assignment import owners_of
from headrace.core.job_plan.startpoint_requests import SOURCE_START, StartpointRequests, applied_by
from headrace.core.rewind.replays import going_back, not_forward_within
from headrace.core.rewind.startpoint_rules import TaskPartition, in_force, in_order, streams_below, winners
from headrace.errors import FencedError, HeadraceError, UnavailableError
from headrace.model.checkpoint import Checkpoint
from headrace.model.startpoint import (
    PositionType,
    Resolution,
    Startpoint,
    StartpointEntry,
    StartpointRecord,
    StartpointStatus,
    StatePolicy,
)
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

FINISHED_MAX = 1000
NOTES_MAX = 20  # lines of the log for what is applied at once


@dataclass(frozen=True, slots=True)
class AppliedStartpoints:
    """What comes of it: the tasks' checkpoints, all records, what of them is to be written, and the requests that are done.

    `waiting`: requests for what the job does not read, which stay.
    """

    checkpoints: Mapping[TaskName, Checkpoint]
    records: Mapping[str, StartpointRecord]
    written: Mapping[str, StartpointRecord | None]
    done: tuple[str, ...]
    waiting: frozenset[str]
    notes: tuple[str, ...]


def apply_startpoints(
    asked: StartpointRequests,
    stored: Mapping[TaskName, Checkpoint],
    checkpoints: Mapping[TaskName, Checkpoint],
    rewinds: StateRewinds,
    read_from_start: Collection[str] = (),
    named: str = "",
) -> AppliedStartpoints:
    """Move the positions of `checkpoints`, which the plan begins with; `stored` are those that were committed last.

    `rewinds`: resolves startpoints, and takes states back where they ask for it. `read_from_start`: streams whose position is
    set at every start: a startpoint there is spent as soon as it is read. Errors are raised `about` the startpoint, with its
    name; nothing has changed then. `named`: the options with which a command names the application, for hints.
    """
    resolver = _StartpointResolver(asked, stored, checkpoints, rewinds, named)
    resolver.undo_deleted()
    resolver.apply(frozenset(read_from_start))
    return resolver.result()


class _StartpointResolver:
    """The steps of `apply_startpoints`, on what they change: `checkpoints` and `records`."""

    def __init__(
        self,
        asked: StartpointRequests,
        stored: Mapping[TaskName, Checkpoint],
        checkpoints: Mapping[TaskName, Checkpoint],
        rewinds: StateRewinds,
        named: str,
    ) -> None:
        self.asked, self.rewinds, self.named = asked, rewinds, named
        # These times show which was applied last: a clock that goes back must not decide.
        self.now_us = max(rewinds.now_us, 1 + max((record.applied_at_us for record in asked.records.values()), default=0))
        self.checkpoints = dict(checkpoints)
        for task, checkpoint in checkpoints.items():
            if checkpoint.spent_startpoints:
                self.checkpoints[task] = replace(checkpoint, spent_startpoints={})
        self.owners = _owners_of_what_is_set(asked, checkpoints)
        self.records = dict(asked.records) | applied_by(asked.records, stored, rewinds.now_us)
        self.records |= {id_: _of_tasks(record, self.owners) for id_, record in self.records.items()}
        self.entries = asked.entries
        self.records |= {
            entry.id: StartpointRecord(entry, (), self.now_us, StartpointStatus.REFUSED, self.now_us)
            for entry in asked.refused_entries
        }
        self.going_back = going_back(self.records.values(), self.checkpoints)
        self.notes = [
            f"startpoint request {id_} is ignored: {text}; remove it with {_deletion(id_, named)}"
            for id_, text in asked.unreadable.items()
        ]
        self.gone_back: set[TaskName] = set()  # with their states, and with the watermarks of these
        self.to_undo: set[TaskName] = set()  # tasks whose states went back for a startpoint that counts no more

    def undo_deleted(self) -> None:
        """What is deleted and has moved nothing yet was never there."""
        layers: dict[TaskPartition, list[tuple[StartpointRecord, Resolution]]] = {}
        for layer in in_order(self.records.values()) if self.asked.deleted else ():
            layers.setdefault((layer[1].task, layer[1].ssp), []).append(layer)
        too_late = self.rewinds.too_late(self.checkpoints) if self.asked.deleted else frozenset()
        for entry in self.asked.deleted:
            record = self.records.get(entry.id)
            if record is None:
                self.records[entry.id] = StartpointRecord(entry, (), self.now_us, StartpointStatus.DELETED, self.now_us)
            elif record.status is StartpointStatus.PENDING and not _needs_any(record, too_late):
                for one in record.resolutions:
                    of_place = layers[one.task, one.ssp]
                    if of_place[-1][1] is one:  # else a later one has set the position
                        self._undo(record, one, of_place[:-1])
                    of_place.remove((record, one))
                self.records[entry.id] = replace(record, status=StartpointStatus.DELETED, changed_at_us=self.now_us)

    def _undo(self, record: StartpointRecord, one: Resolution, below: Sequence[tuple[StartpointRecord, Resolution]]) -> None:
        """`below`: what set this position before, the last of which counts again if it is not spent."""
        checkpoint = self.checkpoints.get(one.task)
        if checkpoint is None or checkpoint.positions.get(one.ssp) != one.offset:
            return
        if record.entry.state is StatePolicy.REWIND and self.rewinds.went_back(checkpoint):
            self.to_undo.add(one.task)
            return
        marks = dict(checkpoint.watermarks) | ({} if one.watermark_us is None else {one.ssp: one.watermark_us})
        as_before = replace(checkpoint, positions={**checkpoint.positions, one.ssp: one.before}, watermarks=marks)
        is_unspent = bool(below) and below[-1][0].status is StartpointStatus.PENDING
        self.checkpoints[one.task] = _moved(as_before, [below[-1][1]]) if is_unspent else as_before

    def apply(self, read_from_start: Collection[str]) -> None:
        """Resolve what counts of the new entries, and move the positions."""
        pending = [record.entry for record in self.records.values() if record.status is StartpointStatus.PENDING]
        counting = winners([*sorted(pending, key=lambda entry: entry.written_at_us), *self.entries], self.owners)
        fresh: dict[str, list[TaskPartition]] = {}
        for place, entry in sorted(counting.items()):
            if entry.id not in self.records:
                fresh.setdefault(entry.id, []).append(place)
        again = self._undo_rewinds(counting)
        unspent = {
            place: one
            for place, (record, one) in in_force(self.records.values()).items()
            if record.status is StartpointStatus.PENDING
        }
        taken = [entry for entry in self.entries if entry.key.ssp in self.owners]
        resolved = {
            entry.id: [self._resolved(entry, place, unspent.get(place)) for place in fresh.get(entry.id, ())] for entry in taken
        }
        gone_back = self._take_states_back([*(self.records[id_].entry for id_ in again), *taken], resolved | again)
        replay = max((record.replay or 0 for record in self.records.values()), default=0) + 1
        for id_, ones in again.items():
            record = self.records[id_]
            self.records[id_] = replace(record, resolutions=(*record.resolutions, *ones))
        for entry in taken:
            resolutions = tuple(resolved[entry.id])
            status = StartpointStatus.PENDING if resolutions else StartpointStatus.SUPERSEDED
            if resolutions and entry.key.ssp.stream in read_from_start:
                status = StartpointStatus.APPLIED
            number = replay if any(one.offset < one.before for one in resolutions) else None
            self.records[entry.id] = StartpointRecord(entry, resolutions, self.now_us, status, self.now_us, number)
            self.notes += [_note(entry, one) for one in resolutions]
        moves: dict[TaskName, list[Resolution]] = {}
        for id_, ones in (*again.items(), *((entry.id, resolved[entry.id]) for entry in taken)):
            for one in ones:
                if (id_, one.task) not in gone_back:
                    moves.setdefault(one.task, []).append(one)
        for task, ones in moves.items():
            self.checkpoints[task] = _moved(self.checkpoints[task], ones)

    def _undo_rewinds(self, counting: Mapping[TaskPartition, StartpointEntry]) -> dict[str, list[Resolution]]:
        """Put tasks whose states went back, for a startpoint that counts no more, where they were before: they have committed
        nothing since. What else they went back for has to be done again: its resolutions, by id."""
        pending = {id_: record for id_, record in self.records.items() if record.status is StartpointStatus.PENDING}
        rewinds = {id_: record for id_, record in pending.items() if record.entry.state is StatePolicy.REWIND}
        for record in rewinds.values():
            ssp = record.entry.key.ssp
            tasks = [one.task for one in record.resolutions if one.ssp == ssp]  # what went back with these is undone with them
            self.to_undo |= {task for task in tasks if counting.get((task, ssp)) != record.entry}
        again: dict[str, list[Resolution]] = {}
        for task, was in self.rewinds.as_they_were(self.to_undo, self.checkpoints).items():
            self.checkpoints[task] = was
            for id_ in pending:
                record = self.records[id_]
                mine = [one for one in record.resolutions if one.task == task]
                if id_ not in rewinds:
                    self.checkpoints[task] = _moved(self.checkpoints[task], mine)  # it stays where it was set
                    continue
                self.records[id_] = replace(record, resolutions=tuple(one for one in record.resolutions if one.task != task))
                own = [one for one in mine if one.ssp == record.entry.key.ssp]
                if own and counting.get((task, own[0].ssp)) == record.entry:
                    before, mark = was.positions[own[0].ssp], was.watermarks.get(own[0].ssp)
                    again.setdefault(id_, []).append(replace(own[0], before=before, watermark_us=mark))
        return again

    def _resolved(self, entry: StartpointEntry, place: TaskPartition, unspent: Resolution | None) -> Resolution:
        """What an entry comes to for one task. `unspent`: what another came to there that has moved nothing yet."""
        (task, ssp), register = place, self.rewinds.offsets.register
        with _named(entry, self.named):
            offset = register(ssp, entry.startpoint)
            is_bootstrap = entry.startpoint.position_type is PositionType.BOOTSTRAP
            until = register(ssp, Startpoint(PositionType.LATEST)) if is_bootstrap else None
        checkpoint = self.checkpoints[task]
        if entry.state is StatePolicy.REWIND:
            offset = not_forward_within(self.going_back.get(place), checkpoint.positions[ssp], offset)
        if unspent is not None:
            return replace(unspent, offset=offset, until=until)
        return Resolution(task, ssp, offset, checkpoint.positions[ssp], checkpoint.watermarks.get(ssp), until)

    def _take_states_back(
        self, taken: Sequence[StartpointEntry], resolved: dict[str, list[Resolution]]
    ) -> set[tuple[str, TaskName]]:
        """Where entries ask for it: tasks' states go back, every position of theirs to where those states were, and with them
        what is behind repartition streams. Which entries, for which tasks, have come to that.

        What another entry sets in such a task counts if it is later: else its position goes back with the others.
        """
        gone_back: set[tuple[str, TaskName]] = set()
        order = {entry.id: (entry.written_at_us, number) for number, entry in enumerate(taken)}
        asking: dict[TaskName, list[tuple[StartpointEntry, Resolution]]] = {}
        setting: dict[TaskName, list[tuple[StartpointEntry, Resolution]]] = {}
        for entry in taken:
            by_task = asking if entry.state is StatePolicy.REWIND else setting
            for one in resolved[entry.id]:
                by_task.setdefault(one.task, []).append((entry, one))
        if not asking:
            return gone_back
        all_asking = {entry.id: entry for ones in asking.values() for entry, _ in ones}
        first, *_ = all_asking.values()
        with _named(first, self.named, tuple(all_asking)):
            targets = {task: {one.ssp: one.offset for _, one in ones} for task, ones in asking.items()}
            pasts = self.rewinds.take_back(self.checkpoints, targets)
        for task, past in pasts.items():
            before, ones = self.checkpoints[task], asking.get(task, [])
            self.checkpoints[task] = past
            self.gone_back.add(task)
            self.notes.append(f"the state of {task} goes back, and all that it reads: {_places(past)}")
            for entry, one in ones:
                gone_back.add((entry.id, task))
                mine = resolved[entry.id]
                mine[mine.index(one)] = replace(one, offset=past.positions[one.ssp])
            set_after = {one.ssp for _, one in ones}
            last = max(order[id_] for id_ in ([entry.id for entry, _ in ones] or all_asking))
            for entry, one in setting.get(task, ()):
                is_skip = not ones and one.offset > past.positions[one.ssp]  # of what the state has lost, as others go back
                if order[entry.id] > last and not is_skip:
                    set_after.add(one.ssp)
                else:
                    resolved[entry.id].remove(one)
            resolved[(ones[0][0] if ones else first).id].extend(
                Resolution(task, ssp, past.positions[ssp], before.positions[ssp], before.watermarks.get(ssp))
                for ssp in sorted(past.positions.keys() - set_after)
                if past.positions[ssp] != before.positions[ssp]
            )
        return gone_back

    def result(self) -> AppliedStartpoints:
        asked, records, rest = self.asked, self.records, len(self.notes) - NOTES_MAX
        new = [record for id_, record in records.items() if id_ not in asked.records]
        back = {
            one.task.sub_topology
            for record in new
            for one in record.resolutions
            if one.offset < one.before and one.task not in self.gone_back
        }
        records |= _superseded(records, self.now_us)
        left = {entry.id for entry in self.entries if entry.id not in records}
        waiting = frozenset(id_ for id_, request in asked.requests.items() if any(one.id in left for one in request.entries))
        # A request that is done may be seen again, by a driver that starts after a crash before its removal.
        waiting |= asked.unreadable.keys()
        needed = {one.id for request in asked.requests.values() for one in request.entries}
        forgotten = _to_forget(records, needed)
        kept = {id_: record for id_, record in records.items() if id_ not in forgotten}
        changed = {id_: record for id_, record in kept.items() if asked.records.get(id_) != record}
        return AppliedStartpoints(
            _without_watermarks(self.checkpoints, streams_below(self.rewinds.edges, back)),
            kept,
            {**changed, **dict.fromkeys(forgotten & asked.records.keys())},
            tuple(id_ for id_ in asked.requests if id_ not in waiting),
            waiting,
            (*self.notes[:NOTES_MAX], *([f"and {rest:,} more positions are set"] if rest > 0 else [])),
        )


def _owners_of_what_is_set(
    asked: StartpointRequests, checkpoints: Mapping[TaskName, Checkpoint]
) -> dict[SSP, tuple[TaskName, ...]]:
    """The tasks that read each partition that a startpoint, requested or on record, is of. Mostly there are few."""
    records = asked.records.values()
    found = {entry.key.ssp for entry in (*asked.entries, *asked.deleted, *(record.entry for record in records))}
    found |= {one.ssp for record in records for one in record.resolutions}
    return owners_of((task, one.positions.keys() & found) for task, one in checkpoints.items()) if found else {}


def _note(entry: StartpointEntry, one: Resolution) -> str:
    if entry.written_by == SOURCE_START:
        return f"{one.task} reads {one.ssp} from {one.offset} up to {one.until} before any other stream, as its start says"
    return f"startpoint {entry.id}: {one.task} reads {one.ssp} from {one.offset}, it was at {one.before}"


def _needs_any(record: StartpointRecord, tasks: Collection[TaskName]) -> bool:
    """Whether it took the states of any of these tasks back: a position alone, put back, would skip what they miss."""
    is_rewind = record.entry.state is StatePolicy.REWIND
    return is_rewind and any(one.task in tasks and one.offset < one.before for one in record.resolutions)


def _places(checkpoint: Checkpoint) -> str:
    """Where a task reads on, for people."""
    return ", ".join(f"{ssp} from {position}" for ssp, position in sorted(checkpoint.positions.items()))


def _of_tasks(record: StartpointRecord, owners: Mapping[SSP, Collection[TaskName]]) -> StartpointRecord:
    """The record with the tasks that read its SSPs now in the place of those that were removed."""
    if all(one.task in owners.get(one.ssp, (one.task,)) for one in record.resolutions):
        return record
    found: dict[TaskPartition, Resolution] = {}
    for one in sorted(record.resolutions, key=lambda one: one.task not in owners.get(one.ssp, ())):
        reading = owners.get(one.ssp, (one.task,))
        for task in [one.task] if one.task in reading else reading:
            found.setdefault((task, one.ssp), replace(one, task=task))
    return replace(record, resolutions=tuple(found.values()))


def _to_forget(records: Mapping[str, StartpointRecord], needed: Collection[str]) -> frozenset[str]:
    """Of the records that are done with, all but the newest `FINISHED_MAX`: those tell people what became of them.

    `needed`: those that other requests still need. The last replay stays too, so that no number is given twice.
    """
    needed = {*needed, *(record.entry.id for record, _ in in_force(records.values()).values())}
    needed |= {max(records, key=lambda id_: records[id_].replay or 0)} if records else set()
    finished = [
        record for id_, record in records.items() if record.status is not StartpointStatus.PENDING and id_ not in needed
    ]
    newest = sorted(finished, key=lambda record: (-record.changed_at_us, record.entry.id))
    return frozenset(record.entry.id for record in newest[FINISHED_MAX:])


@contextmanager
def _named(entry: StartpointEntry, named: str, together: Sequence[str] = ()) -> Iterator[None]:
    """Have errors say which startpoint it is that cannot be resolved; `together`: the ids of those that it goes with."""
    try:
        yield
    except (UnavailableError, FencedError):
        raise
    except HeadraceError as error:
        said = type(error)(
            f"startpoint {entry.id} of {entry.key.ssp}, written by {entry.written_by}, cannot be resolved: {error.message}",
            f"{error.hint}; it stays until it is deleted: {_deletion(entry.id, named)}",
        )
        said.about = tuple(together) or (entry.id,)
        raise said from error


def _deletion(id_: str, named: str) -> str:
    return f"`headrace startpoint delete {id_}{named and f' {named}'}`"


def _moved(checkpoint: Checkpoint, ones: Sequence[Resolution]) -> Checkpoint:
    """At the startpoints' offsets. Replayed records must not be late: a watermark does not survive a rewind."""
    back = {one.ssp for one in ones if one.offset < one.before}
    watermarks = {ssp: time for ssp, time in checkpoint.watermarks.items() if ssp not in back}
    return replace(
        checkpoint, positions={**checkpoint.positions, **{one.ssp: one.offset for one in ones}}, watermarks=watermarks
    )


def _without_watermarks(checkpoints: Mapping[TaskName, Checkpoint], streams: Collection[str]) -> dict[TaskName, Checkpoint]:
    """The same without the watermarks of these streams: they come again, from those that write them."""
    found = dict(checkpoints)
    for task, one in checkpoints.items() if streams else ():
        kept = {ssp: time_us for ssp, time_us in one.watermarks.items() if ssp.stream not in streams}
        if len(kept) < len(one.watermarks):
            found[task] = replace(one, watermarks=kept)
    return found


def _superseded(records: Mapping[str, StartpointRecord], now_us: int) -> dict[str, StartpointRecord]:
    """Of the pending records those that count nowhere any more."""
    counting = {record.entry.id for record, _ in in_force(records.values()).values()}
    return {
        id_: replace(record, status=StartpointStatus.SUPERSEDED, changed_at_us=now_us)
        for id_, record in records.items()
        if record.status is StartpointStatus.PENDING and id_ not in counting
    }
