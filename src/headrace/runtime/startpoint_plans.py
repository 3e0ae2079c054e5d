"""Owns taking up startpoints when a job is planned: read what was asked for, resolve it once, and move the positions.

What comes of it is written in the job model's transaction, before anything is read (protocol.md 1): the positions in the
checkpoints, and a record of each startpoint. A request is removed after that; what is on record is not taken up again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.core.startpoints import Place, in_force, places_of, streams_below, winners
from headrace.core.sub_topologies import SubTopology
from headrace.errors import HeadraceError
from headrace.model.checkpoint import Checkpoint
from headrace.model.startpoint import (
    Became,
    PositionType,
    Resolution,
    Startpoint,
    StartpointEntry,
    StartpointRecord,
)
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.ports import MetadataStore, SystemConsumer
from headrace.runtime.startpoint_records import STARTPOINTS, applied_by
from headrace.wire_startpoints import (
    StartpointRequest,
    decode_startpoint_record,
    decode_startpoint_request,
    encode_startpoint_record,
)

FINISHED_MAX = 1000


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for, and what is on record. `requests` by their ids, oldest first."""

    requests: Mapping[str, StartpointRequest] = field(default_factory=dict)
    records: Mapping[str, StartpointRecord] = field(default_factory=dict)

    @property
    def entries(self) -> list[StartpointEntry]:
        """Those that were not taken up yet, in the order in which they came, without those that were deleted again."""
        deleted = {id_ for request in self.requests.values() for id_ in request.deleted}
        return [
            entry
            for request in self.requests.values()
            for entry in request.entries
            if entry.id not in self.records and entry.id not in deleted
        ]

    @property
    def deleted(self) -> list[StartpointEntry]:
        """Those whose deletion is asked for, taken up or not."""
        known = {entry.id: entry for request in self.requests.values() for entry in request.entries}
        known |= {id_: record.entry for id_, record in self.records.items()}
        ids = dict.fromkeys(id_ for request in self.requests.values() for id_ in request.deleted)
        return [known[id_] for id_ in ids if id_ in known]

    @property
    def ssps(self) -> frozenset[SSP]:
        """The SSPs whose positions are about to be set for all tasks that read them."""
        return frozenset(entry.key.ssp for entry in self.entries if entry.key.task is None)


def asked_of(store: MetadataStore) -> Asked:
    """Read both. `StorageError` for what cannot be read."""
    requests = {id_: decode_startpoint_request(data) for id_, data in store.requests(STARTPOINTS).items()}
    records = {id_: decode_startpoint_record(data, f"startpoint {id_!r}") for id_, data in store.all(STARTPOINTS).items()}
    return Asked(requests, records)


@dataclass(frozen=True, slots=True)
class TakenUp:
    """What comes of it: the tasks' checkpoints, all records, what of them is to be written, and the requests that are done.

    `waiting`: requests for what the job does not read, which stay.
    """

    checkpoints: Mapping[TaskName, Checkpoint]
    records: Mapping[str, StartpointRecord]
    written: Mapping[str, bytes | None]
    done: tuple[str, ...]
    waiting: frozenset[str]
    notes: tuple[str, ...]


def taken_up(
    asked: Asked,
    stored: Mapping[TaskName, Checkpoint],
    checkpoints: Mapping[TaskName, Checkpoint],
    consumer: SystemConsumer,
    read_anew: Collection[str],
    now_us: int,
    subs: Sequence[SubTopology] = (),
) -> TakenUp:
    """Move the positions of `checkpoints`, which the plan begins with; `stored` are those that were committed last.

    `subs`: all of the job: what is read again must not be late further down either.
    `read_anew`: streams whose position is set at every start: a startpoint there is spent as soon as it is read. Errors of
    the consumer are raised with the startpoint's name; nothing has changed then.
    """
    checkpoints = {task: replace(checkpoint, spent_startpoints={}) for task, checkpoint in checkpoints.items()}
    owners = _owners(checkpoints.values())
    records = dict(asked.records) | applied_by(asked.records, stored, now_us)
    records |= {id_: _of_tasks(record, owners) for id_, record in records.items()}
    for entry in asked.deleted:
        if entry.id not in records:
            records[entry.id] = StartpointRecord(entry, (), now_us, Became.DELETED, now_us)
        elif records[entry.id].became is Became.PENDING:
            checkpoints |= _taken_back(records[entry.id], checkpoints)
            records[entry.id] = replace(records[entry.id], became=Became.DELETED, changed_at_us=now_us)
    entries = asked.entries
    pending = [record.entry for record in records.values() if record.became is Became.PENDING]
    counting = winners([*sorted(pending, key=lambda entry: entry.written_at_us), *entries], owners)
    fresh: dict[str, list[Place]] = {}
    for place, entry in counting.items():
        if entry.id not in records:
            fresh.setdefault(entry.id, []).append(place)
    before = {place: one for place, (record, one) in in_force(records.values()).items() if record.became is Became.PENDING}
    replay = max((record.replay or 0 for record in records.values()), default=0) + 1
    notes: list[str] = []
    for entry in entries:
        if not places_of(entry, owners):
            continue
        resolutions = tuple(
            _resolved(entry, place, checkpoints[place[0]], before.get(place), consumer)
            for place in sorted(fresh.get(entry.id, ()))
        )
        at_once = not resolutions or entry.key.ssp.stream in read_anew
        became = Became.SUPERSEDED if not resolutions else Became.APPLIED if at_once else Became.PENDING
        goes_back = any(one.offset < one.before for one in resolutions)
        records[entry.id] = StartpointRecord(
            entry, resolutions, now_us, became, now_us, replay if goes_back else None
        )
        for one in resolutions:
            checkpoints[one.task] = _moved(checkpoints[one.task], one)
            notes.append(f"startpoint {entry.id}: {one.task} reads {one.ssp} from {one.offset}, it was at {one.before}")
    back = {one.task.sub_topology for id_ in fresh for one in records[id_].resolutions if one.offset < one.before}
    checkpoints = _without_watermarks(checkpoints, streams_below(subs, back))
    records |= _superseded(records, now_us)
    forgotten = _to_forget(records)
    records = {id_: record for id_, record in records.items() if id_ not in forgotten}
    written: dict[str, bytes | None] = {
        id_: encode_startpoint_record(record) for id_, record in records.items() if asked.records.get(id_) != record
    }
    written |= dict.fromkeys(forgotten & asked.records.keys())
    left = {entry.id for entry in entries if entry.id not in records and entry.id not in forgotten}
    waiting = frozenset(id_ for id_, request in asked.requests.items() if any(one.id in left for one in request.entries))
    done = tuple(id_ for id_ in asked.requests if id_ not in waiting)
    return TakenUp(checkpoints, records, written, done, waiting, tuple(notes))


