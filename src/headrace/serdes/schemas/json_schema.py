"""`JsonSchema`: JSON that is held against a JSON Schema. `jsonschema` judges, `Json` reads and writes.

Closed enough for a Spark type: objects with `properties` that allow no others by a schema, maps of one type, lists of one
type, texts (a date or date-time is one to Spark too), numbers, booleans, each also with null, and references within the
schema. Any other part is JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import msgspec

from headrace.environment import of_extra
from headrace.errors import SchemaError, SerdeError
from headrace.model.serde import Failures
from headrace.serdes.ddl import ArrayType, MapType, NoOneTypeError, ScalarType, SparkType, StructField, StructType
from headrace.serdes.deferred import pa
from headrace.serdes.json_serde import Json
from headrace.serdes.scalars import encoded_each
from headrace.serdes.schemas.base import NOT_OF_A_VALUE, References, TextSchemaSerde, fingerprint_of
from headrace.serdes.typed import V

_SCALARS = {"string": "string", "integer": "bigint", "number": "double", "boolean": "boolean"}
_FORMATS = {"date": "date", "date-time": "timestamp"}
_OPEN = ("patternProperties", "allOf", "not", "if", "dependentSchemas", "$dynamicRef", "$recursiveRef")


class _Codec:
    """A schema's validator, its type, and the way between its open parts and their text."""

    def __init__(self, text: str, references: References) -> None:
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
            self._typing = _Typing(self._root)
            self.spark_type: SparkType | None = self._typing.type_of(self._root)
            self.typed = Json(self.spark_type)
        except (ValueError, jsonschema.SchemaError, RecursionError) as error:
            raise SchemaError(
                f"json-schema: the schema {text[:80]!r}: {getattr(error, 'message', error)}",
                "correct the schema there",
            ) from None
        self._unresolvable = referencing.exceptions.Unresolvable
        title = self._root.get("title") if isinstance(self._root, dict) else None
        self.name = "".join(str(title or "value").split())
        self.fingerprint = fingerprint_of(self._root, *references)
        self.has_texts = self._typing.has_texts

    def check(self, tree: Any) -> None:
        """`SerdeError` names the first place that the schema refuses."""
        try:
            errors = sorted(self._validator.iter_errors(tree), key=lambda error: error.json_path)
        except self._unresolvable as error:
            raise SerdeError(f"the schema refers to {error.ref!r}, which is not in it", "add what it refers to") from None
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
        try:
            self._typing.closed(schema, inside)
        except NoOneTypeError:
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
            if drop_absent and each is None and optional and not self._typing.is_nullable(inner):
                continue
            walked = isinstance(inner, Mapping)
            result[name] = self._walk(inner, each, at_text, drop_absent, inside) if walked else each
        return result


class JsonSchema(TextSchemaSerde[_Codec, V]):
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
    CODEC = staticmethod(lru_cache(maxsize=1024)(_Codec))
    TREES = (Mapping, bool)
    BEGINNINGS = "{"

    def _value(self, body: bytes, schema_id: int | None) -> V:
        codec = self._codec
        judge = codec if schema_id is None else self._codec_of_writer(schema_id)
        str(body, "utf-8")  # msgspec does not look into what it skips
        tree = msgspec.json.decode(body)
        judge.check(tree)
        value: V = codec.typed.decode(codec.texted(tree) if codec.has_texts else body)
        return value

    def _body(self, value: V) -> bytes:
        codec = self._codec
        return self._checked(codec.typed.encode(codec.as_texts(value) if codec.has_texts else value))

    def _checked(self, typed: bytes) -> bytes:
        """JSON of the type as it is written: open parts are no text, what is absent is no null, and the schema takes it."""
        tree = self._codec.untexted(msgspec.json.decode(typed))
        self._codec.check(tree)
        return msgspec.json.encode(tree)

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        typed, failures = self._codec.typed.encode_arrow(values)
        encoded, more = encoded_each(lambda data: self._written(data, self._checked), typed.to_pylist(), NOT_OF_A_VALUE)
        return encoded, sorted(failures + more, key=lambda failure: failure[0])


