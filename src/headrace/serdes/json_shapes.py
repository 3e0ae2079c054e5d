"""The msgspec classes generated for a schema, and the way between their instances, Python and Arrow.

One class per struct decodes for dicts and for columns alike, so that both judge a record in the same way. Per record an
instance costs 140 ns to decode, and then a column 50 ns, or a dict of all fields 130 ns.
"""

from __future__ import annotations

import keyword
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation, localcontext
from functools import lru_cache
from operator import attrgetter
from sys import float_info
from typing import Annotated, Any

import msgspec

from headrace.errors import SchemaError, SerdeError
from headrace.serdes.ddl import ArrayType, DecimalType, MapType, ScalarType, SparkType, StructType, to_arrow_type, to_ddl
from headrace.serdes.deferred import np, pa
from headrace.serdes.json_text import NOT_FINITE

Normal = Callable[[Any], Any]
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_PLAIN: dict[str, Any] = {
    "boolean": bool,
    "float": float,
    "double": float,
    "string": str,
    "binary": bytes,
    "date": date,
    "timestamp": datetime,
    "timestamp_ntz": Annotated[datetime, msgspec.Meta(tz=False)],
}
_FINITE = Annotated[float, msgspec.Meta(ge=-float_info.max, le=float_info.max)]
_STRICT: dict[str, Any] = {"timestamp": Annotated[datetime, msgspec.Meta(tz=True)], "float": _FINITE, "double": _FINITE}
_FLOAT32 = struct.Struct("<f")


@dataclass(frozen=True, slots=True)
class Shape:
    """A struct's generated class, and the attribute of it that holds each field (the field's own name where it can be).

    `normal` brings an instance into the one form that a value has here, in place; None if it always has it.
    `python` gives it as a dict of every field, in declared order.
    """

    cls: Any
    attributes: tuple[str, ...]
    normal: Normal | None
    python: Normal


@lru_cache(maxsize=1024)
def shape_of(struct_type: StructType, encoding: bool = False) -> Shape:
    """The shape of a struct. That for encoding refuses fields that the schema lacks, times without a zone, NaN."""
    names = [field.name for field in struct_type.fields]
    natural = all(name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__") for name in names)
    attributes = tuple(names) if natural else tuple(f"f{index}" for index in range(len(names)))
    parts = list(zip(attributes, struct_type.fields, strict=True))
    fields = [(attribute, annotation_of(field.type, encoding) | None, None) for attribute, field in parts]
    renamed = None if natural else dict(zip(attributes, names, strict=True))
    cls = msgspec.defstruct("Row", fields, rename=renamed, gc=False, forbid_unknown_fields=encoding)
    normals = [(attribute, normal) for attribute, field in parts if (normal := normal_of(field.type)) is not None]
    return Shape(cls, attributes, _row_normal(normals) if normals else None, _row_python(struct_type, natural))


def annotation_of(spark_type: SparkType, encoding: bool = False) -> Any:
    """What msgspec decodes a value of the type as."""
    match spark_type:
        case ScalarType(name):
            if bits := _BITS.get(name):
                return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]
            return (_STRICT if encoding else _PLAIN).get(name, _PLAIN[name])
        case DecimalType():
            return Decimal
        case ArrayType(element):
            return list[annotation_of(element, encoding) | None]  # type: ignore[misc]  # built when it runs
        case MapType(key, value):
            if not isinstance(key, ScalarType) or not (key.name == "string" or key.name in _BITS):
                raise SchemaError(f"json: keys of type {to_ddl(key)} in {to_ddl(spark_type)}: expected string or integers")
            return dict[annotation_of(key), annotation_of(value, encoding) | None]  # type: ignore[misc]
        case StructType():
            return shape_of(spark_type, encoding).cls


def normal_of(spark_type: SparkType) -> Normal | None:
    """What brings a value that msgspec took into the type's one form, or raises; None where nothing is to do."""

    def of_one(one: SparkType) -> Normal | None:
        match one:
            case ScalarType("timestamp"):
                return _utc
            case ScalarType("float"):
                return _float32
            case DecimalType(precision, scale):
                return _decimal_normal(precision, scale)
            case StructType():
                return shape_of(one).normal
        return None

    return _through(spark_type, of_one)


def _through(spark_type: SparkType, of_one: Callable[[Any], Normal | None]) -> Normal | None:
    """`of_one` of a type without elements; of lists and maps that of all elements that are not null. None: nothing is to do."""
    match spark_type:
        case ArrayType(element):
            each = _through(element, of_one)
            return each and (lambda values: [None if value is None else each(value) for value in values])
        case MapType(_, item):
            of_item = _through(item, of_one)
            return of_item and (lambda values: {key: None if each is None else of_item(each) for key, each in values.items()})
    return of_one(spark_type)


def _row_normal(normals: Sequence[tuple[str, Normal]]) -> Normal:
    def normal(row: Any) -> Any:
        for attribute, function in normals:
            if (value := getattr(row, attribute)) is not None:
                setattr(row, attribute, function(value))
        return row

    return normal


def _utc(value: datetime) -> datetime:
    """Times are UTC: also those written without a zone."""
    if value.tzinfo is UTC:
        return value
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        raise SerdeError(
            f"json: the time {value} lies outside the years 1 to 9999 in UTC",
            "use a number for such times: bigint",
        ) from None


def _float32(value: float) -> float:
    """The nearest number that Spark's `float` holds, so that a dict and a column agree."""
    try:
        nearest: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
        return nearest
    except OverflowError:
        raise SerdeError(f"json: {value} is beyond the range of a float", "declare the field as double") from None


