"""What a JSON Schema means here: the Spark type of its values, or of a part of it that has none, JSON text.

Closed enough for a type: objects with `properties` that allow no others by a schema, maps of one type, lists of one type,
texts (a date or date-time is one to Spark too), numbers, booleans, each also with null, and references within the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from headrace.errors import SchemaError
from headrace.serdes.ddl import ArrayType, MapType, ScalarType, SparkType, StructField, StructType

_SCALARS = {"string": "string", "integer": "bigint", "number": "double", "boolean": "boolean"}
_FORMATS = {"date": "date", "date-time": "timestamp"}
_OPEN = ("patternProperties", "allOf", "not", "if", "dependentSchemas", "$dynamicRef", "$recursiveRef")
TEXT = ScalarType("string")


class OpenError(Exception):
    """Values of this part have no one Spark type."""


class Typing:
    """The type of each part of one schema. `is_text`: a part is given as JSON text. `inside`: the parts around it, by id."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def type_of(self, schema: Any, inside: tuple[int, ...] = ()) -> SparkType:
        """The Spark type; JSON text for what is open, a part that holds itself too."""
        try:
            return self.closed(schema, inside)
        except OpenError:
            return TEXT

    def is_text(self, schema: Any, inside: tuple[int, ...] = ()) -> bool:
        try:
            self.closed(schema, inside)
        except OpenError:
            return True
        return False

    def closed(self, schema: Any, inside: tuple[int, ...] = ()) -> SparkType:
        schema, _ = self.plain(schema)
        if not isinstance(schema, Mapping) or id(schema) in inside or any(word in schema for word in _OPEN):
            raise OpenError
        inside = (*inside, id(schema))
        kind = _kind(schema)
        if kind == "object":
            return self._object(schema, inside)
        if kind == "array":
            items = schema.get("items")
            if not isinstance(items, Mapping) or "prefixItems" in schema:
                raise OpenError
            return ArrayType(self.type_of(items, inside))
        if kind == "string" and schema.get("format") in _FORMATS:
            return ScalarType(_FORMATS[schema["format"]])
        if kind not in _SCALARS:
            raise OpenError
        return ScalarType(_SCALARS[kind])

    def _object(self, schema: Mapping[str, Any], inside: tuple[int, ...]) -> SparkType:
        others = schema.get("additionalProperties")
        properties = schema.get("properties")
        if properties and not isinstance(others, Mapping) and others is not True:
            fields = [StructField(name, self.type_of(each, inside)) for name, each in properties.items()]
            return StructType(tuple(fields))
        if not properties and isinstance(others, Mapping):
            return MapType(ScalarType("string"), self.type_of(others, inside))
        raise OpenError

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
                raise OpenError
            schema = rest[0]
        if isinstance(schema, Mapping) and isinstance(schema.get("type"), list):
            nullable |= "null" in schema["type"]
        return schema, nullable

    def _referred(self, reference: str) -> Any:
        here = self._root
        if not reference.startswith("#"):
            raise OpenError
        for step in filter(None, unquote(reference[1:]).split("/")):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(here, Mapping) or name not in here:
                raise SchemaError(f"json-schema: the reference {reference!r} leads nowhere")
            here = here[name]
        return here


def _kind(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        rest = [each for each in kind if each != "null"]
        kind = rest[0] if len(rest) == 1 else None
    if kind is None and (symbols := schema.get("enum")):
        kind = "string" if all(isinstance(each, str) for each in symbols) else None
    if kind is None and "properties" in schema:
        kind = "object"
    if not isinstance(kind, str):
        raise OpenError
    return kind
