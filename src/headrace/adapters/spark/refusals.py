"""What is said of an expression or a DataFrame function that Spark refuses, before any row is read: which operator it
is, where it was given, what Spark says (its first line: no Java), and the columns that there are."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from headrace.errors import TopologyError
from headrace.model.serde import Serde
from headrace.serdes.json_serde import Json
from headrace.serdes.json_types import untyped_fields_of

VISIBLE = ("key", "value", "timestamp", "partition", "offset", "headers")
_COLUMNS_MAX = 40
_UNKNOWN_COLUMN = re.compile(r"\[(UNRESOLVED_COLUMN|FIELD_NOT_FOUND|UNRESOLVED_FIELD)[^\]]*\][^`]*`([^`]*)`(?:\.`([^`]*)`)?")
_NO_FIELDS = re.compile(r"\[INVALID_EXTRACT_BASE_FIELD_TYPE\][^\"]*\"(key|value)\"")


def refused(
    operator: str, label: str, given_at: str, error: BaseException, rows: Any, sides: Mapping[str, Serde]
) -> TopologyError:
    """`sides`: the serdes of `key` and `value` as they are read, where there are any."""
    said = first_line(error)
    where = f" ({given_at})" if given_at else ""
    return TopologyError(f"{operator}{where}: {label!r} cannot be understood by Spark: {said}", _hint(said, rows, sides))


def first_line(error: BaseException) -> str:
    """What Spark says, without its SQL context and stack."""
    get_message = getattr(error, "getMessage", None)
    text = (get_message() if callable(get_message) else None) or str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def _hint(said: str, rows: Any, sides: Mapping[str, Serde]) -> str | None:
    side = _NO_FIELDS.search(said)
    if side is not None and side[1] in sides and sides[side[1]].spark_type is None:
        return _untyped(side[1], sides[side[1]])
    unknown = _UNKNOWN_COLUMN.search(said)
    if unknown is None:
        return None
    there = _columns(rows)
    name = ".".join(part for part in unknown.groups()[1:] if part)
    for serde in sides.values():
        left_out = untyped_fields_of(serde)
        path = next((path for path in left_out if name in (path, path.rpartition(".")[2])), None)
        if path is not None and name not in there:
            return f"the field {path!r} of {serde!r} is not seen by Spark: {left_out[path]}; use a function"
    short = {column.rpartition(".")[2]: column for column in reversed(there)}
    near = difflib.get_close_matches(name, there, 1) or [
        short[each] for each in difflib.get_close_matches(name.rpartition(".")[2], list(short), 1)
    ]
    more = ", ..." if len(there) > _COLUMNS_MAX else ""
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}there are: {', '.join(there[:_COLUMNS_MAX])}{more}"


def _untyped(side: str, serde: Serde) -> str:
    """What to do where an expression names a field of a key or value that Spark sees as text or bytes."""
    if left_out := untyped_fields_of(serde):
        return f"no field of {serde!r} is seen by Spark: {', '.join(f'{name}: {why}' for name, why in left_out.items())}"
    if isinstance(serde, Json) and serde == Json():
        return (
            f"this {side} is JSON without a schema, which is text to Spark: declare its fields where the stream is "
            f'read, {side}=hr.Json("name type, ..."), or use a function'
        )
    return f"the values of {serde!r} have no one Spark type, and an expression sees no fields of them: use a function"


def _columns(rows: Any) -> list[str]:
    """The paths that an expression may name: `key`, `value`, `value.delay`, and so on into structs."""
    found: list[str] = []
    left = [(field.name, field.dataType) for field in rows.schema.fields if not field.name.startswith("_")]
    while left:
        path, kind = left.pop(0)
        found.append(path)
        inner = [(f"{path}.{field.name}", field.dataType) for field in getattr(kind, "fields", ())]
        left = inner + left
    return found
