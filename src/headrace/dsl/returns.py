"""What the return annotation of a user's function says about the serdes of its result."""

from __future__ import annotations

import collections.abc
import functools
import inspect
from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from headrace.model.serde import Serde
from headrace.model.topology import Function, FunctionKind
from headrace.serdes.serdes import serde_of_annotation

_MANY = (
    collections.abc.Iterable,
    collections.abc.Iterator,
    collections.abc.Generator,
    collections.abc.Sequence,
    collections.abc.Collection,
    list,
    set,
    frozenset,
    tuple,
)


def returned(function: Function, *, each: bool = False) -> Serde | None:
    """The serde of what a record function returns, None where its annotation does not say one.

    With `each` that of every item of what it returns: of `-> list[V]`, `Iterator[V]` and the like.
    """
    annotation = _annotation(function)
    return _serde(_item(annotation) if each else annotation)


def returned_pair(function: Function, *, each: bool = False) -> tuple[Serde | None, Serde | None]:
    """Those of the key and the value of a function annotated `-> tuple[K, V]`, with `each` `-> list[tuple[K, V]]`."""
    annotation = _annotation(function)
    annotation = _not_none(_item(annotation) if each else annotation)
    arguments = get_args(annotation)
    if get_origin(annotation) is not tuple or len(arguments) != 2 or arguments[1] is Ellipsis:
        return None, None
    return _serde(arguments[0]), _serde(arguments[1])


def annotation_of(callable_: Callable[..., Any]) -> Any:
    """The return annotation, resolved; `inspect.Signature.empty` where there is none or it cannot be resolved."""
    while isinstance(callable_, functools.partial):
        callable_ = callable_.func
    target: Any = callable_
    if not inspect.isroutine(callable_) and not isinstance(callable_, type):
        target = getattr(type(callable_), "__call__", callable_)  # noqa: B004 - the method is wanted, not a yes or no
    if isinstance(target, type):
        return target
    try:
        return get_type_hints(target).get("return", inspect.Signature.empty)
    except (NameError, TypeError, AttributeError, SyntaxError):  # a name that exists for type checkers only
        return inspect.Signature.empty


def _annotation(function: Function) -> Any:
    """Arrow arrays say nothing about serdes, so only functions over records are asked."""
    return annotation_of(function.body) if function.kind is FunctionKind.RECORD else inspect.Signature.empty


def _serde(annotation: Any) -> Serde | None:
    if annotation is inspect.Signature.empty or annotation is None or annotation is type(None) or annotation is Any:
        return None
    return serde_of_annotation(annotation)


def _item(annotation: Any) -> Any:
    annotation = _not_none(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin not in _MANY or not arguments:
        return inspect.Signature.empty
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return inspect.Signature.empty
    return arguments[0]


def _not_none(annotation: Any) -> Any:
    """`X` for `X | None`."""
    if get_origin(annotation) in (Union, UnionType):
        rest = [each for each in get_args(annotation) if each is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return annotation
