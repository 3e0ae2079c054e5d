"""Calls of async functions: how many run at once, in which order, how often; and that none outlives its piece of a round."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.rounds.async_calls import pause_us, queues_of
from headrace.errors import CallTimeoutError, RoundFailedError
from headrace.model.calls import Calls
from headrace.worker import async_calls
from headrace.worker.async_calls import Raised, awaited, gathered, within
from headrace.worker.round_limits import Stopped

KEYS = st.one_of(st.none(), st.sampled_from("abc"), st.lists(st.sampled_from("xy"), max_size=1))


class Watched:
    """A function of places that records when calls begin and end, and how many ran at once."""

    def __init__(self, function: Callable[[int], Awaitable[Any]]) -> None:
        self.function = function
        self.events: list[tuple[str, int]] = []
        self.running = self.most = 0

    async def __call__(self, place: int) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        self.events.append(("begin", place))
        try:
            return await self.function(place)
        finally:
            self.running -= 1
            self.events.append(("end", place))


def run(call: Any, count: int, calls: Calls | None = None, keys: list[Any] | None = None, look: Any = bool) -> list[Any]:
    queues = queues_of([None] * count if keys is None else keys)
    return gathered(calls or Calls(), "operator 'o': f", queues, call, look)[0]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_mix_of_keys_lengths_and_failures(data: st.DataObject) -> None:
    """Against the rules themselves: each call once, its result at its place, a bound on all, one at a time for a key."""
    keys = data.draw(st.lists(KEYS, max_size=25))
    turns = [data.draw(st.integers(0, 4)) for _ in keys]
    bad = [data.draw(st.booleans()) for _ in keys]
    bound = data.draw(st.integers(1, 6))

    async def function(place: int) -> str:
        for _ in range(turns[place]):
            await asyncio.sleep(0)
        if bad[place]:
            raise ValueError(place)
        return f"r{place}"

    watched = Watched(function)
    found = run(watched, len(keys), Calls(concurrency=bound), keys)
    shown = [str(one.error) if isinstance(one, Raised) else one for one in found]
    assert shown == [str(place) if bad[place] else f"r{place}" for place in range(len(keys))]
    assert watched.most <= bound and not watched.running
    assert sorted(watched.events) == sorted((kind, place) for kind in ("begin", "end") for place in range(len(keys)))
    for key in keys:
        if key is not None:
            mine = [place for place, other in enumerate(keys) if other == key]
            assert [event for event in watched.events if event[1] in mine] == [
                (kind, place) for place in mine for kind in ("begin", "end")
            ]


def test_as_many_calls_run_at_once_as_may() -> None:
    everyone = asyncio.Event()

    async def function(place: int) -> None:
        if watched.running == 20:
            everyone.set()
        await everyone.wait()  # but for 20 at once, it would never end

    watched = Watched(function)
    run(watched, 60, Calls(concurrency=20))
    assert watched.most == 20


def test_the_bound_holds_for_several_threads_together() -> None:
    calls, watched = Calls(concurrency=5), Watched(lambda place: asyncio.sleep(0.001))
    threads = [threading.Thread(target=run, args=(watched, 40, calls)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert watched.most == 5 and len(watched.events) == 2 * 4 * 40


def test_a_call_that_fails_twice_succeeds_at_its_third_try() -> None:
    tries = dict.fromkeys(range(5), 0)

    async def function(place: int) -> int:
        tries[place] += 1
        if tries[place] <= place:
            raise ConnectionError(f"try {tries[place]}")
        return tries[place]

    found = run(function, 5, Calls(retries=2, backoff_us=1_000))
    assert found[:3] == [1, 2, 3]
    assert [str(one.error) for one in found[3:]] == ["try 3", "try 3"]
    assert list(tries.values()) == [1, 2, 3, 3, 3]


def test_pauses_double_and_are_bounded() -> None:
    calls = Calls(backoff_us=100_000)
    for tries in range(1, 60):
        whole = min(100_000 * 2 ** (tries - 1), 30_000_000)
        assert [pause_us(calls, tries, chance) for chance in (0.0, 1.0)] == [whole // 2, whole]


@pytest.mark.parametrize("is_caught", [False, True])
def test_a_timeout_is_named_with_its_function_and_where_it_waited(is_caught: bool) -> None:
    tried = []

    async def function(place: int) -> None:
        tried.append(place)
        try:
            await asyncio.sleep(60)  # waits here
        except asyncio.CancelledError:
            if not is_caught:
                raise

    [found] = run(function, 1, Calls(timeout_us=20_000, retries=2, backoff_us=1_000))
    assert isinstance(found.error, CallTimeoutError) and isinstance(found.error, TimeoutError)
    assert found.error.message == "operator 'o': f did not end within 20 ms, 2 retries"
    assert len(tried) == 3


def test_a_timeout_of_its_own_and_what_ends_programs_are_the_records_error() -> None:
    raised: list[BaseException] = [TimeoutError("its own"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]

    async def function(place: int) -> None:
        await asyncio.sleep(0)
        raise raised[place]

    found = run(function, 4)
    assert [one.error for one in found] == raised
    assert run(function, 0) == []


@contextmanager
def cancelled_after(watched: Watched, begun: int) -> Iterator[Callable[[], None]]:
    def look() -> None:
        if len(watched.events) >= begun:
            raise Stopped

    with pytest.raises(Stopped):
        yield look
    assert watched.running == 0  # when `gathered` has raised, all calls have ended


def test_when_the_round_ends_no_call_is_left_and_none_begins() -> None:
    async def function(place: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)  # as a connection that is closed

    watched = Watched(function)
    with cancelled_after(watched, 7) as look:
        run(watched, 50, Calls(concurrency=7, retries=5), look=look)
    assert len(watched.events) == 2 * 7
    assert run(Watched(lambda place: asyncio.sleep(0)), 3) == [None] * 3


def test_calls_that_catch_their_cancellation_are_followed_by_no_others() -> None:
    async def function(place: int) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "went by"
        return "never"

    watched = Watched(function)
    with cancelled_after(watched, 3) as look:
        run(watched, 50, Calls(concurrency=3), look=look)
    assert len(watched.events) == 2 * 3


def test_calls_that_take_too_long_together_fail_the_round_and_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_calls, "PIECE_S_MAX", 0.15)
    watched = Watched(lambda place: asyncio.sleep(0.001 if place < 3 else 60))
    with pytest.raises(RoundFailedError, match="operator 'o': f: of 5 calls 2 have not ended in 150 ms") as found:
        run(watched, 5)
    assert found.value.hint and 'order="none"' in found.value.hint
    assert not watched.running


def test_a_call_that_blocks_the_loop_is_left_behind_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(async_calls, "_END_S", 0.1)
    free = threading.Event()

    async def function(place: int) -> None:
        free.wait(60)

    def look() -> None:
        raise Stopped

    with caplog.at_level(logging.ERROR), pytest.raises(Stopped):
        run(function, 1, look=look)
    assert "operator 'o': f: a call was cancelled and has not ended" in caplog.text
    assert run(Watched(lambda place: asyncio.sleep(0)), 3) == [None] * 3  # in another loop
    free.set()


def test_context_variables_are_those_of_the_caller_and_of_each_call_alone() -> None:
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("callers")

    async def function(place: int) -> tuple[str, str]:
        before = variable.get()
        variable.set(f"of {place}")
        await asyncio.sleep(0.001)
        return before, variable.get()

    assert run(function, 20, Calls(concurrency=4)) == [("callers", f"of {place}") for place in range(20)]
    assert variable.get() == "callers"


def test_one_loop_serves_all_rounds_and_threads() -> None:
    loops = set()

    async def function(place: int) -> None:
        loops.add(asyncio.get_running_loop())

    for _ in range(3):
        thread = threading.Thread(target=run, args=(function, 3))
        thread.start()
        thread.join()
        run(function, 3)
    assert len(loops) == 1


def test_a_task_that_was_left_behind_and_ends_programs_does_not_end_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    left: list[asyncio.Task[None]] = []

    async def ends() -> None:
        raise SystemExit(3)

    async def function(place: int) -> int:
        left.append(asyncio.create_task(ends()))
        await asyncio.sleep(0.01)
        return place

    assert run(function, 3) == [0, 1, 2]
    assert "raised what ends a program" in caplog.text
    assert all(isinstance(task.exception(), SystemExit) for task in left)


def test_a_fork_has_a_loop_of_its_own() -> None:
    run(Watched(lambda place: asyncio.sleep(0)), 1)
    child = os.fork()
    if not child:
        found = run(Watched(lambda place: asyncio.sleep(0, place)), 3)
        os._exit(0 if found == [0, 1, 2] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_no_coroutine_is_not_awaited_and_one_has_a_bound() -> None:
    awaited("f", 7, within(0.0))
    with pytest.raises(TimeoutError, match=r"has not ended within 0\.05 s"):
        awaited("f", asyncio.sleep(60), within(0.05))
