"""The JSON documents of what is stored: checkpoints, job models, and what else a job has on record.

A document is the value itself: the names of its fields are the stored names, so that renaming a field changes the form. SSPs
and task names are stored as their texts, and maps are sorted, so equal values give equal bytes. `wire` is the number of the
form: 1, but for checkpoints that hold what form 1 has no place for. A document of a newer form, or one that does not fit, is a
`StorageError` that names it: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache, lru_cache
from operator import or_
from types import GenericAlias, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from headrace.codec import checkpoint_form
from headrace.codec.job_model_form import StoredContainer, StoredJobModel, StoredSubTopology, StoredTask, model_of, stored_of
from headrace.core.rewind.consistent_cuts import ConsistentCut, SubTopologyEdges
from headrace.core.rewind.rewinds import Rewind
from headrace.core.rewind.state_history import StateVersion
from headrace.core.rounds.offset_ranges import OffsetRange
from headrace.core.topology.operator_changes import RunOperator
from headrace.errors import StorageError
from headrace.model.change import Change
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import JobModel
from headrace.model.startpoint import (
    PositionType,
    Startpoint,
    StartpointEntry,
    StartpointKey,
    StartpointRecord,
    StartpointRequest,
    StatePolicy,
)
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

WIRE = 1  # raised whenever a form changes; a reader refuses what is newer than itself
LATER_CHECKPOINT = 2  # the form of a checkpoint with something that older versions would not read, and lose

T = TypeVar("T")
_Convert = Callable[..., object]

# Where the stored names and their order are not those of the fields.
_NAMES: dict[type, dict[str, str]] = {
    Rewind: {"applied_at_us": "taken_up_at_us", "skipped_ranges": "gaps"},
    StartpointRecord: {"applied_at_us": "taken_up_at_us", "status": "became"},
    StartpointRequest: {"entries": "set", "deleted": "delete"},
}
_OMITTED: dict[type, tuple[str, ...]] = {  # where they are their defaults
    StoredJobModel: ("databases", "dropped"),
    StoredSubTopology: ("elasticity_factor", "broadcast"),
    StoredContainer: ("since",),
    StoredTask: ("buckets",),
    Change: ("phases_us",),
}
_LATER: dict[type, tuple[str, ...]] = {  # documents of an older version lack them
    StoredJobModel: ("partitioned_by_users", "partitioned_otherwise", *_OMITTED[StoredJobModel]),
    StoredSubTopology: _OMITTED[StoredSubTopology],
    StoredContainer: _OMITTED[StoredContainer],
    StoredTask: _OMITTED[StoredTask],
    Change: _OMITTED[Change],
}


@dataclass(frozen=True, slots=True)
class Operators:
    """The operators of a run, in their order."""

    operators: tuple[RunOperator, ...]


@dataclass(frozen=True, slots=True)
class Flows:
    """What the sub-topologies of a job read and write, in their order."""

    flows: tuple[SubTopologyEdges, ...]


def encode(value: object) -> bytes:
    """The document of a value."""
    kind: type = type(value)
    return msgspec.json.encode(_document_of(kind).write(value))


def decode(kind: type[T], data: bytes | str, what: str) -> T:
    """The `kind` that `data` stands for; `what` names it in the `StorageError` of one that cannot be read."""
    newest = LATER_CHECKPOINT if kind is Checkpoint else WIRE
    try:
        of_kind: type = kind
        document = _document_of(of_kind)
        stored, wire = _stored_in(data, document.stored)
        if WIRE <= wire <= newest:
            value = document.read(stored if stored is not None else msgspec.json.decode(data, type=document.stored))
            assert isinstance(value, kind)
            if _wire_of(value) > wire:
                raise ValueError(f"form {wire} has no place for all that it holds")
            return value
    except (msgspec.MsgspecError, ValueError) as error:
        raise StorageError(f"stored {what}: cannot be read: {error}", "it was damaged, or not written by Headrace") from error
    except StorageError as error:  # of a document in it
        raise StorageError(f"stored {what}: {error.message}", error.hint) from None
    readable = f"form {WIRE}" if newest == WIRE else f"forms {WIRE} to {newest}"
    raise StorageError(
        f"stored {what}: written in form {wire}, this version of Headrace reads {readable}",
        "run it with the version of Headrace that wrote it, or a newer one",
    )


@lru_cache(maxsize=4_096)
def decode_checkpoint(data: bytes | str, what: str) -> Checkpoint:
    """`decode` of a checkpoint, for who looks at all of a job again and again: most are as they were. With more tasks than are
    kept here each is decoded each time."""
    return decode(Checkpoint, data, what)


@lru_cache(maxsize=4_096)
def decode_version(data: bytes | str, what: str) -> StateVersion:
    """The same of a kept version of a task's state."""
    return decode(StateVersion, data, what)


