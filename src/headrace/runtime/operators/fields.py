"""Owns the look-up of what an aggregate works on: the paths `key`, `value.<field>`, `timestamp`, `partition`, `offset`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.serde import Failures
from headrace.runtime.rows import Rows

_NUMBERS = ("sum", "mean")


def field_arrays(
    rows: Rows, fields: Mapping[str, set[str]], streams: list[tuple[str, int]], kinds_seen: dict[str, str]
) -> tuple[dict[str, Any], Failures]:
    """An Arrow array for each path; `fields` maps a path to the kinds of aggregates that use it. Failing rows are
    those whose value cannot be read, or is no number where the aggregate needs one. `kinds_seen` remembers for each path
    without a schema what kind of values a round has brought, because all of them go into one column."""
    arrays: dict[str, Any] = {}
    failures: dict[int, Exception] = {}
    from_bytes, failed = _fields_of_bytes(rows, [path for path in fields if path.startswith("value.")])
    failures.update(failed)
    for path, kinds in fields.items():
        if path in from_bytes:
            arrays[path] = from_bytes[path]
        else:
            arrays[path], failed = _array(rows, path, streams)
            failures.update(failed)
        if kinds & set(_NUMBERS):
            arrays[path], failed = _numbers(arrays[path], path)
            failures.update(failed)
        elif isinstance(arrays[path], list):
            arrays[path], failed = _uniform(arrays[path], path, kinds_seen)
            failures.update(failed)
        elif kinds != {"count"}:
            arrays[path], failed = _comparable(arrays[path], path)
            failures.update(failed)
    return arrays, sorted(failures.items())


def _fields_of_bytes(rows: Rows, paths: list[str]) -> tuple[dict[str, Any], Failures]:
    """The cheap way: only the needed fields are taken out of the bytes, and the values never become Python objects."""
    decode = getattr(rows.value.serde, "decode_fields", None)
    if not paths or decode is None or not rows.value.only_raw:
        return {}, []
    decoded = decode(rows.value.raw, [path.removeprefix("value.") for path in paths])
    if decoded is None:
        return {}, []
    arrays, failures = decoded
    return {path: arrays[path.removeprefix("value.")] for path in paths}, failures


def _array(rows: Rows, path: str, streams: list[tuple[str, int]]) -> tuple[Any, Failures]:
    head, _, rest = path.partition(".")
    if head == "timestamp":
        return pa.array(rows.timestamp_us, pa.int64()), []
    if head == "offset":
        return pa.array(rows.offset, pa.int64()), []
    if head == "partition":
        return pa.array(np.array([streams[i][1] for i in rows.ssp.tolist()], np.int64)), []
    field = rows.key if head == "key" else rows.value
    if not rest and (field.typed is not None or field.raw is not None and field.serde and field.serde.spark_type):
        return field.arrow()
    if field.typed is not None and pa.types.is_struct(field.typed.type):
        return pc.struct_field(field.typed, rest.split(".")), []
    objects, failures = field.objects()
    if failures:
        return [None] * len(rows), failures
    return [_inside(value, rest.split(".")) if rest else value for value in objects], []


def _inside(value: Any, names: list[str]) -> Any:
    for name in names:
        if value is None:
            return None
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    return value


def _numbers(array: Any, path: str) -> tuple[Any, Failures]:
    if isinstance(array, list):
        bad = [
            (i, TypeError(f"{path}: expected a number, found {value!r:.60}"))
            for i, value in enumerate(array)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)))
        ]
        failed = {i for i, _ in bad}
        values = [None if i in failed else value for i, value in enumerate(array)]
        floats = any(isinstance(value, float) for value in values)
        try:
            return pa.array(values, pa.float64() if floats else pa.int64()), bad  # type: ignore[return-value]
        except OverflowError:
            return pa.array([None if v is None else float(v) for v in values], pa.float64()), bad  # type: ignore[return-value]
    if pa.types.is_null(array.type):
        return array.cast(pa.int64()), []
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64()), []
    if pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        return array.cast(pa.float64()), []
    message = f"{path}: expected a number, found {array.type}"
    return array, [(i, TypeError(message)) for i in np.flatnonzero(array.is_valid().to_numpy(False)).tolist()]


def _uniform(values: list[Any], path: str, kinds_seen: dict[str, str]) -> tuple[Any, Failures]:
    """An Arrow array of scalars of one kind (int and float count as one); failures for values of any other."""
    kinds = [_kind(value) for value in values]
    expected = kinds_seen.get(path) or next((kind for kind in kinds if kind is not None and kind != "nested"), None)
    if expected is not None:
        kinds_seen[path] = expected
    bad: Failures = [
        (i, TypeError(f"{path}: expected {expected or 'a scalar'}, found {values[i]!r:.60}"))
        for i, kind in enumerate(kinds)
        if kind is not None and kind != expected
    ]
    failed = {i for i, _ in bad}
    kept = [None if i in failed else value for i, value in enumerate(values)]
    try:
        return pa.array(kept), bad
    except (pa.ArrowException, OverflowError):  # integers above 64 bits, or beside a float above 53
        return pa.array([None if value is None else float(value) for value in kept], pa.float64()), bad


def _comparable(array: Any, path: str) -> tuple[Any, Failures]:
    """A typed array as it can be compared, and kept in a state: dates and zoneless times as ISO text, decimals as floats."""
    kind = array.type
    if pa.types.is_nested(kind):
        bad = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False)).tolist()
        error = TypeError(f"{path}: expected a scalar, found {kind}")
        return pa.nulls(len(array), pa.int64()), [(i, error) for i in bad]
    if pa.types.is_decimal(kind):
        return array.cast(pa.float64()), []
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
        return array.cast(pa.string()), []
    return array, []


def _kind(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    return "nested" if isinstance(value, (dict, list, tuple)) else type(value).__name__
