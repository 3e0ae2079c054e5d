"""A store as an Arrow table, and that as a Parquet file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa

from headrace.client.store_form import StoreForm
from headrace.core.keys.key_layout import TIME_BYTES, split_state_key, time_from
from headrace.errors import HeadraceError, StateError
from headrace.model.serde import Serde
from headrace.serdes.scalars import Long

_ROWS_AT_ONCE = 65_536  # bounds the Python objects in memory
_OTHER_SERDE = "name the serde that the store's application declares, or give its file"
_FEW_AT_ONCE = 1_000  # where somebody may want no more


def table_of(form: StoreForm, entries: Iterable[tuple[bytes, bytes]]) -> Any:
    """The entries (layout key, bytes) of a store. Values of a type that is not known beforehand get the one that they have;
    where they do not agree on any, the column `value` is their JSON text."""
    remaining = _values_of(form, entries)
    chunks = []
    while pairs := list(islice(remaining, _ROWS_AT_ONCE)):
        chunks.append(_chunk(form, pairs))
    table = _joined(chunks or [_chunk(form, [])])
    if "sub" in table.column_names and not form.has_named_subs and not any(table.column("sub").to_pylist()):
        table = table.drop_columns(["sub"])
    return table


def rows_of(form: StoreForm, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[dict[str, object]]:
    """The rows of that table one by one; no more entries are taken than are needed for the rows that are. A value is as those
    that are read with it allow."""
    remaining = _values_of(form, entries)
    while pairs := list(islice(remaining, _FEW_AT_ONCE)):
        for row in _chunk(form, pairs).to_pylist():
            if not form.has_named_subs and not row.get("sub", True):
                del row["sub"]
            yield row


def _values_of(form: StoreForm, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    return ((layout, data) for layout, data in entries if form.is_value(split_state_key(layout)[1]))


def _chunk(form: StoreForm, pairs: list[tuple[bytes, bytes]]) -> Any:
    split = [split_state_key(layout) for layout, _ in pairs]
    columns: dict[str, Any] = {"key": _decoded(form.key, [key for key, _ in split])}
    times = [form.time_of(sub) for _, sub in split] if form.by_time else []
    if form.has_windows:
        windows = [form.window_of(at, data) for at, (_, data) in zip(times, pairs, strict=True)]
        columns["window_start"] = _times(times)
        columns["window_end"] = _times(window[1] for window in windows if window is not None)
    elif form.by_time:
        columns["at"] = _times(times)
    elif form.has_named_subs:
        columns["sub"] = pa.array([form.sub_of(sub) for _, sub in split], None if split else pa.null())
    else:
        columns["sub"] = pa.array([sub for _, sub in split], pa.binary())
    columns["value"] = _values(form, [data for _, data in pairs])
    if form.expires:
        columns["expires_at"] = _times(time_from(data[:TIME_BYTES]) for _, data in pairs)
    return pa.table(columns)


def _times(times_us: Iterable[int]) -> Any:
    return pa.array(times_us, pa.int64()).cast(pa.timestamp("us", "UTC"))


def _values(form: StoreForm, stored: list[bytes]) -> Any:
    if form.has_states:
        results = [form.value_of(data)[0] for data in stored]
        if form.result == Long():
            return pa.array(results, pa.int64())
        if form.result.spark_type is None:
            return _inferred(results)
        data, failures = form.result.encode_many(results)
        _refuse(failures, form.result)
        return _decoded(form.result, data.to_pylist())
    return _decoded(form.result, list(map(form.bytes_of, stored)))


def _decoded(serde: Serde, data: Sequence[bytes | None]) -> Any:
    """Encoded values as a typed array."""
    array = pa.array(data, pa.binary())
    try:
        if serde.spark_type is not None:
            typed, failures = serde.decode_arrow(array)
            _refuse(failures, serde)
            return typed
        objects, failures = serde.decode_many(array)
    except HeadraceError as error:
        raise StateError(f"stored bytes are not `{serde.form}`: {error.message}", _OTHER_SERDE) from None
    _refuse(failures, serde)
    return _inferred(objects)


def _refuse(failures: list[tuple[int, Exception]], serde: Serde) -> None:
    if failures:
        raise StateError(
            f"{len(failures)} stored values do not decode as `{serde.form}`, the first one: {failures[0][1]}",
            _OTHER_SERDE,
        )


def _inferred(objects: list[Any]) -> Any:
    try:
        return pa.array(objects)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return _as_json(objects)


def _as_json(objects: list[Any]) -> Any:
    texts = [None if value is None else msgspec.json.encode(value, enc_hook=str).decode() for value in objects]
    return pa.array(texts, pa.string())


def _joined(chunks: list[Any]) -> Any:
    try:
        return pa.concat_tables(chunks, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.concat_tables([_with_text(_with_text(chunk, "value"), "key") for chunk in chunks])


def _with_text(chunk: Any, name: str) -> Any:
    column = chunk.column(name)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return chunk
    return chunk.set_column(chunk.column_names.index(name), name, _as_json(column.to_pylist()))