def _of_tasks(record: StartpointRecord, owners: Mapping[SSP, Collection[TaskName]]) -> StartpointRecord:
    """The record with the tasks that read its SSP now in the place of those that are gone."""
    reading = owners.get(record.entry.key.ssp, ())
    if not record.resolutions or not reading or all(one.task in reading for one in record.resolutions):
        return record
    kept = [one for one in record.resolutions if one.task in reading]
    new = [task for task in sorted(reading) if all(one.task != task for one in kept)]
    return replace(record, resolutions=(*kept, *(replace(record.resolutions[0], task=task) for task in new)))


def _to_forget(records: Mapping[str, StartpointRecord]) -> frozenset[str]:
    """Of the records that are done with, all but the newest `FINISHED_MAX`: those tell people what became of them."""
    needed = {record.entry.id for record, _ in in_force(records.values()).values()}
    finished = [record for id_, record in records.items() if record.became is not Became.PENDING and id_ not in needed]
    newest = sorted(finished, key=lambda record: (-record.changed_at_us, record.entry.id))
    return frozenset(record.entry.id for record in newest[FINISHED_MAX:])


def _owners(checkpoints: Iterable[Checkpoint]) -> dict[SSP, list[TaskName]]:
    owners: dict[SSP, list[TaskName]] = {}
    for checkpoint in checkpoints:
        for ssp in checkpoint.positions:
            owners.setdefault(ssp, []).append(checkpoint.task)
    return owners


def _resolved(
    entry: StartpointEntry, place: Place, checkpoint: Checkpoint, unspent: Resolution | None, consumer: SystemConsumer
) -> Resolution:
    """What an entry comes to for one task. `unspent`: what another came to there that has moved nothing yet."""
    task, ssp = place
    try:
        offset = consumer.register(ssp, entry.startpoint)
        is_bootstrap = entry.startpoint.position_type is PositionType.BOOTSTRAP
        until = consumer.register(ssp, Startpoint(PositionType.LATEST)) if is_bootstrap else None
    except HeadraceError as error:
        raise type(error)(
            f"startpoint {entry.id} of {entry.key.ssp}, written by {entry.written_by}, cannot be resolved: {error.message}",
            f"{error.hint}; it stays until it is deleted: `headrace startpoint delete {entry.id}`",
        ) from error
    if unspent is not None:
        return replace(unspent, offset=offset, until=until)
    return Resolution(task, ssp, offset, checkpoint.positions[ssp], checkpoint.watermarks.get(ssp), until)


def _moved(checkpoint: Checkpoint, one: Resolution) -> Checkpoint:
    """At the startpoint's offset. What is read again must not be late: a watermark does not survive the way back."""
    watermarks = dict(checkpoint.watermarks)
    if one.offset < one.before:
        watermarks.pop(one.ssp, None)
    return replace(checkpoint, positions={**checkpoint.positions, one.ssp: one.offset}, watermarks=watermarks)


def _without_watermarks(checkpoints: Mapping[TaskName, Checkpoint], streams: Collection[str]) -> dict[TaskName, Checkpoint]:
    """The same without the watermarks of these streams: they come anew, from those that write them."""
    return {
        task: replace(one, watermarks={ssp: time for ssp, time in one.watermarks.items() if ssp.stream not in streams})
        for task, one in checkpoints.items()
    }


def _taken_back(
    record: StartpointRecord, checkpoints: Mapping[TaskName, Checkpoint]
) -> dict[TaskName, Checkpoint]:
    """Of tasks that a startpoint has moved, and that have read nothing since, the checkpoints as they were before."""
    found: dict[TaskName, Checkpoint] = {}
    for one in record.resolutions:
        checkpoint = found.get(one.task) or checkpoints.get(one.task)
        if checkpoint is not None and checkpoint.positions.get(one.ssp) == one.offset:
            marks = dict(checkpoint.watermarks) | ({} if one.watermark_us is None else {one.ssp: one.watermark_us})
            found[one.task] = replace(checkpoint, positions={**checkpoint.positions, one.ssp: one.before}, watermarks=marks)
    return found


def _superseded(records: Mapping[str, StartpointRecord], now_us: int) -> dict[str, StartpointRecord]:
    """Of the pending records those that count nowhere any more."""
    counting = {record.entry.id for record, _ in in_force(records.values()).values()}
    return {
        id_: replace(record, became=Became.SUPERSEDED, changed_at_us=now_us)
        for id_, record in records.items()
        if record.became is Became.PENDING and id_ not in counting
    }
