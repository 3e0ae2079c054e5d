"""What a user's arguments to an operator are: SQL text, Column, batch function, function over a record, which may be async;
and what the return annotation of a function says about the serdes of its result.

Never guessed (api.md "Three kinds of function"): a batch function is marked, a Column is known by its class.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from pathlib import PurePath
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from headrace.errors import PACKAGE_FOLDER, TopologyError
from headrace.model.calls import Calls
from headrace.model.serde import Serde
from headrace.model.topology import Function, FunctionKind
from headrace.serdes.serdes import not_none, serde_of_annotation

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__headrace_batch__"
_CALLS = "__headrace_calls__"
_MANY_AWAITED = (AsyncIterable, AsyncIterator, AsyncGenerator)
_MANY = (Iterable, Iterator, Generator, Sequence, Collection, list, set, frozenset, tuple, *_MANY_AWAITED)
_GIVE_MANY = ("flat_map", "flat_map_values")  # the operators that take an async generator
_UNKNOWN = inspect.Signature.empty


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
    if is_async(given):
        return _async_function(f"{operator}({label_of(given)})", operator in _GIVE_MANY, given, arguments)
    kind = FunctionKind.BATCH if is_batch(given) else FunctionKind.RECORD
    given_these = ("batch", *arguments[1:]) if kind is FunctionKind.BATCH else arguments
    checked_arguments(f"{operator}({label_of(given)})", given, given_these)
    return Function(kind, given, label_of(given), users_line())


def _async_function(what: str, gives_many: bool, given: Callable[..., Any], arguments: Sequence[str]) -> Function:
    if is_batch(given):
        raise TopologyError(
            f"{what}: an @hr.batch function cannot be async",
            "write it without async, or give an async function over one record",
        )
    check_call(what, given, arguments)
    is_generator = is_async_generator(given)
    if is_generator and not gives_many:
        raise TopologyError(
            f"{what} is an async generator: it gives any number of results, expected one",
            f"return the result, or use {' or '.join(_GIVE_MANY)}",
        )
    calls = calls_of(given)
    body = with_calls(given, calls) if is_generator else given
    return Function(FunctionKind.ASYNC, body, label_of(given), users_line(), calls)


def checked_arguments(what: str, given: Callable[..., Any], arguments: Sequence[str]) -> None:
    """Raise `TopologyError` where `given` is async, or cannot be called with `arguments`: of many built-ins not known."""
    if is_async(given):
        raise TopologyError(f"{what} is an async function", "write it without async: it is called, and not awaited")
    check_call(what, given, arguments)


def check_call(what: str, given: Callable[..., Any], arguments: Sequence[str]) -> None:
    """`checked_arguments` for a function that may be async."""
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
    return getattr(_whole(given), _MARK, False) is True


def is_async(given: Any) -> bool:
    """Whether what a call gives is awaited, or iterated by `async for`: also of a partial function and of an object."""
    return _is(inspect.iscoroutinefunction, given) or is_async_generator(given)


def is_async_generator(given: Any) -> bool:
    return _is(inspect.isasyncgenfunction, given)


def _is(kind: Callable[[Any], bool], given: Any) -> bool:
    whole = _whole(given)
    return kind(whole) or kind(getattr(type(whole), "__call__", None))  # noqa: B004 - the method is wanted


def calls_of(given: Any) -> Calls:
    """How an async function is called: as `hr.concurrent` says, else as the defaults."""
    target = given
    while True:
        found = getattr(target, _CALLS, None) or getattr(getattr(type(target), "__call__", None), _CALLS, None)  # noqa: B004
        if isinstance(found, Calls):
            return found
        if not isinstance(target, functools.partial):
            return Calls()
        target = target.func


def with_calls(given: Any, calls: Calls) -> Any:
    """An async function that calls `given`, to be called as `calls` say; of an async generator it gives a list."""

    async def call(*arguments: Any, **named: Any) -> Any:
        found = given(*arguments, **named)
        return [item async for item in found] if inspect.isasyncgen(found) else await found

    functools.update_wrapper(call, given, updated=())
    setattr(call, _CALLS, calls)
    return call


def _whole(given: Any) -> Any:
    """The function that a partial one is made of, or one that `hr.concurrent` gave."""
    while True:
        if isinstance(given, functools.partial):
            given = given.func
        elif isinstance(getattr(given, _CALLS, None), Calls) and hasattr(given, "__wrapped__"):
            given = given.__wrapped__
        else:
            return given


def _column_label(column: Any) -> str:
    """The expression, as Spark writes it: `Column<'(a > 1)'>` without its frame."""
    text = str(column)
    return text[len("Column<'") : -len("'>")] if text.startswith("Column<'") and text.endswith("'>") else text


def label_of(given: Any) -> str:
    """The callable's qualified name, with its file and line where it is written in Python.

    >>> label_of(len)
    'len'
    """
    target = inspect.unwrap(_whole(given))
    name = getattr(target, "__qualname__", None)
    if name is None:  # an object that can be called
        name, target = type(target).__qualname__, getattr(type(target), "__call__", None)  # noqa: B004
    code = getattr(target, "__code__", None)
    return name if code is None else f"{name} ({PurePath(code.co_filename).name}:{code.co_firstlineno})"


def returned(function: Function, *, each: bool = False) -> Serde | None:
    """The serde of what a record function returns, None where its annotation does not say one.

    With `each` that of every item of what it returns: of `-> list[V]`, `Iterator[V]` and the like.
    """
    return serde_of_annotation(_annotation(function, each))


def returned_pair(function: Function, *, each: bool = False) -> tuple[Serde | None, Serde | None]:
    """Those of the key and the value of a function annotated `-> tuple[K, V]`, with `each` `-> list[tuple[K, V]]`."""
    annotation = not_none(_annotation(function, each))
    arguments = get_args(annotation)
    if get_origin(annotation) is not tuple or len(arguments) != 2 or arguments[1] is Ellipsis:
        return None, None
    return serde_of_annotation(arguments[0]), serde_of_annotation(arguments[1])


def _annotation(function: Function, each: bool) -> Any:
    """The return annotation, resolved, or that of its items; `_UNKNOWN` where there is none or it cannot be resolved. Arrow
    arrays say nothing about serdes, so only functions over records have one."""
    if function.kind not in (FunctionKind.RECORD, FunctionKind.ASYNC):
        return _UNKNOWN
    target = _whole(function.body)
    if not inspect.isroutine(target) and not isinstance(target, type):
        target = getattr(type(target), "__call__", target)  # noqa: B004 - the method is wanted, not a yes or no
    try:
        found = target if isinstance(target, type) else get_type_hints(target).get("return", _UNKNOWN)
    except (NameError, TypeError, AttributeError, SyntaxError):  # a name that exists for type checkers only
        return _UNKNOWN
    if not each:
        return found
    origin, arguments = get_origin(not_none(found)), get_args(not_none(found))
    is_pair = origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis)
    return arguments[0] if origin in _MANY and arguments and not is_pair else _UNKNOWN
