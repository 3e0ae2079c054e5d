"""The JSON forms of what is stored: checkpoints, job models, heads, round ids, handovers, and what is on
record of streams: which tasks read an SSP, how many partitions there were.

Both the runtime and the adapters use them, so they are at the level of the ports. Every document carries `wire`, the
number of its form; SSPs and task names are stored as their texts; maps are sorted, so equal values give equal bytes. A
document of a newer form, or one that does not fit, is a `StorageError` that names it: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from headrace.core.rounds.handover import Handover
from headrace.core.rounds.offset_ranges import OffsetRange
from headrace.errors import StorageError
from headrace.model.checkpoint import Checkpoint, Head, RoundId
from headrace.model.expansion import Expansion, PartitionRecord, SetSSPTaskMapping
from headrace.model.job_model import ContainerModel, JobModel, LeftPosition, SubTopologyModel, TaskModel
from headrace.model.streams import SystemStreamPartition
from headrace.model.tasks import TaskName

WIRE = 1  # raised whenever a form below changes; a reader refuses what is newer than itself

_T = TypeVar("_T")
JSON_ERRORS = (msgspec.DecodeError, msgspec.ValidationError, ValueError, UnicodeError)


class _Form(msgspec.Struct, frozen=True):
    wire: int


class _RoundIdForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    round_id: RoundId


class _HeadForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    head: Head


class _CheckpointForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    task: str
    round_id: RoundId
    job_model_version: int
    positions: dict[str, int]
    head: Head | None
    watermarks: dict[str, int]
    event_timer_us: int | None
    wall_timer_us: int | None
    spent_startpoints: dict[str, str] | tuple[str, ...]  # a list, always empty, in those of an older version


class _TaskForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    ssps: tuple[str, ...]


class _ContainerForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    lane: int
    processor_id: str | None
    location_id: str | None
    tasks: tuple[_TaskForm, ...]


class _SubTopologyForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str | None
    containers: tuple[_ContainerForm, ...]


class _LeftForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str
    ssp: str
    position: int
    stream_id: str


class _JobModelForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    application: str
    version: int
    elasticity_factor: int
    partition_counts: dict[str, int]
    stores: dict[str, str]
    stream_ids: dict[str, str]
    sub_topologies: tuple[_SubTopologyForm, ...]
    left: tuple[_LeftForm, ...]
    partitioned_by_users: tuple[str, ...] = ()  # this and what follows is absent from models stored by an older version
    partitioned_otherwise: tuple[str, ...] = ()
    databases: dict[str, str] | msgspec.UnsetType = msgspec.UNSET  # this and what follows is written where there is any
    dropped: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class _HandoverForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    id: int
    round_id: RoundId
    ranges: tuple[tuple[str, int, int], ...]
    is_done: bool


class _SspTaskMappingForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    ssp: str
    tasks: tuple[str, ...]


class _ExpansionForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    before: int
    after: int
    noticed_us: int
    settled: dict[str, int] | None


class _PartitionRecordForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    stream_id: str
    partitions: int
    expansions: tuple[_ExpansionForm, ...]


def encode_round_id(round_id: RoundId) -> bytes:
    return msgspec.json.encode(_RoundIdForm(WIRE, round_id))


def decode_round_id(data: bytes | str, what: str = "round id") -> RoundId:
    """The value that `data` stands for; `what` names it in the `StorageError` of one that cannot be read."""
    return decoded(data, _RoundIdForm, what).round_id


def encode_head(head: Head) -> bytes:
    return msgspec.json.encode(_HeadForm(WIRE, head))


def decode_head(data: bytes | str, what: str = "head") -> Head:
    """See `decode_round_id`."""
    return decoded(data, _HeadForm, what).head


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    return msgspec.json.encode(
        _CheckpointForm(
            wire=WIRE,
            task=str(checkpoint.task),
            round_id=checkpoint.round_id,
            job_model_version=checkpoint.job_model_version,
            positions=_by_text(checkpoint.positions),
            head=checkpoint.head,
            watermarks=_by_text(checkpoint.watermarks),
            event_timer_us=checkpoint.event_timer_us,
            wall_timer_us=checkpoint.wall_timer_us,
            spent_startpoints={str(ssp): id_ for ssp, id_ in sorted(checkpoint.spent_startpoints.items())},
        )
    )


def decode_checkpoint(data: bytes | str, what: str = "checkpoint") -> Checkpoint:
    """See `decode_round_id`."""
    form = decoded(data, _CheckpointForm, what)
    try:
        return Checkpoint(
            task=TaskName.parse(form.task),
            round_id=form.round_id,
            job_model_version=form.job_model_version,
            positions=_by_ssp(form.positions),
            head=form.head,
            watermarks=_by_ssp(form.watermarks),
            event_timer_us=form.event_timer_us,
            wall_timer_us=form.wall_timer_us,
            spent_startpoints=_ids_by_ssp(form.spent_startpoints),
        )
    except ValueError as error:
        raise malformed(what, error) from error


def encode_job_model(model: JobModel) -> bytes:
    return msgspec.json.encode(
        _JobModelForm(
            wire=WIRE,
            application=model.application,
            version=model.version,
            elasticity_factor=model.elasticity_factor,
            partition_counts=dict(sorted(model.partition_counts.items())),
            stores=dict(sorted(model.stores.items())),
            stream_ids=dict(sorted(model.stream_ids.items())),
            sub_topologies=tuple(_sub_topology_form(sub) for sub in model.sub_topologies),
            left=tuple(_LeftForm(str(one.task), str(one.ssp), one.position, one.stream_id) for one in model.left),
            partitioned_by_users=tuple(sorted(model.partitioned_by_users)),
            partitioned_otherwise=tuple(sorted(model.partitioned_otherwise)),
            databases=dict(sorted(model.databases.items())) or msgspec.UNSET,
            dropped=dict(sorted(model.dropped.items())) or msgspec.UNSET,
        )
    )


def decode_job_model(data: bytes | str, what: str = "job model") -> JobModel:
    """See `decode_round_id`."""
    form = decoded(data, _JobModelForm, what)
    try:
        return JobModel(
            application=form.application,
            version=form.version,
            sub_topologies=tuple(_sub_topology(sub) for sub in form.sub_topologies),
            partition_counts=form.partition_counts,
            stores=form.stores,
            elasticity_factor=form.elasticity_factor,
            stream_ids=form.stream_ids,
            left=tuple(map(_left, form.left)),
            partitioned_by_users=form.partitioned_by_users,
            partitioned_otherwise=form.partitioned_otherwise,
            databases=form.databases or {},
            dropped=form.dropped or {},
        )
    except ValueError as error:
        raise malformed(what, error) from error


def encode_handover(handover: Handover) -> bytes:
    ranges = tuple((str(piece.ssp), piece.start, piece.end) for piece in handover.ranges)
    return msgspec.json.encode(_HandoverForm(WIRE, handover.id, handover.round_id, ranges, handover.is_done))


def decode_handover(data: bytes | str, what: str = "handover") -> Handover:
    """See `decode_round_id`."""
    form = decoded(data, _HandoverForm, what)
    try:
        ranges = tuple(OffsetRange(SystemStreamPartition.parse(ssp), start, end) for ssp, start, end in form.ranges)
    except ValueError as error:
        raise malformed(what, error) from error
    return Handover(form.id, form.round_id, ranges, form.is_done)


def encode_ssp_task_mapping(mapping: SetSSPTaskMapping) -> bytes:
    return msgspec.json.encode(_SspTaskMappingForm(WIRE, str(mapping.ssp), tuple(map(str, mapping.tasks))))


def decode_ssp_task_mapping(data: bytes | str, what: str = "assignment of an SSP") -> SetSSPTaskMapping:
    """See `decode_round_id`."""
    form = decoded(data, _SspTaskMappingForm, what)
    try:
        return SetSSPTaskMapping(SystemStreamPartition.parse(form.ssp), tuple(map(TaskName.parse, form.tasks)))
    except ValueError as error:
        raise malformed(what, error) from error


def encode_partition_record(record: PartitionRecord) -> bytes:
    expansions = tuple(
        _ExpansionForm(
            one.before,
            one.after,
            one.noticed_us,
            None if one.settled is None else {str(partition): one.settled[partition] for partition in sorted(one.settled)},
        )
        for one in record.expansions
    )
    return msgspec.json.encode(_PartitionRecordForm(WIRE, record.stream_id, record.partitions, expansions))


def decode_partition_record(data: bytes | str, what: str = "number of partitions") -> PartitionRecord:
    """See `decode_round_id`."""
    form = decoded(data, _PartitionRecordForm, what)
    try:
        expansions = tuple(
            Expansion(
                one.before,
                one.after,
                one.noticed_us,
                None if one.settled is None else {int(partition): offset for partition, offset in one.settled.items()},
            )
            for one in form.expansions
        )
    except ValueError as error:
        raise malformed(what, error) from error
    return PartitionRecord(form.stream_id, form.partitions, expansions)


def decoded(data: bytes | str, form: type[_T], what: str) -> _T:
    try:
        wire = msgspec.json.decode(data, type=_Form).wire
        if wire == WIRE:
            return msgspec.json.decode(data, type=form)
    except JSON_ERRORS as error:
        raise malformed(what, error) from error
    raise StorageError(
        f"stored {what}: written in form {wire}, this version of Headrace reads form {WIRE}",
        "run it with the version of Headrace that wrote it, or a newer one",
    )


def malformed(what: str, error: Exception) -> StorageError:
    return StorageError(f"stored {what}: cannot be read: {error}", "it was damaged, or not written by Headrace")


def _by_text(values: Mapping[SystemStreamPartition, int]) -> dict[str, int]:
    return {str(ssp): values[ssp] for ssp in sorted(values)}


def _by_ssp(values: Mapping[str, int]) -> dict[SystemStreamPartition, int]:
    return {SystemStreamPartition.parse(text): value for text, value in values.items()}


def _ids_by_ssp(values: Mapping[str, str] | tuple[str, ...]) -> dict[SystemStreamPartition, str]:
    found = values if isinstance(values, Mapping) else {}
    return {SystemStreamPartition.parse(text): id_ for text, id_ in found.items()}


def _sub_topology_form(sub: SubTopologyModel) -> _SubTopologyForm:
    return _SubTopologyForm(sub.name, tuple(_container_form(container) for container in sub.containers))


def _container_form(container: ContainerModel) -> _ContainerForm:
    tasks = tuple(_TaskForm(str(task.name), tuple(map(str, task.ssps))) for task in container.tasks)
    return _ContainerForm(container.lane, container.processor_id, container.location_id, tasks)


def _sub_topology(form: _SubTopologyForm) -> SubTopologyModel:
    return SubTopologyModel(form.name, tuple(_container(container) for container in form.containers))


def _left(form: _LeftForm) -> LeftPosition:
    ssp = SystemStreamPartition.parse(form.ssp)
    return LeftPosition(TaskName.parse(form.task), ssp, form.position, form.stream_id)


def _container(form: _ContainerForm) -> ContainerModel:
    tasks = tuple(
        TaskModel(TaskName.parse(task.name), tuple(map(SystemStreamPartition.parse, task.ssps))) for task in form.tasks
    )
    return ContainerModel(form.lane, tasks, form.processor_id, form.location_id)
