"""What the serdes with a schema language share: lists and Arrow columns out of single values, and the registry.

A record that does not fit is a failure of its own. A registry that does not answer is not: it raises, so that a round
waits or ends, and no record is rejected for what is not its fault.
"""

from __future__ import annotations

import hashlib
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from headrace.errors import ConfigError, RegistryError, SchemaError, SerdeError, SetupError
from headrace.model.serde import Failures
from headrace.serdes import ddl
from headrace.serdes.binary_arrays import as_array, as_array_of
from headrace.serdes.ddl import SparkType
from headrace.serdes.deferred import pa
from headrace.serdes.scalars import each, encoded_each, shown
from headrace.serdes.schemas.registry import REFERENCES_MAX, Reference, SchemaRegistry, SchemaText, UnknownSchemaError
from headrace.serdes.typed import V

_HEAD = struct.Struct(">bI")  # of Confluent's wire format: a 0, and the id of the schema
_LANGUAGES = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}  # as registries name them
NOT_OF_A_VALUE = (RegistryError, SetupError, ConfigError)


class Codec(Protocol):
    """What was worked out of a schema: what it calls a value; a `fingerprint` where other schemas cannot read its bytes, empty
    where they can; and the type that every value has, None if they have no one type."""

    name: str
    fingerprint: str
    spark_type: SparkType | None


C = TypeVar("C", bound=Codec)


