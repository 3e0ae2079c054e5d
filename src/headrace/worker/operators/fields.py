"""The look-up of what an aggregate works on: the paths `key`, `value.<field>`, `timestamp`, `partition`, `offset`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.accumulators import COUNTS, DECIMAL, DIGITS, ENDS, INT64_MAX, INT64_MIN, OF_TYPE, REAL, TOTALS
from headrace.core.decimals import DIGITS_MAX, checked_decimal
from headrace.errors import OutOfRangeError
from headrace.model.serde import Failures
from headrace.worker.rows import Rows


def field_arrays(rows: Rows, fields: Mapping[str, set[str]], streams: list[tuple[str, int]]) -> tuple[dict[str, Any], Failures]:
    """The columns of each path (`core.accumulators`); `fields` maps a path to the kinds of aggregates that use it. Failing
    rows are those whose value cannot be read, or is nothing that all these aggregates take."""
    columns: dict[str, Any] = {}
    failures: dict[int, Exception] = {}
    from_bytes, failed = _fields_of_bytes(rows, [path for path in fields if path.startswith("value.")])
    failures.update(failed)
    for path, kinds in fields.items():
        array = from_bytes.get(path)
        if array is None:
            array, failed = _array(rows, path, streams)
            failures.update(failed)
        made, failed = _column(array, path, kinds)
        columns.update(made)
        failures.update(failed)
    return columns, sorted(failures.items())


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
    names = rest.split(".") if rest else []
    return [inside(value, names) for value in objects] if names else objects, []


def inside(value: Any, names: list[str]) -> Any:
    for name in names:
        if value is None:
            return None
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    return value


def _column(array: Any, path: str, kinds: set[str]) -> tuple[dict[str, Any], Failures]:
    """The columns that a field goes into: each kind of values into one of its own, so that none is made another."""
    if kinds == {"count"}:
        return {path: _presence(array)}, []
    if isinstance(array, list):
        return _of_objects(array, path, kinds)
    array, failures = _comparable(array, path)
    kind = array.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if kinds & TOTALS and not (pa.types.is_null(kind) or is_number):
        failures = failures or _failing(array.is_valid(), lambda i: TypeError(f"{path}: expected a number, found {kind}"))
    if failures:
        return {path: pa.nulls(len(array), pa.int64())}, failures
    if pa.types.is_integer(kind):
        array, failures = _whole(array, path)
    elif pa.types.is_floating(kind):
        array = array.cast(pa.float64())
        if kinds - COUNTS and not pc.all(pc.is_finite(array), min_count=0).as_py():
            failures = _failing(pc.invert(pc.is_finite(array)), lambda i: _not_finite(path, array[i].as_py()))
    return _placed(array, path, kinds), failures


def _presence(array: Any) -> Any:
    """What can be counted: something where there is a value of whatever kind, null where there is none."""
    if isinstance(array, list):
        return pa.array([None if value is None else True for value in array], pa.bool_())
    return pc.if_else(array.is_valid(), pa.scalar(True), pa.scalar(None, pa.bool_()))


def _of_objects(values: list[Any], path: str, kinds: set[str]) -> tuple[dict[str, Any], Failures]:
    """Scalars of any kinds; failures for values that are none, or no numbers where only these are taken."""
    if (whole := _plain_numbers(values)) is not None and (kinds <= COUNTS or pc.all(pc.is_finite(whole), min_count=0).as_py()):
        return _placed(whole, path, kinds), []
    values = [str(value) if isinstance(value, UUID) else value for value in values]  # as in a state
    expected = "a number" if kinds & TOTALS else "a scalar"
    bad: dict[int, Exception] = {}
    by_type: dict[type, list[Any]] = {}
    for i, value in enumerate(values):
        if value is None:
            continue
        is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
        error: Exception | None = None
        if is_number:
            error = _wrong_number(path, value, kinds)
        elif kinds & TOTALS or isinstance(value, (dict, list, tuple)):
            error = TypeError(f"{path}: expected {expected}, found {value!r:.60}")
        if error is not None:
            bad[i] = error
            continue
        kind = next(one for one in (int, float, Decimal) if isinstance(value, one)) if is_number else type(value)
        if kind not in by_type:
            by_type[kind] = [None] * len(values)
        by_type[kind][i] = value
    columns: dict[str, Any] = {}
    for mine in by_type.values():
        array, failures = _of_one_type(mine, path)
        bad.update(failures)
        for name, placed in _placed(array, path, kinds).items():  # of one type to Arrow, as a date and a text
            columns[name] = pc.coalesce(columns[name], placed) if name in columns else placed
    return columns or {path: pa.nulls(len(values))}, sorted(bad.items())


def _wrong_number(path: str, value: Any, kinds: set[str]) -> Exception | None:
    """What is wrong with a whole number, a decimal or a float; None where nothing is."""
    if isinstance(value, int):
        return None if INT64_MIN <= value <= INT64_MAX else _beyond_64_bits(path, value)
    if isinstance(value, Decimal):
        try:
            checked_decimal(value, path)
        except OutOfRangeError as error:
            return error
        return None
    return None if isfinite(value) or not kinds - COUNTS else _not_finite(path, value)


def _plain_numbers(values: list[Any]) -> Any:
    """The column of values that are all of type `int`, and of 64 bits, or all of type `float`; None for others."""
    types = set(map(type, values)) - {type(None)}
    if types not in ({int}, {float}):
        return None
    try:
        return pa.array(values, pa.int64() if types == {int} else pa.float64(), from_pandas=False)
    except OverflowError:
        return None


def _of_one_type(values: list[Any], path: str) -> tuple[Any, Failures]:
    try:
        decimals = next(isinstance(value, Decimal) for value in values if value is not None)
        return _comparable(pa.array(values, _decimal_type() if decimals else None), path)
    except (pa.ArrowException, OverflowError):
        pass
    failures: Failures = []
    for i, value in enumerate(values):
        try:
            pa.array([value])
        except (pa.ArrowException, OverflowError):
            failures.append((i, TypeError(f"{path}: expected a scalar, found {value!r:.60}")))
    if not failures:
        error = TypeError(f"{path}: the values of this batch have no type in common")
        failures = [(i, error) for i, value in enumerate(values) if value is not None]
    return pa.nulls(len(values)), failures


def _placed(array: Any, path: str, kinds: set[str]) -> dict[str, Any]:
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        return {path: array}
    if pa.types.is_decimal(kind):
        return {path + DECIMAL: array} | ({path + DIGITS: array.cast(pa.string())} if kinds & ENDS else {})
    return {path + (REAL if pa.types.is_floating(kind) else f"{OF_TYPE}{kind}"): array}


def _whole(array: Any, path: str) -> tuple[Any, Failures]:
    if not pa.types.is_uint64(array.type):
        return array.cast(pa.int64()), []
    beyond = pc.greater(array, pa.scalar(INT64_MAX, pa.uint64()))
    bad = _failing(beyond, lambda i: _beyond_64_bits(path, array[i].as_py()))
    return (pa.nulls(len(array), pa.int64()), bad) if bad else (array.cast(pa.int64()), [])


def _failing(mask: Any, error: Callable[[int], Exception]) -> Failures:
    """The rows at which `mask`, an Arrow array, is true, each with its error."""
    bad = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))
    return [(i, error(i)) for i in bad.tolist()]


def _beyond_64_bits(path: str, value: int) -> Exception:
    hint = "make it a float by map_values before, where it may be rounded"
    return OutOfRangeError(f"{path}: expected a whole number of 64 bits, found {value}", hint)


def _not_finite(path: str, value: float) -> Exception:
    hint = "filter such records out before, or make it None by map_values where it means that there is no value"
    return OutOfRangeError(f"{path}: expected a finite number, found {value}", hint)


def _comparable(array: Any, path: str) -> tuple[Any, Failures]:
    """A typed array as it can be compared, and kept in a state: dates and zoneless times as ISO text, decimals of one type."""
    kind = array.type
    if pa.types.is_null(kind):
        return array.cast(pa.int64()), []
    if pa.types.is_nested(kind):
        failures = _failing(array.is_valid(), lambda i: TypeError(f"{path}: expected a scalar, found {kind}"))
        return pa.nulls(len(array), pa.int64()), failures
    if pa.types.is_decimal(kind):
        return array.cast(_decimal_type()), []
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
        return array.cast(pa.string()), []
    return array, []


def _decimal_type() -> Any:
    """What all decimals are in a round, whatever digits they have: so that those of several batches are one column."""
    return pa.decimal256(2 * DIGITS_MAX, DIGITS_MAX)
