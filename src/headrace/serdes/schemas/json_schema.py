"""`JsonSchema`: JSON that is held against a JSON Schema. `jsonschema` judges, `Json` reads and writes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import SchemaError, SerdeError
from headrace.model.serde import Failures
from headrace.serdes.ddl import SparkType
from headrace.serdes.json_serde import Json
from headrace.serdes.schemas.base import SchemaSerde, each_value, latest, referred
from headrace.serdes.schemas.extras import of_extra
from headrace.serdes.schemas.json_schema_types import OpenError, Typing
from headrace.serdes.schemas.registry import SchemaRegistry, SchemaText
from headrace.serdes.typed import V

if TYPE_CHECKING:
    import pyarrow as pa


class JsonSchema(SchemaSerde[V]):
    """JSON by `schema`: a file, a dict or JSON text of a JSON Schema; or by the newest of `subject` in a `registry`.

    Every value is held against the schema when it is read and when it is written; what it refuses is a failure that
    names the place. Where the schema is closed enough (objects of named properties, lists and maps of one type, texts,
    numbers, booleans, null besides) values are as with `hr.Json` of that type: dicts with every property, None where it
    is absent; properties without a name are dropped when reading. `date-time` and `date` are times and dates. A part
    with no one type is JSON text, in Python and in Spark, and any JSON value may be written there. References outside the
    schema are not followed, but for those that the registry has.

    With a `registry` (a URL or an `hr.SchemaRegistry`) values begin with the id of the schema, and are held against the
    schema that wrote them and given as `schema` has them. Writing registers it, or only looks it up
    (`auto_register=False`), under `subject`: `<stream>-key` or `<stream>-value` where none is named.

    A value of four fields takes about 35 µs to read and 90 µs to write; most of it is the check.
    """

    KIND = "json-schema"

    def __init__(
        self,
        schema: Any = None,
        *,
        registry: SchemaRegistry | str | None = None,
        subject: str | None = None,
        auto_register: bool = True,
    ) -> None:
        super().__init__(registry, subject, auto_register)
        self._references: tuple[tuple[str, str], ...] = ()
        if schema is None:
            self._origin = latest(self.KIND, self._registry, subject)
            assert self._registry is not None
            self._references = _references_of(self._registry, self._origin)
        else:
            self._origin = SchemaText("JSON", _text_of(schema))
        self._codec  # noqa: B018 - a schema that cannot be understood is an error here

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuilt, (self._origin, self._references, self._registry, self._subject, self._auto_register, self._bound))

    def _identity(self) -> tuple[Any, ...]:
        return (*super()._identity(), self._origin)

    @property
    def _codec(self) -> _Codec:
        return _codec_of(self._origin.text, self._references)

    @property
    def name(self) -> str:
        return self._codec.name

    @property
    def fingerprint(self) -> str:
        return self._codec.fingerprint

    @property
    def schema(self) -> SparkType | None:
        return self._codec.typed.schema

    def _registered(self) -> SchemaText:
        return self._origin

    def _value(self, body: bytes, schema_id: int | None) -> V:
        judge = codec = self._codec
        if schema_id is not None:
            written_by = self._writer(schema_id)
            if written_by.text != self._origin.text:
                judge = self._codec_of_writer(written_by)
        str(body, "utf-8")  # msgspec does not look into what it skips
        tree = msgspec.json.decode(body)
        judge.check(tree)
        value: V = codec.typed.decode(codec.texted(tree) if codec.has_texts else body)
        return value

    def _codec_of_writer(self, schema: SchemaText) -> _Codec:
        assert self._registry is not None
        try:
            return _codec_of(schema.text, _references_of(self._registry, schema))
        except SchemaError as error:
            raise SerdeError(f"its writer's schema: {error.message}") from None

    def _body(self, value: V) -> bytes:
        codec = self._codec
        return self._checked(codec.typed.encode(codec.as_texts(value) if codec.has_texts else value))

    def _checked(self, typed: bytes) -> bytes:
        """JSON of the type as it is written: open parts are no text, what is absent is no null, and the schema takes it."""
        tree = self._codec.untexted(msgspec.json.decode(typed))
        self._codec.check(tree)
        return msgspec.json.encode(tree)

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        import pyarrow as pa

        typed, failures = self._codec.typed.encode_arrow(values)
        results, more = each_value(lambda data: self._written(data, self._checked), typed.to_pylist())
        return pa.array(results, pa.binary()), sorted(failures + more, key=lambda failure: failure[0])


def _references_of(registry: SchemaRegistry, schema: SchemaText) -> tuple[tuple[str, str], ...]:
    return tuple((reference.name, text.text) for reference, text in referred(registry, schema))


def _rebuilt(
    origin: SchemaText,
    references: tuple[tuple[str, str], ...],
    registry: SchemaRegistry | None,
    subject: str | None,
    auto_register: bool,
    bound: str | None,
) -> JsonSchema:
    """As it was, on a worker too: nothing is requested again."""
    made = JsonSchema.__new__(JsonSchema)
    SchemaSerde.__init__(made, registry, subject, auto_register, bound)
    made._origin, made._references = origin, references
    return made


def _text_of(schema: Any) -> str:
    if isinstance(schema, (Mapping, bool)):
        return json.dumps(schema)
    if isinstance(schema, str) and schema.lstrip().startswith("{"):
        return schema
    if not isinstance(schema, (str, PathLike)):
        raise SchemaError(f"json-schema: expected a schema, found {type(schema).__name__}", "give a path or a dict")
    try:
        return Path(schema).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise SchemaError(f"json-schema: the schema file {str(schema)!r} cannot be read: {cause}") from None


class _Codec:
    """A schema's validator, its type, and the way between its open parts and their text."""

    def __init__(self, text: str, references: tuple[tuple[str, str], ...]) -> None:
        with of_extra("jsonschema", "JSON Schema"):
            import jsonschema
            import referencing
            import referencing.exceptions
        try:
            self._root = json.loads(text)
            cls = jsonschema.validators.validator_for(self._root, default=jsonschema.Draft202012Validator)
            cls.check_schema(self._root)
            known: Any = referencing.Registry()  # an own one: jsonschema's default would fetch from anywhere
            dialect: Any = cls.META_SCHEMA
            specification = referencing.jsonschema.specification_with(dialect.get("$schema") or dialect["id"])
            for name, each in references:
                resource = referencing.Resource.from_contents(json.loads(each), default_specification=specification)
                known = known.with_resource(name, resource)
            self._validator: Any = cls(self._root, registry=known)
            self._typing = Typing(self._root)
            self.typed = Json(self._typing.type_of(self._root))
        except (ValueError, jsonschema.SchemaError, RecursionError) as error:
            raise SchemaError(f"json-schema: the schema {text[:80]!r}: {getattr(error, 'message', error)}") from None
        self._unresolvable = referencing.exceptions.Unresolvable
        title = self._root.get("title") if isinstance(self._root, dict) else None
        self.name = "".join(str(title or "value").split())
        bare = json.dumps([self._root, *references], sort_keys=True, separators=(",", ":"))
        self.fingerprint = hashlib.sha256(bare.encode()).hexdigest()[:8]
        self.has_texts = self._has_texts(self._root)

    def check(self, tree: Any) -> None:
        """`SerdeError` names the first place that the schema refuses."""
        try:
            errors = sorted(self._validator.iter_errors(tree), key=lambda error: error.json_path)
        except self._unresolvable as error:
            raise SerdeError(f"the schema refers to {error.ref!r}, which is not in it") from None
        if errors:
            raise SerdeError(f"at {errors[0].json_path}: {errors[0].message[:200]}")

    def texted(self, tree: Any) -> bytes:
        """JSON in which every open part is text."""
        return msgspec.json.encode(self._walk(self._root, tree, _to_text))

    def as_texts(self, value: Any) -> Any:
        """A value of the user's in which every open part is text."""
        return self._walk(self._root, value, lambda each: each if each is None or isinstance(each, str) else _to_text(each))

    def untexted(self, tree: Any) -> Any:
        """The tree with its open parts as they are in JSON, and without nulls that stand for what is absent."""
        return self._walk(self._root, tree, _from_text, drop_absent=True)

    def _walk(self, schema: Any, value: Any, at_text: Any, drop_absent: bool = False, inside: tuple[int, ...] = ()) -> Any:
        if self._typing.is_text(schema, inside):
            return None if value is None and drop_absent else at_text(value)
        plain, _ = self._typing.plain(schema)
        inside = (*inside, id(plain))
        if isinstance(value, list) and isinstance(plain.get("items"), Mapping):
            return [self._walk(plain["items"], each, at_text, drop_absent, inside) for each in value]
        if not isinstance(value, Mapping):
            return value
        properties, others = plain.get("properties", {}), plain.get("additionalProperties")
        result = {}
        for name, each in value.items():
            inner = properties.get(name, others)
            optional = name in properties and name not in plain.get("required", ())
            if drop_absent and each is None and optional and not self._is_nullable(inner):
                continue
            walked = isinstance(inner, Mapping)
            result[name] = self._walk(inner, each, at_text, drop_absent, inside) if walked else each
        return result

    def _is_nullable(self, schema: Any) -> bool:
        """Whether null is a value of the property: else a null means that it is left out."""
        try:
            return self._typing.plain(schema)[1]
        except OpenError:
            return False

    def _has_texts(self, schema: Any, inside: tuple[int, ...] = ()) -> bool:
        if self._typing.is_text(schema, inside):
            return True
        plain, _ = self._typing.plain(schema)
        inside = (*inside, id(plain))
        parts = [*plain.get("properties", {}).values(), plain.get("items"), plain.get("additionalProperties")]
        return any(self._has_texts(part, inside) for part in parts if isinstance(part, Mapping))


@lru_cache(maxsize=256)
def _codec_of(text: str, references: tuple[tuple[str, str], ...]) -> _Codec:
    return _Codec(text, references)


def _to_text(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _from_text(text: Any) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise SerdeError(f"a part without a type takes JSON text: {error}", "json.dumps(...) makes one of a value") from None