def _decimal_normal(precision: int, scale: int) -> Normal:
    step = Decimal(1).scaleb(-scale)
    bound = Decimal(10) ** (precision - scale)

    def normal(value: Decimal) -> Decimal:
        if not value.is_finite() or abs(value) >= bound:
            raise SerdeError(
                f"json: {value} does not fit decimal({precision},{scale})",
                "declare more digits, or round the value before",
            )
        try:
            with localcontext(prec=precision + 2):
                exact = value.quantize(step)
        except InvalidOperation:
            exact = None
        if exact is None or exact != value:
            raise SerdeError(f"json: {value} has more digits than decimal({precision},{scale})", "nothing is rounded here")
        return exact

    return normal


def _row_python(struct_type: StructType, natural: bool) -> Normal:
    names = [field.name for field in struct_type.fields]
    converted = [(field.name, each) for field in struct_type.fields if (each := python_of(field.type)) is not None]
    if natural and not converted:
        return msgspec.structs.asdict

    def python(row: Any) -> dict[str, Any]:
        result = msgspec.structs.asdict(row)
        if not natural:
            result = dict(zip(names, result.values(), strict=True))
        for name, convert in converted:
            if (value := result[name]) is not None:
                result[name] = convert(value)
        return result

    return python


def python_of(spark_type: SparkType) -> Normal | None:
    """What turns a decoded value into plain Python; None where it is that already."""
    return _through(spark_type, lambda one: shape_of(one).python if isinstance(one, StructType) else None)


def pythons(values: list[Any], spark_type: SparkType) -> list[Any]:
    """Decoded values (None for null) as plain Python."""
    if (convert := python_of(spark_type)) is None:
        return values
    return [None if value is None else convert(value) for value in values]


def column_of(values: list[Any], spark_type: SparkType) -> Any:
    """Decoded values (None for null) as an Arrow array of the type."""
    if isinstance(spark_type, StructType):
        return _struct_column(values, spark_type)
    return pa.array(pythons(values, spark_type), to_arrow_type(spark_type))


def _struct_column(rows: list[Any], struct_type: StructType) -> Any:
    shape = shape_of(struct_type)
    mask = None
    if None in rows:
        missing = np.fromiter((row is None for row in rows), dtype=np.bool_, count=len(rows))
        mask, blank = pa.array(missing), shape.cls()
        rows = [blank if row is None else row for row in rows]
    if not shape.attributes:
        return pa.array([{}] * len(rows), to_arrow_type(struct_type), mask=None if mask is None else missing)
    children = [
        column_of(list(map(attrgetter(attribute), rows)), field.type)
        for attribute, field in zip(shape.attributes, struct_type.fields, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(to_arrow_type(struct_type)), mask=mask)


def encodables(values: Any, spark_type: SparkType) -> list[Any]:
    """An Arrow array of the type as values that msgspec encodes in declared order (None for null); `SerdeError` where one
    has no JSON."""
    match spark_type:
        case StructType(fields):
            children = values.flatten()  # unlike field(), mindful of the struct's own nulls and offset
            columns = [encodables(child, field.type) for child, field in zip(children, fields, strict=True)]
            cls = shape_of(spark_type, encoding=True).cls
            rows = list(map(cls, *columns)) if columns else [cls() for _ in range(len(values))]
            if values.null_count:
                rows = [row if valid else None for row, valid in zip(rows, values.is_valid().to_pylist(), strict=True)]
            return rows
        case ScalarType("timestamp"):
            return _times(values, datetime(1970, 1, 1, tzinfo=UTC))
        case ScalarType("timestamp_ntz"):
            return _times(values, datetime(1970, 1, 1))  # noqa: DTZ001 - this type has no zone
        case ArrayType(element):
            return _lists(values, encodables(values.flatten(), element))
        case MapType(key, item):
            entries = values.cast(pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])))
            flat = entries.flatten()
            pairs = zip(encodables(flat.field(0), key), encodables(flat.field(1), item), strict=True)
            return [None if each is None else dict(each) for each in _lists(entries, list(pairs))]
        case _:
            if pa.types.is_floating(values.type) and not pa.compute.all(pa.compute.is_finite(values), min_count=0).as_py():
                raise SerdeError(f"json: {NOT_FINITE}")
            found: list[Any] = values.to_pylist()
            return found


def _times(values: Any, epoch: datetime) -> list[Any]:
    """µs since `epoch` as datetimes (130 ns each; by `to_pylist` 2,250)."""
    micros = values.cast(pa.int64()).cast(pa.duration("us"))
    lengths = micros.to_numpy(zero_copy_only=False).tolist()  # numpy gives an int where no timedelta is that long
    try:
        return [None if length is None else epoch + length for length in lengths]
    except (OverflowError, TypeError):
        raise SerdeError(
            "json: a time lies outside the years 1 to 9999, and so has no ISO form",
            "use a number for such times: bigint",
        ) from None


def _lists(values: Any, flat: list[Any]) -> list[Any]:
    """`flat`, the elements of all that are not null, as one list for each element of `values`."""
    lengths = pa.compute.list_value_length(values).fill_null(-1).to_numpy(zero_copy_only=False).tolist()
    result: list[Any] = []
    end = 0
    for length in lengths:
        begin, end = end, end + max(length, 0)
        result.append(None if length < 0 else flat[begin:end])
    return result