@lru_cache(maxsize=4)
def decode_job_model(data: bytes | str, what: str) -> JobModel:
    """`decode` of a job model, which is large and rarely changes: who looks at a job reads the same one again and again."""
    return decode(JobModel, data, what)


def _wire_of(value: object) -> int:
    return LATER_CHECKPOINT if isinstance(value, Checkpoint) and checkpoint_form.is_later(value) else WIRE


def _written_checkpoint(checkpoint: Checkpoint) -> object:
    return checkpoint_form.stored_checkpoint(checkpoint, _wire_of(checkpoint))


class _Numbered(msgspec.Struct, frozen=True):
    wire: int


def _stored_in(data: bytes | str, kind: Any) -> tuple[Any, int]:
    """What is stored, None where it is of another form, and the number of its form."""
    try:
        stored = msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError:
        return None, msgspec.json.decode(data, type=_Numbered).wire
    return stored, stored.wire


# --- from types to forms ------------------------------------------------------------------------------------------------------


def _same(value: object) -> object:
    return value


@dataclass(frozen=True, slots=True)
class _Form:
    """How values of a type are stored: the type that msgspec reads, and the ways from it and to it."""

    stored: object
    read: _Convert = _same
    write: _Convert = _same


@cache
def _document_of(kind: type) -> _Form:
    if kind is Change:
        return _as(_record_form(_Entered, is_document=True), lambda stored: stored.change, _Entered)
    if kind is JobModel:
        return _as(_record_form(StoredJobModel, is_document=True), model_of, stored_of)
    if kind is Checkpoint:
        return _Form(checkpoint_form.StoredCheckpoint, checkpoint_form.read_checkpoint, _written_checkpoint)
    if kind is StateVersion:
        return _as(_record_form(_Version, is_document=True), _read_version, _version_of)
    return _record_form(kind, is_document=True)


@cache
def _form_of(kind: object) -> _Form:
    if kind is SSP:
        return _Form(str, SSP.parse, str)
    if kind is TaskName:
        return _Form(str, TaskName.parse, str)
    if kind is OffsetRange:
        return _Form(tuple[str, int, int], _read_range, lambda piece: (str(piece.ssp), piece.start, piece.end))
    if kind is StartpointEntry:
        return _as(_record_form(_Entry), _read_entry, _entry_of)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:  # with None
        form = _form_of(arguments[0])
        return _Form(or_(form.stored, None), _unless_none(form.read), _unless_none(form.write))
    if origin is tuple and arguments[1] is ...:
        form = _form_of(arguments[0])
        return _Form(GenericAlias(tuple, (form.stored, ...)), _of_each(form.read), _of_each(form.write))
    if origin is Mapping:
        return _map_form(*map(_form_of, arguments))
    return _record_form(kind) if isinstance(kind, type) and is_dataclass(kind) else _Form(kind)


def _field_form(kind: type, name: str, hint: object) -> _Form:
    if (kind, name) in ((ConsistentCut, "written"), (Rewind, "skipped_ranges")):
        return _whole_ssps_form(get_args(hint)[1])
    return _form_of(hint)


def _as(form: _Form, read: _Convert, write: _Convert) -> _Form:
    """Of values that are stored as those of another type, which has the form `form`."""
    return _Form(form.stored, lambda stored: read(form.read(stored)), lambda value: form.write(write(value)))


def _unless_none(convert: _Convert) -> _Convert:
    return convert if convert is _same else lambda value: None if value is None else convert(value)


def _of_each(convert: _Convert) -> _Convert:
    return convert if convert is _same else lambda values: tuple(map(convert, values))


