"""What is said of an expression or a DataFrame function that Spark refuses, before any row is read: which operator it
is, where it was given, what Spark says (its first line: no Java), and the columns that there are."""

from __future__ import annotations

import difflib
import re
from typing import Any

from headrace.errors import TopologyError

VISIBLE = ("key", "value", "timestamp", "partition", "offset", "headers")
_COLUMNS_MAX = 40
_UNKNOWN_COLUMN = re.compile(r"\[(UNRESOLVED_COLUMN|FIELD_NOT_FOUND|UNRESOLVED_FIELD)[^\]]*\][^`]*`([^`]*)`(?:\.`([^`]*)`)?")
_NO_FIELDS = re.compile(r"\[INVALID_EXTRACT_BASE_FIELD_TYPE\][^\"]*\"(key|value)\"")


def refused(
    operator: str, label: str, given_at: str, error: BaseException, rows: Any, untyped: frozenset[str]
) -> TopologyError:
    """`untyped`: which of key and value are JSON without a schema, and so text to Spark."""
    said = first_line(error)
    where = f" ({given_at})" if given_at else ""
    return TopologyError(f"{operator}{where}: {label!r} cannot be understood by Spark: {said}", _hint(said, rows, untyped))


def first_line(error: BaseException) -> str:
    """What Spark says, without its SQL context and stack."""
    get_message = getattr(error, "getMessage", None)
    text = (get_message() if callable(get_message) else None) or str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def _hint(said: str, rows: Any, untyped: frozenset[str]) -> str | None:
    side = _NO_FIELDS.search(said)
    if side is not None and side[1] in untyped:
        return (
            f"this {side[1]} is JSON without a schema, which is text to Spark: declare its fields where the stream is "
            f'read, {side[1]}=hr.Json("name type, ..."), or use a function'
        )
    unknown = _UNKNOWN_COLUMN.search(said)
    if unknown is None:
        return None
    there = _columns(rows)
    name = ".".join(part for part in unknown.groups()[1:] if part)
    short = {column.rpartition(".")[2]: column for column in reversed(there)}
    near = difflib.get_close_matches(name, there, 1) or [
        short[each] for each in difflib.get_close_matches(name.rpartition(".")[2], list(short), 1)
    ]
    more = ", ..." if len(there) > _COLUMNS_MAX else ""
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}there are: {', '.join(there[:_COLUMNS_MAX])}{more}"


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
