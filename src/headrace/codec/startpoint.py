"""The JSON forms of startpoints: of the requests that ask for them, and of what the driver made of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from headrace.codec.checkpoint import WIRE, decoded, malformed
from headrace.model.startpoint import (
    PositionType,
    Resolution,
    Startpoint,
    StartpointEntry,
    StartpointKey,
    StartpointRecord,
    StartpointRequest,
    StartpointStatus,
    StatePolicy,
)
from headrace.model.streams import SystemStreamPartition
from headrace.model.tasks import TaskName

STARTPOINTS = "startpoints"  # namespace: id to the record of a startpoint that was applied; and of the requests


class _EntryForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    ssp: str
    task: str | None
    position_type: PositionType
    position: int | None
    written_by: str
    written_at_us: int
    state: StatePolicy


class _ResolutionForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str
    ssp: str
    offset: int
    before: int
    watermark_us: int | None
    until: int | None


class _RecordForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    entry: _EntryForm
    resolutions: tuple[_ResolutionForm, ...]
    taken_up_at_us: int
    became: StartpointStatus
    changed_at_us: int
    replay: int | None


class _RequestForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    set: tuple[_EntryForm, ...]
    delete: tuple[str, ...]


def encode_startpoint_request(entries: Iterable[StartpointEntry] = (), deleted: Sequence[str] = ()) -> bytes:
    return msgspec.json.encode(_RequestForm(WIRE, tuple(map(_entry_form, entries)), tuple(deleted)))


def decode_startpoint_request(data: bytes | str, what: str = "request for startpoints") -> StartpointRequest:
    """`StorageError` for bytes that are no such request, or of a newer version."""
    form = decoded(data, _RequestForm, what)
    try:
        return StartpointRequest(tuple(map(_entry, form.set)), form.delete)
    except ValueError as error:
        raise malformed(what, error) from error


def encode_startpoint_record(record: StartpointRecord) -> bytes:
    return msgspec.json.encode(
        _RecordForm(
            WIRE,
            _entry_form(record.entry),
            tuple(
                _ResolutionForm(str(one.task), str(one.ssp), one.offset, one.before, one.watermark_us, one.until)
                for one in record.resolutions
            ),
            record.taken_up_at_us,
            record.became,
            record.changed_at_us,
            record.replay,
        )
    )


def decode_startpoint_record(data: bytes | str, what: str = "startpoint") -> StartpointRecord:
    """See `decode_startpoint_request`."""
    form = decoded(data, _RecordForm, what)
    try:
        resolutions = tuple(
            Resolution(
                TaskName.parse(one.task),
                SystemStreamPartition.parse(one.ssp),
                one.offset,
                one.before,
                one.watermark_us,
                one.until,
            )
            for one in form.resolutions
        )
        entry = _entry(form.entry)
    except ValueError as error:
        raise malformed(what, error) from error
    return StartpointRecord(entry, resolutions, form.taken_up_at_us, form.became, form.changed_at_us, form.replay)


def _entry_form(entry: StartpointEntry) -> _EntryForm:
    return _EntryForm(
        entry.id,
        str(entry.key.ssp),
        None if entry.key.task is None else str(entry.key.task),
        entry.startpoint.position_type,
        entry.startpoint.position,
        entry.written_by,
        entry.written_at_us,
        entry.state,
    )


def _entry(form: _EntryForm) -> StartpointEntry:
    task = None if form.task is None else TaskName.parse(form.task)
    key = StartpointKey(SystemStreamPartition.parse(form.ssp), task)
    startpoint = Startpoint(form.position_type, form.position)
    return StartpointEntry(form.id, key, startpoint, form.written_by, form.written_at_us, form.state)