class SchemaSerde(ABC, Generic[C, V]):
    """What the serdes here share. `registry` is None where bytes are plain.

    The subject is what the user named, else that of the stream, which `of_stream` binds, else the schema's own name.
    """

    KIND: str  # for messages and forms, such as `avro`

    def __init__(self, registry: SchemaRegistry | str | None, subject: str | None, auto_register: bool) -> None:
        self._registry = SchemaRegistry(registry) if isinstance(registry, str) else registry
        if self._registry is None and subject is not None:
            raise SchemaError(f"{self.KIND}: subject {subject!r} without a registry", "give registry=URL too")
        if self._registry is not None and not isinstance(self._registry, SchemaRegistry):
            raise SchemaError(f"{self.KIND}: registry: expected a URL or SchemaRegistry, found {type(registry).__name__}")
        self._subject = subject
        self._auto_register = bool(auto_register)
        self._bound: str | None = None

    @property
    @abstractmethod
    def _codec(self) -> C: ...

    @abstractmethod
    def _value(self, body: bytes, schema_id: int | None) -> V:
        """The value of the bytes that follow the schema's id, or of all bytes without a registry."""

    @abstractmethod
    def _body(self, value: V) -> bytes: ...

    @abstractmethod
    def _registered(self) -> SchemaText:
        """The schema as it is registered; the schemas that it refers to are registered by then."""

    @property
    def name(self) -> str:
        return self._codec.name

    @property
    def schema(self) -> SparkType | None:
        return self._codec.spark_type

    @property
    def form(self) -> str:
        if self._registry is not None:  # each value says what wrote it, whatever the subject; so the schema may evolve
            return f"registry-{self.KIND}<{self.name}>"
        fingerprint = self._codec.fingerprint
        return f"{self.KIND}<{self.name}{fingerprint and '#' + fingerprint}>"

    @property
    def spark_type(self) -> str | None:
        schema = self.schema
        return None if schema is None else ddl.to_ddl(schema)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        return (self.form, self._registry, self._subject, self._auto_register, self._bound)

    def __repr__(self) -> str:
        registry = "" if self._registry is None else f", registry={self._registry.url!r}"
        subject = "" if self._subject is None else f", subject={self._subject!r}"
        return f"{type(self).__name__}({self.name!r}{registry}{subject})"

    def decode(self, data: bytes) -> V:
        try:
            schema_id, body = (None, data) if self._registry is None else _unframed(data)
            return self._value(body, schema_id)
        except NOT_OF_A_VALUE:
            raise
        except Exception as error:
            raise self._error(error, data) from None

    def encode(self, value: V) -> bytes:
        return self._written(value, self._body)

    def _written(self, value: Any, body_of: Callable[[Any], bytes]) -> bytes:
        """The bytes of a value, with the schema's id where there is a registry; errors name schema and value."""
        try:
            body = body_of(value)
            return body if self._registry is None else _HEAD.pack(0, self._schema_id(self._registry)) + body
        except NOT_OF_A_VALUE:
            raise
        except Exception as error:
            raise self._error(error, value) from None

    def _error(self, error: Exception, found: object) -> SerdeError:
        hint = error.hint if isinstance(error, SerdeError) else None
        return SerdeError(f"{self.KIND} {self.name}: {reason(error)}; found {shown(found)}", hint)

    def _schema_id(self, registry: SchemaRegistry) -> int:
        subject = self._subject or self._bound or self.name
        return registry.connection.id_of(subject, self._registered(), register=self._auto_register)

    def encode_many(self, values: Sequence[Any]) -> tuple[pa.Array, Failures]:
        return encoded_each(self.encode, values, NOT_OF_A_VALUE)

    def decode_many(self, data: pa.Array) -> tuple[list[V | None], Failures]:
        return each(self.decode, data.to_pylist(), NOT_OF_A_VALUE)

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        schema = self.schema
        values = as_array(values) if schema is None else as_array_of(ddl.to_arrow_type(schema), values, self.form)
        try:
            return self.encode_many(values.to_pylist())
        except (ValueError, OverflowError):  # a time that Python has not: which one is it?
            return encoded_each(lambda i: self._encoded_at(values, i), range(len(values)), NOT_OF_A_VALUE)

    def _encoded_at(self, values: Any, index: int) -> bytes | None:
        try:
            value = values[index].as_py()
        except (ValueError, OverflowError) as error:
            raise SerdeError(f"{self.KIND} {self.name}: {error}") from None
        return None if value is None else self.encode(value)

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        schema = self.schema
        if schema is None:
            raise SchemaError(f"{self!r}: its values have no one Spark type, and so no Arrow column")
        arrow_type = ddl.to_arrow_type(schema)
        rows, failures = self.decode_many(data)
        try:
            return pa.array(rows, arrow_type), failures
        except (pa.ArrowException, OverflowError, ValueError):
            pass
        failed = dict(failures)
        for index, row in enumerate(rows):
            try:
                pa.array([row], arrow_type)
            except (pa.ArrowException, OverflowError, ValueError) as error:
                failed[index] = SerdeError(f"{self.KIND} {self.name}: {error}; found {shown(row)}")
                rows[index] = None
        return pa.array(rows, arrow_type), sorted(failed.items())

    def of_stream(self, stream: str, part: str) -> Self:
        """The serde of a stream's `part` (key or value): its subject is `<stream>-<part>` where none was named."""
        if self._registry is None or self._subject is not None:
            return self
        bound = copy(self)
        bound._bound = f"{stream}-{part}"
        return bound

    def _writer(self, schema_id: int) -> SchemaText:
        """The schema of an id; `SerdeError` if there is none, or one of another language."""
        assert self._registry is not None
        try:
            found = self._registry.connection.schema_of(schema_id)
        except UnknownSchemaError as error:
            raise SerdeError(str(error)) from None
        language = _LANGUAGES[self.KIND]
        if found.kind != language:
            raise SerdeError(
                f"schema {schema_id} of the registry is {found.kind}: expected {language}",
                "read the stream with the serde of that kind",
            )
        return found


References = tuple[tuple[str, str], ...]  # the names and texts of the schemas that a schema refers to


