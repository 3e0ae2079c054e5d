"""`Json`: strict JSON, with a schema or without, for single values, lists of them and Arrow columns.

Strict: one value and nothing after it, valid UTF-8 everywhere, numbers within their type. What is refused is a failure
and never a null or a default (api.md "Serdes"). msgspec reads and writes; `json_shapes` has the classes that it fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Generic, is_typeddict, overload

import msgspec

from headrace.errors import SchemaError, SerdeError
from headrace.model.serde import Failures
from headrace.serdes import ddl
from headrace.serdes.binary_arrays import as_array_of, as_binary, joined, parted
from headrace.serdes.ddl import SparkType, StructType
from headrace.serdes.deferred import pa
from headrace.serdes.json_shapes import Normal, annotation_of, column_of, encodables, normal_of, python_of, pythons, shape_of
from headrace.serdes.json_text import NOT_FINITE, Text, taken_apart
from headrace.serdes.json_types import ClassType, OfClass, lacks_fields, ordered, type_of_class, without_zeros
from headrace.serdes.scalars import each, encoded_each, shown
from headrace.serdes.typed import V

_OUT_OF_FLOATS = ("Expected `float` >=", "Expected `float` <=")


class Json(OfClass, Generic[V]):
    """JSON as `T`: a DDL string, a pyspark StructType, a msgspec.Struct, a dataclass, a TypedDict, or any value at all.

    With DDL the values are dicts that have every declared field, None where it is missing or null. Fields that are not
    declared are dropped when reading, and refused when writing (a misspelt name would be lost). With a class
    they are instances of it, with its own defaults. `double` takes whole numbers, integers take no fractions and only
    their range; `timestamp` is ISO 8601, UTC if it names no zone; `date` likewise; `binary` is base64; `decimal` is a
    number or a text, written as text, and never rounded. Of a field that occurs twice the last one counts.

    JSON has no NaN and no infinity: a value that holds one is refused, as a null would be another value to a program that
    reads it. Turn them into None before, where that is what they mean.

    Equal values are equal bytes, so that a key is the same wherever it is made: declared fields are written in declared
    order; the fields of dicts without `T`, and the keys of maps, sorted. (1 and 1.0 are written as they are, and are two
    keys. Keys that other programs write are taken as the bytes that they are.)
    """

    __slots__ = ("_codec", "_given", "_type")

    @overload
    def __init__(self, T: type[V]) -> None: ...  # noqa: N803 - the name in the public interface
    @overload
    def __init__(self: Json[Any], T: Any = None) -> None: ...  # noqa: N803

    def __init__(self, T: Any = None) -> None:  # noqa: N803
        self._given: Any = None
        self._type: SparkType | None = None
        self._of_class = ClassType(None)
        if isinstance(T, str):
            self._type = ddl.parse_type(T)
        elif isinstance(T, SparkType):
            self._type = T
        elif type(T).__module__.startswith("pyspark.sql") and hasattr(T, "jsonValue"):
            self._type = ddl.type_of_spark_json(T.jsonValue())
        elif T is not None:
            self._given, self._of_class = T, type_of_class(T)
            self._type = self._of_class.type
        self._codec = _codec_of(self._given, None if self.is_loose else self._type)  # the bytes have all fields

    @property
    def form(self) -> str:
        if self._type is None:
            return "json" if self._given is None else f"json<{getattr(self._given, '__qualname__', self._given)}>"
        struct = isinstance(self._type, StructType)
        return f"json<{ddl.fields_ddl(self._type) if struct else ddl.to_ddl(self._type)}>"  # type: ignore[arg-type]

    @property
    def spark_type(self) -> str | None:
        return None if self._type is None else ddl.to_ddl(self._type)

    @property
    def schema(self) -> SparkType | None:
        """The type that every value has, None without a schema."""
        return self._type

    @property
    def is_of_class(self) -> bool:
        """Whether its values are instances of a class, or TypedDicts."""
        return self._given is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Json) and (self._given, self._type) == (other._given, other._type)

    def __hash__(self) -> int:
        return hash((Json, self._given, self._type))

    def __repr__(self) -> str:
        if self._given is not None:
            return f"Json({getattr(self._given, '__qualname__', self._given)})"
        return "Json()" if self._type is None else f"Json({self.form[len('json<') : -1]!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Json, (self._type if self._given is None else self._given,))

    def decode(self, data: bytes) -> V:
        row, python = self._row(data), self._codec.python
        value: V = row if python is None or row is None else python(row)
        return value

    def encode(self, value: V) -> bytes:
        try:
            return self._codec.text.of(self._encodable(value), are_finite=self._codec.are_finite)
        except SerdeError:
            raise
        except Exception as error:
            raise SerdeError(f"json: {_reason(error)}; found {shown(value)}", self._encode_hint(error)) from None

    def _row(self, data: bytes) -> Any:
        """What the decoder makes of one value, in its one form."""
        codec = self._codec
        try:
            str(data, "utf-8")  # msgspec does not look into fields that it skips
            row = codec.decoder.decode(data)
            return row if codec.normal is None else codec.normal(row)
        except SerdeError as error:
            raise SerdeError(f"{error.message}; found {shown(data)}", error.hint) from None
        except Exception as error:
            raise SerdeError(f"json: {_reason(error)}; found {shown(data)}") from None

    def _encodable(self, value: Any) -> Any:
        codec = self._codec
        is_class = isinstance(self._given, type) and not is_typeddict(self._given)
        if codec.target is None or (is_class and isinstance(value, self._given)):
            return value
        try:
            row = msgspec.convert(value, codec.target)
        except msgspec.ValidationError:  # an object, or numpy's numbers: take it apart, then it is right or wrong
            row = msgspec.convert(taken_apart(value), codec.target)
        return row if codec.encode_normal is None else codec.encode_normal(row)

    def _encode_hint(self, error: Exception) -> str | None:
        if "unknown field" in str(error):
            return f"the fields are: {self.form[len('json<') : -1]}"
        return "give aware datetimes, such as datetime.now(UTC)" if "timezone" in str(error) else None

    def decode_many(self, data: pa.Array) -> tuple[list[V | None], Failures]:
        rows, failures = self._rows(data)
        python = self._codec.python
        return rows if python is None else [None if row is None else python(row) for row in rows], failures

    def encode_many(self, values: Sequence[Any]) -> tuple[pa.Array, Failures]:
        codec = self._codec
        try:
            rows = list(values)
            if codec.target is not None:
                rows = msgspec.convert(rows, list[codec.target | None])  # type: ignore[name-defined]
            if codec.encode_normal is not None:
                rows = [None if row is None else codec.encode_normal(row) for row in rows]
            lines = codec.text.of(rows, are_finite=codec.are_finite, as_lines=True)
            return parted(lines, [value is None for value in values]), []
        except Exception:
            return encoded_each(self.encode, values)

    def _rows(self, data: pa.Array) -> tuple[list[Any], Failures]:
        """What the decoder makes of each value: all at once, and one by one only if anything is wrong."""
        data = as_binary(data)
        present = data.drop_null() if data.null_count else data
        rows, failures = self._rows_at_once(present) or each(self._row, present.to_pylist())
        if not data.null_count:
            return rows, failures
        places = data.is_valid().to_numpy(zero_copy_only=False).nonzero()[0].tolist()
        spread: list[Any] = [None] * len(data)
        for place, row in zip(places, rows, strict=True):
            spread[place] = row
        return spread, [(places[index], error) for index, error in failures]

    def _rows_at_once(self, data: Any) -> tuple[list[Any], Failures] | None:
        """All values by one call, 70 ns less for each; None if one of them may be wrong."""
        codec = self._codec
        try:
            data.cast(pa.string())  # refuses bytes that are no UTF-8
            lines = joined(data)
            rows: list[Any] | None = None if lines is None else codec.decoder.decode_lines(lines)
            if rows is None or len(rows) != len(data):
                return None
            return (rows if codec.normal is None else [codec.normal(row) for row in rows]), []
        except Exception:
            return None

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        if self._type is None:
            hint = "declare the fields: Json('name type, name type')"
            raise SchemaError(f"{self!r}: its values have no one Spark type, and so no Arrow column", hint)
        rows, failures = self._typed_rows(data, self._type)
        return column_of(rows, self._type), failures

    def decode_fields(self, data: pa.Array, paths: Sequence[str]) -> tuple[dict[str, pa.Array], Failures] | None:
        """Only the fields at `paths` (such as `dep_delay` or `plane.seats`), as arrays of their types; None without a
        schema.

        A value is judged as a whole: it fails here exactly where `decode_arrow` fails. An unknown path is a
        `SchemaError`.
        """
        schema = self._type
        if schema is None or self.is_loose:  # the fields as they are, and all of them
            return None
        steps = {path: _steps(schema, path) for path in paths}
        rows, failures = self._typed_rows(data, schema)
        columns = {}
        for path, (attributes, spark_type) in steps.items():
            values = rows
            for attribute in attributes:
                get = attrgetter(attribute)
                values = [None if value is None else get(value) for value in values]
            columns[path] = column_of(values, spark_type)
        return columns, failures

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        if self.untyped_fields:
            raise lacks_fields(self)
        schema = ddl.from_arrow_type(values.type) if self._type is None else self._type
        values = as_array_of(ddl.to_arrow_type(schema), values, self.form)
        try:
            rows = encodables(values, schema)
        except SerdeError:  # one of the times has no ISO form, or a number is NaN
            return self._encode_arrow_each(values, schema)
        if self._given is None:
            return parted(self._codec.text.of(rows, are_finite=True, as_lines=True), values.is_null().to_pylist()), []
        return self.encode_many([without_zeros(row) if self.is_loose else row for row in pythons(rows, schema)])

    def _encode_arrow_each(self, values: Any, schema: SparkType) -> tuple[pa.Array, Failures]:
        def one(index: int) -> bytes | None:
            value = pythons(encodables(values.slice(index, 1), schema), schema)[0]
            return None if value is None else self.encode(without_zeros(value) if self.is_loose else value)

        return encoded_each(one, range(len(values)))

    def _typed_rows(self, data: Any, schema: SparkType) -> tuple[list[Any], Failures]:
        """Rows of the generated class, also where the values are instances of a user's."""
        rows, failures = self._rows(data)
        if self._given is None:
            return rows, failures
        target, normal = annotation_of(schema), normal_of(schema)

        def typed(row: Any) -> Any:
            converted = msgspec.convert(taken_apart(row), target)
            return converted if normal is None else normal(converted)

        results, more = each(typed, rows)
        wrapped: Failures = [(index, SerdeError(f"{self.form}: {_reason(error)}")) for index, error in more]
        return results, sorted(failures + wrapped, key=lambda failure: failure[0])