def _to_text(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _from_text(text: Any) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise SerdeError(f"a part without a type takes JSON text: {error}", "json.dumps(...) makes one of a value") from None


class _Typing:
    """The type of each part of one schema. `has_texts`: some part is open, and so is JSON text. `inside`: the parts around
    one, by id."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self.has_texts = False

    def type_of(self, schema: Any, inside: tuple[int, ...] = ()) -> SparkType:
        """The Spark type; JSON text for what is open, a part that holds itself too."""
        try:
            return self.closed(schema, inside)
        except NoOneTypeError:
            self.has_texts = True
            return ScalarType("string")

    def closed(self, schema: Any, inside: tuple[int, ...]) -> SparkType:
        schema, _ = self.plain(schema)
        if not isinstance(schema, Mapping) or id(schema) in inside or any(word in schema for word in _OPEN):
            raise NoOneTypeError
        inside = (*inside, id(schema))
        match _kind(schema):
            case "object":
                return self._object(schema, inside)
            case "array" if isinstance(schema.get("items"), Mapping) and "prefixItems" not in schema:
                return ArrayType(self.type_of(schema["items"], inside))
            case "string" if schema.get("format") in _FORMATS:
                return ScalarType(_FORMATS[schema["format"]])
            case kind if kind in _SCALARS:
                return ScalarType(_SCALARS[kind])
        raise NoOneTypeError

    def _object(self, schema: Mapping[str, Any], inside: tuple[int, ...]) -> SparkType:
        others = schema.get("additionalProperties")
        properties = schema.get("properties")
        if properties and not isinstance(others, Mapping) and others is not True:
            return StructType(tuple(StructField(name, self.type_of(each, inside)) for name, each in properties.items()))
        if not properties and isinstance(others, Mapping):
            return MapType(ScalarType("string"), self.type_of(others, inside))
        raise NoOneTypeError

    def is_nullable(self, schema: Any) -> bool:
        """Whether null is a value of the property: else a null means that it is left out."""
        try:
            return self.plain(schema)[1]
        except NoOneTypeError:
            return False

    def plain(self, schema: Any) -> tuple[Any, bool]:
        """The schema itself, out of references and of a choice between it and null, and whether null is one."""
        nullable = False
        for _ in range(64):  # references to references
            if not isinstance(schema, Mapping):
                break
            if "$ref" in schema:
                schema = self._referred(schema["$ref"])
                continue
            choice = schema.get("anyOf") or schema.get("oneOf")
            if not choice:
                break
            rest = [each for each in choice if each != {"type": "null"}]
            nullable |= len(rest) < len(choice)
            if len(rest) != 1:
                raise NoOneTypeError
            schema = rest[0]
        if isinstance(schema, Mapping) and isinstance(schema.get("type"), list):
            nullable |= "null" in schema["type"]
        return schema, nullable

    def _referred(self, reference: str) -> Any:
        here = self._root
        if not reference.startswith("#"):
            raise NoOneTypeError
        for step in filter(None, unquote(reference[1:]).split("/")):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(here, Mapping) or name not in here:
                raise SchemaError(
                    f"json-schema: the reference {reference!r} leads nowhere",
                    "add what it refers to, or correct the reference",
                )
            here = here[name]
        return here


def _kind(schema: Mapping[str, Any]) -> str | None:
    kind = schema.get("type")
    if isinstance(kind, list):
        rest = [each for each in kind if each != "null"]
        kind = rest[0] if len(rest) == 1 else None
    if kind is None and (symbols := schema.get("enum")):
        kind = "string" if all(isinstance(each, str) for each in symbols) else None
    return "object" if kind is None and "properties" in schema else kind
