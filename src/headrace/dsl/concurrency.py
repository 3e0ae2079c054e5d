"""`hr.concurrent`: how an async function is called for records. What it takes is checked here alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, cast, overload

from headrace.core.rounds.async_calls import CONCURRENCY_MAX, LONGEST_US_MAX, longest_us
from headrace.dsl.functions import is_async, label_of, with_calls
from headrace.errors import TopologyError
from headrace.model.calls import Calls
from headrace.model.durations import duration_text, duration_us

F = TypeVar("F", bound=Callable[..., Any])
_ORDERS = ("key", "none")


@overload
def concurrent(
    function: F,
    *,
    concurrency: int = 100,
    timeout: str | timedelta = "30 seconds",
    retries: int = 0,
    backoff: str | timedelta = "100 ms",
    order: str = "key",
) -> F: ...
@overload
def concurrent(
    function: None = None,
    *,
    concurrency: int = 100,
    timeout: str | timedelta = "30 seconds",
    retries: int = 0,
    backoff: str | timedelta = "100 ms",
    order: str = "key",
) -> Callable[[F], F]: ...


def concurrent(
    function: F | None = None,
    *,
    concurrency: int = 100,
    timeout: str | timedelta = "30 seconds",
    retries: int = 0,
    backoff: str | timedelta = "100 ms",
    order: str = "key",
) -> F | Callable[[F], F]:
    """Say how an async function is called: how many calls at once, for how long, how often. A decorator too.

    At most `concurrency` calls run at once in a container, each try ends after `timeout`, and `retries` more tries follow one
    that raised or took too long: the first after `backoff`, each next one after twice the pause. With `order="key"` the calls
    for one key run one after another; with `"none"` they run at once too. Results keep the order of the records with both.
    """
    _check_number("concurrency", concurrency, 1, CONCURRENCY_MAX)
    _check_number("retries", retries, 0, 100)
    if order not in _ORDERS:
        raise TopologyError(f'concurrent(order={order!r:.40}): expected "key" or "none"')
    lengths = {"timeout": duration_us(timeout, "timeout"), "backoff": duration_us(backoff, "backoff")}
    for name, length_us in lengths.items():
        if length_us == 0:
            raise TopologyError(f"concurrent({name}=...): expected a length of time above 0")
    calls = Calls(concurrency, lengths["timeout"], retries, lengths["backoff"], order == "key")
    if longest_us(calls) > LONGEST_US_MAX:
        raise TopologyError(
            f"concurrent(timeout={timeout!r}, retries={retries}): with all tries the call for one record could take "
            f"{duration_text(longest_us(calls))}, expected at most {duration_text(LONGEST_US_MAX)}",
            "give a shorter timeout or fewer retries: a round waits for its calls",
        )
    return partial(_with, calls=calls) if function is None else _with(function, calls)


def _with(function: F, calls: Calls) -> F:
    if not callable(function) or not is_async(function):
        found = f"{label_of(function)}, which is not" if callable(function) else type(function).__name__
        raise TopologyError(
            f"concurrent: expected an async function, found {found}",
            "write it as `async def`; inside, `await asyncio.to_thread(...)` calls a function that blocks",
        )
    return cast("F", with_calls(function, calls))


def _check_number(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise TopologyError(f"concurrent({name}={value!r:.40}): expected a whole number from {least} to {most:,}")