@dataclass(frozen=True, slots=True)
class _Codec:
    """What reads and writes values of one schema or class.

    `normal` and `python` follow the decoder, where there is a schema. Before it is written a value is converted to
    `target`, and `encode_normal` follows that. `are_finite`: the conversion refuses NaN.
    """

    decoder: msgspec.json.Decoder[Any]
    text: Text
    normal: Normal | None = None
    python: Normal | None = None
    target: Any = None
    encode_normal: Any = None
    are_finite: bool = False


@lru_cache(maxsize=256)
def _codec_of(given: Any, schema: SparkType | None) -> _Codec:
    if given is not None:
        in_order = partial(ordered, spark_type=schema) if is_typeddict(given) and schema is not None else None
        text = Text("maps" if in_order is None else "as given")  # a TypedDict is a dict, in declared order by then
        return _Codec(msgspec.json.Decoder(given), text, target=given, encode_normal=in_order)
    if schema is None:
        return _Codec(msgspec.json.Decoder(), Text("all"))
    target, normal = annotation_of(schema, encoding=True), normal_of(schema)
    decoder = msgspec.json.Decoder(annotation_of(schema))
    return _Codec(decoder, Text("maps"), normal, python_of(schema), target, normal, are_finite=True)


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "expected valid UTF-8" if isinstance(error, UnicodeDecodeError) else "a text in it has no UTF-8"
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, msgspec.ValidationError) and str(error).startswith(_OUT_OF_FLOATS):
        return NOT_FINITE + "".join(str(error).partition(" - ")[1:])
    return error.message if isinstance(error, SerdeError) else str(error)


def _steps(schema: SparkType, path: str) -> tuple[list[str], SparkType]:
    """The attributes of the generated classes that lead to `path`, and its type."""
    attributes: list[str] = []
    here = schema
    for name in path.split("."):
        names = [field.name for field in here.fields] if isinstance(here, StructType) else []
        if name not in names or not isinstance(here, StructType):
            raise SchemaError(
                f"field {path!r}: there is no {name!r} in {ddl.to_ddl(here)}",
                f"the fields are: {', '.join(names)}" if names else None,
            )
        at = names.index(name)
        attributes.append(shape_of(here).attributes[at])
        here = here.fields[at].type
    return attributes, here