class TextSchemaSerde(SchemaSerde[C, V]):
    """What the serdes share whose schema is JSON text. It is sent with them, so that a worker asks the registry for nothing.

    `CODEC` makes of a text, and of those that it refers to, what it means; `SchemaError` if it cannot be understood. It keeps
    its results, since every value asks for one.
    """

    CODEC: Callable[[str, References], C]
    TREES: tuple[type, ...]  # of what users may give instead of JSON text
    BEGINNINGS: str  # of such a text; any other text is a path

    def __init__(
        self,
        schema: Any = None,
        *,
        registry: SchemaRegistry | str | None = None,
        subject: str | None = None,
        auto_register: bool = True,
    ) -> None:
        super().__init__(registry, subject, auto_register)
        self._references: References = ()
        if schema is None:
            self._origin = _latest(self.KIND, self._registry, subject)
            assert self._registry is not None
            self._references = _references_of(self._registry, self._origin)
        else:
            self._origin = SchemaText(_LANGUAGES[self.KIND], self._text_of(schema))
        self._codec  # noqa: B018 - a schema that cannot be understood is an error here

    def _text_of(self, schema: Any) -> str:
        """The JSON text of a schema as users give it."""
        if isinstance(schema, self.TREES):
            return json.dumps(schema)
        if isinstance(schema, str) and schema.lstrip()[:1] in tuple(self.BEGINNINGS):
            return schema
        if not isinstance(schema, str | PathLike):
            hint = "give a path, a dict or the JSON text"
            raise SchemaError(f"{self.KIND}: expected a schema, found {type(schema).__name__}", hint)
        path = Path(schema)
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            cause = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            raise SchemaError(
                f"{self.KIND}: the schema file {str(path)!r} cannot be read: {cause}",
                "name a file that is there and that this user may read",
            ) from None

    @property
    def _codec(self) -> C:
        return type(self).CODEC(self._origin.text, self._references)

    def _identity(self) -> tuple[Any, ...]:
        return (*super()._identity(), self._origin)

    def _registered(self) -> SchemaText:
        return self._origin

    def _codec_of_writer(self, schema_id: int | None) -> C:
        """Of the schema that wrote a value."""
        written_by = self._origin if schema_id is None else self._writer(schema_id)
        if written_by.text == self._origin.text:
            return self._codec
        assert self._registry is not None
        try:
            return type(self).CODEC(written_by.text, _references_of(self._registry, written_by))
        except SchemaError as error:
            raise SerdeError(f"its writer's schema: {error.message}") from None


def _unframed(data: bytes) -> tuple[int, bytes]:
    """The schema id and what follows it."""
    if len(data) < _HEAD.size or data[0] != 0:
        raise SerdeError(
            f"expected a 0 and 4 bytes of schema id, found {data[:5]!r} of {len(data)} bytes",
            "values that were written without a registry are read without one",
        )
    return _HEAD.unpack_from(data)[1], data[_HEAD.size :]


def _latest(kind: str, registry: SchemaRegistry | None, subject: str | None) -> SchemaText:
    """The newest schema of a subject, for a serde that was given none."""
    if registry is None or subject is None:
        raise SchemaError(
            f"{kind}: neither a schema nor a registry's subject", "give a schema, or registry=URL and subject=NAME"
        )
    try:
        return registry.connection.latest(subject)
    except UnknownSchemaError as error:
        raise SchemaError(f"{kind}: {error}", "give a schema, or register one under that subject") from None


@lru_cache(maxsize=1024)
def _references_of(registry: SchemaRegistry, schema: SchemaText) -> References:
    """All schemas that a schema refers to, each before those that refer to it."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    todo: list[tuple[Reference, str | None]] = [(one, None) for one in reversed(schema.references)]
    while todo:
        reference, text = todo.pop()
        if text is not None:  # what it refers to is there
            found[reference.name] = text
        elif reference.name not in seen:
            if len(seen) == REFERENCES_MAX:
                raise SchemaError(
                    f"a schema that refers to more than {REFERENCES_MAX} others, or to itself",
                    "put the parts into fewer schemas; none may refer to itself",
                )
            seen.add(reference.name)
            try:
                known = registry.connection.version(reference)
            except UnknownSchemaError as error:
                raise SerdeError(str(error)) from None
            todo += [(reference, known.text), *((one, None) for one in reversed(known.references))]
    return tuple(found.items())


def fingerprint_of(*trees: object) -> str:
    bare = json.dumps(trees, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(bare.encode()).hexdigest()[:8]


def reason(error: BaseException) -> str:
    """Why, in words: some libraries raise without any."""
    if isinstance(error, SerdeError):
        return error.message
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, (EOFError, IndexError)):
        return "the bytes end within a value"
    return str(error) or type(error).__name__
