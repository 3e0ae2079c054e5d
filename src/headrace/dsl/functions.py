"""Owns how what a user gives to an operator is told apart: SQL text, Column, batch function, function over a record.

Never guessed (api.md "Three kinds of function"): a batch function is marked, a Column is known by its class.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, TypeVar

from headrace.errors import TopologyError
from headrace.model.topology import Function, FunctionKind

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__headrace_batch__"


def batch(function: F) -> F:
    """Mark a function over whole batches: it is given a `pyarrow.RecordBatch` and gives one, or an array of its length.

    >>> @batch
    ... def doubled(rows): ...
    >>> function_of("map_values", doubled).kind
    <FunctionKind.BATCH: 'batch'>
    """
    if not callable(function):
        raise TopologyError(f"@batch: expected a function, found {type(function).__name__}")
    try:
        setattr(function, _MARK, True)
    except AttributeError:
        raise TopologyError(
            f"@batch: {label_of(function)} cannot be marked", "mark a function of your own that calls it"
        ) from None
    return function


def function_of(operator: str, given: Any) -> Function:
    """`given` with its kind and the name that errors use; `TopologyError` names `operator` if it is of no kind."""
    if isinstance(given, str):
        if not given.strip():
            raise TopologyError(f"{operator}: expected an expression, found {given!r}")
        return Function(FunctionKind.SQL, given.strip(), given.strip())
    if is_column(given):
        return Function(FunctionKind.COLUMN, given, _column_label(given))
    if not callable(given):
        raise TopologyError(
            f"{operator}: expected a function or an expression, found {type(given).__name__} {given!r:.60}",
            "give a Spark SQL expression as text, a Column, a function over a record, or one marked @hr.batch",
        )
    kind = FunctionKind.BATCH if _is_marked(given) else FunctionKind.RECORD
    return Function(kind, given, label_of(given))


def is_column(given: Any) -> bool:
    """Whether it is a pyspark Column, told by its class: pyspark itself is not imported for it."""
    return any(cls.__name__ == "Column" and cls.__module__.startswith("pyspark.sql") for cls in type(given).__mro__)


def _is_marked(given: Any) -> bool:
    while isinstance(given, functools.partial):
        given = given.func
    return getattr(given, _MARK, False) is True


def _column_label(column: Any) -> str:
    """The expression, as Spark writes it: `Column<'(a > 1)'>` without its frame."""
    text = str(column)
    return text[len("Column<'") : -len("'>")] if text.startswith("Column<'") and text.endswith("'>") else text


def label_of(given: Any) -> str:
    """The callable's qualified name, with its file and line where it is written in Python.

    >>> label_of(len)
    'len'
    """
    target = given
    while isinstance(target, functools.partial):
        target = target.func
    target = inspect.unwrap(target)
    name = getattr(target, "__qualname__", None)
    if name is None:  # an object that can be called
        name, target = type(target).__qualname__, getattr(type(target), "__call__", None)  # noqa: B004
    code = getattr(target, "__code__", None)
    return name if code is None else f"{name} ({PurePath(code.co_filename).name}:{code.co_firstlineno})"
