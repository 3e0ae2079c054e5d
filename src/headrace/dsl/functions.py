"""How a user's arguments to an operator are classified: SQL text, Column, batch function, function over a record.

Never guessed (api.md "Three kinds of function"): a batch function is marked, a Column is known by its class.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, TypeVar

from headrace.errors import PACKAGE_FOLDER, TopologyError
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


def function_of(operator: str, given: Any, arguments: Sequence[str] = ("record",)) -> Function:
    """`given` with its kind and the name that errors use; `TopologyError` names `operator` if it is of no kind, or
    cannot be called with `arguments`, the names of what it is given (a batch function instead of the first one a batch).
    """
    if isinstance(given, str):
        if not given.strip():
            raise TopologyError(f"{operator}: expected an expression, found {given!r}")
        return Function(FunctionKind.SQL, given.strip(), given.strip(), users_line())
    if is_column(given):
        return Function(FunctionKind.COLUMN, given, _column_label(given), users_line())
    if not callable(given):
        raise TopologyError(
            f"{operator}: expected a function or an expression, found {type(given).__name__} {given!r:.60}",
            "give a Spark SQL expression as text, a Column, a function over a record, or one marked @hr.batch",
        )
    kind = FunctionKind.BATCH if is_batch(given) else FunctionKind.RECORD
    given_these = ("batch", *arguments[1:]) if kind is FunctionKind.BATCH else arguments
    checked_arguments(f"{operator}({label_of(given)})", given, given_these)
    return Function(kind, given, label_of(given), users_line())


def checked_arguments(what: str, given: Callable[..., Any], arguments: Sequence[str]) -> None:
    """Raise `TopologyError` where `given` cannot be called with `arguments`; for many built-ins this is unknown."""
    if inspect.iscoroutinefunction(given):
        raise TopologyError(f"{what} is an async function", "write it without async: it is called, and not awaited")
    try:
        signature = inspect.signature(given)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        names = ", ".join(arguments)
        raise TopologyError(
            f"{what}: expected a function that is called with ({names}), found one with {signature}: {error}",
            f"write it as `lambda {names}: ...`" if arguments else "write it as `lambda: ...`",
        ) from None


def users_line() -> str:
    """File and line of the user's code that is calling us, as errors name them; empty where there is none."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        frame = frame.f_back
    return "" if frame is None else f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"


def is_column(given: Any) -> bool:
    """Whether it is a pyspark Column, told by its class: pyspark itself is not imported for it."""
    return any(cls.__name__ == "Column" and cls.__module__.startswith("pyspark.sql") for cls in type(given).__mro__)


def is_batch(given: Any) -> bool:
    """Whether it is marked `@hr.batch`."""
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