def _map_form(key: _Form, item: _Form) -> _Form:
    return _Form(
        GenericAlias(dict, (key.stored, item.stored)),
        lambda stored: {key.read(one): item.read(each) for one, each in stored.items()},
        lambda values: {key.write(one): item.write(values[one]) for one in sorted(values)},
    )


def _whole_ssps_form(item: object) -> _Form:
    """A map by whole partitions, as pairs of (system, stream, partition) and the item."""

    def write(values: Mapping[SSP, object]) -> object:
        assert all(ssp.key_bucket is None for ssp in values), "ranges are written or skipped for whole partitions"
        return [((ssp.system, ssp.stream, ssp.partition), values[ssp]) for ssp in sorted(values)]

    pairs = GenericAlias(tuple, (GenericAlias(tuple, (tuple[str, str, int], item)), ...))
    return _Form(pairs, lambda stored: {SSP(*place): each for place, each in stored}, write)


def _record_form(kind: type, *, is_document: bool = False) -> _Form:
    """Of a dataclass; msgspec alone reads and writes one whose fields are all stored as they are."""
    hints, renamed = get_type_hints(kind), _NAMES.get(kind, {})
    later, omitted = _LATER.get(kind, ()), _OMITTED.get(kind, ())
    forms = {name: _field_form(kind, name, hints[name]) for name in [one.name for one in fields(kind)]}
    if not is_document and not renamed and all(form.read is form.write is _same for form in forms.values()):
        return _Form(kind)
    columns: list[tuple[str, object] | tuple[str, object, object]] = [("wire", int)] if is_document else []
    columns += [(name, form.stored) for name, form in forms.items() if name not in later]
    columns += [(name, or_(forms[name].stored, msgspec.UnsetType), msgspec.UNSET) for name in later]
    struct = msgspec.defstruct(kind.__name__, columns, rename=renamed, frozen=True, forbid_unknown_fields=True)
    defaults = {one.name: _default_of(one) for one in fields(kind) if one.name in omitted}
    reads = [(name, form.read) for name, form in forms.items()]
    writes = [(name, renamed.get(name, name), form.write) for name, form in forms.items()]

    def read(stored: object) -> object:
        found = [(name, convert, getattr(stored, name)) for name, convert in reads]
        return kind(**{name: convert(part) for name, convert, part in found if part is not msgspec.UNSET})

    def write(value: object) -> object:
        document: dict[str, object] = {"wire": WIRE} if is_document else {}
        document |= {stored: convert(getattr(value, name)) for name, stored, convert in writes}
        for name, default in defaults.items():
            if getattr(value, name) == default:
                del document[renamed.get(name, name)]
        return document

    return _Form(struct, read, write)


def _default_of(one: Field[object]) -> object:
    return one.default if one.default_factory is MISSING else one.default_factory()


# --- what is stored as another type's -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entered:
    change: Change


@dataclass(frozen=True, slots=True)
class _Version:
    kept_us: int
    left_for: RoundId | None
    checkpoint: msgspec.Raw  # a document of its own


@dataclass(frozen=True, slots=True)
class _Entry:
    id: str
    ssp: SSP
    task: TaskName | None
    position_type: PositionType
    position: int | None
    written_by: str
    written_at_us: int
    state: StatePolicy


def _read_range(stored: tuple[str, int, int]) -> OffsetRange:
    return OffsetRange(SSP.parse(stored[0]), *stored[1:])


def _version_of(version: StateVersion) -> _Version:
    return _Version(version.kept_us, version.abandoned_for, msgspec.Raw(encode(version.checkpoint)))


def _read_version(stored: _Version) -> StateVersion:
    return StateVersion(decode(Checkpoint, bytes(stored.checkpoint), "checkpoint"), stored.kept_us, stored.left_for)


def _entry_of(entry: StartpointEntry) -> _Entry:
    key, startpoint, author = entry.key, entry.startpoint, (entry.written_by, entry.written_at_us)
    return _Entry(entry.id, key.ssp, key.task, startpoint.position_type, startpoint.position, *author, entry.state)


def _read_entry(stored: _Entry) -> StartpointEntry:
    key, startpoint = StartpointKey(stored.ssp, stored.task), Startpoint(stored.position_type, stored.position)
    return StartpointEntry(stored.id, key, startpoint, stored.written_by, stored.written_at_us, stored.state)
