"""Calls of async functions for the records of a piece of a round: they begin and end within it. All run in one event loop of
the worker process, in a thread of its own, so that a connection that one call has opened serves the next: of any round, task
or thread. The thread that processes the piece waits for them, and looks whether the round is to end."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from threading import Event, Lock, Thread
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from headrace.core.rounds.async_calls import PIECE_S_MAX, pause_us
from headrace.errors import CallTimeoutError, RoundFailedError
from headrace.model.calls import Calls
from headrace.model.durations import duration_text

T = TypeVar("T")
LOG = logging.getLogger(__name__)
_LOOK_S = 0.05  # how often the thread that waits looks whether the round is to end
_END_S = 10.0  # a call that has not ended so long after it was cancelled blocks the loop, or catches its cancellation


_PENDING = object()


class Raised(NamedTuple):
    """What stands in for the result of a call that raised."""

    error: BaseException


class _EventLoop:
    """A loop in a thread of its own. `bounds`: what holds the calls of a function to its `concurrency`; of the loop alone."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.bounds: WeakKeyDictionary[Calls, asyncio.Semaphore] = WeakKeyDictionary()
        self.is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="async-calls", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self.is_closed:
            try:
                self._loop.run_forever()
            except BaseException:  # of a task that a function has left behind: asyncio raises a SystemExit through the loop
                LOG.exception("a task that an async function started, and did not await, raised what ends a program")

    def wait_for(self, what: str, coroutine: Coroutine[Any, Any, T], look: Callable[[], object]) -> T:
        """What `coroutine` gives; `look` is called while it runs. When this returns or raises, it has ended: but for one that
        cannot be cancelled, of which the log says `what` it was, and with it this loop."""
        ended = Event()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(self._loop.create_task(coroutine))
            tasks[0].add_done_callback(lambda _: ended.set())

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        try:
            self._loop.call_soon_threadsafe(begin)
            while not ended.wait(_LOOK_S):
                look()
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            if not ended.wait(_END_S):
                self.is_closed = True
                LOG.error("%s: a call was cancelled and has not ended: it blocks, or catches CancelledError", what)
            raise
        return tasks[0].result()

    def close(self) -> None:
        """End the loop and what functions have left in it."""
        if self.is_closed or self.pid != os.getpid():
            return

        async def end() -> None:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

        try:
            self.wait_for("at the end", end(), within(_END_S))
        except TimeoutError:
            LOG.warning("a task that an async function started, and did not await, does not end")
        self.is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S)


_lock = Lock()
_loops: list[_EventLoop] = []  # none or one


def _event_loop() -> _EventLoop:
    """That of this process; a fork has none of its parent's threads, and makes another."""
    with _lock:
        if not _loops or _loops[0].pid != os.getpid() or _loops[0].is_closed:
            _loops[:] = [_EventLoop()]
        return _loops[0]


@atexit.register
def _close() -> None:
    for loop in _loops:
        loop.close()


def gathered(
    calls: Calls, what: str, queues: Sequence[Sequence[int]], call: Callable[[int], Awaitable[Any]], look: Callable[[], object]
) -> tuple[list[Any], int]:
    """What `call` gives for each place in `queues`, by place, `Raised` where it raised, and how many tries were repeated; all
    calls have ended. Those of a queue run one after another. `what`: operator and function; what `look` raises cancels all."""
    loop, gathering = _event_loop(), _Gathering(calls, what, queues, call)
    until_s = time.monotonic() + PIECE_S_MAX

    def watch() -> None:
        look()
        if time.monotonic() > until_s:
            raise gathering.too_long()

    loop.wait_for(what, gathering.run(loop), watch)
    return gathering.results, gathering.retried


def awaited(what: str, given: Any, look: Callable[[], object]) -> None:
    """Wait for what a call gave, where its function is async."""
    if inspect.iscoroutine(given):
        _event_loop().wait_for(what, given, look)


def within(seconds: float) -> Callable[[], None]:
    """What to `look` at where something may take so long, and then ends with a `TimeoutError`."""
    until_s = time.monotonic() + seconds

    def look() -> None:
        if time.monotonic() > until_s:
            raise TimeoutError(f"it has not ended within {seconds:g} s")

    return look


class _Gathering:
    """The calls for a piece of a round, as they come; what is not a call's own runs in the loop."""

    def __init__(self, calls: Calls, what: str, queues: Sequence[Sequence[int]], call: Callable[[int], Awaitable[Any]]) -> None:
        self.results: list[Any] = [_PENDING] * sum(map(len, queues))
        self.retried = 0
        self._calls, self._what, self._call = calls, what, call
        self._workers, self._left = min(calls.concurrency, len(queues)), iter(queues)

    async def run(self, loop: _EventLoop) -> None:
        bound = loop.bounds.setdefault(self._calls, asyncio.Semaphore(self._calls.concurrency))
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work(bound))

    async def _work(self, bound: asyncio.Semaphore) -> None:
        for queue in self._left:
            for place in queue:
                async with bound:
                    # in a task of its own: context variables that one call sets are not seen by the next
                    self.results[place] = await asyncio.create_task(self._outcome(place))
                raise_if_cancelled()

    async def _outcome(self, place: int) -> Any:
        """What the call gives, in one of its tries, or what the last one raised."""
        tries = 0
        while True:
            tries += 1
            timeout = asyncio.timeout(self._calls.timeout_us / 1e6)
            try:
                async with timeout:
                    result = await self._call(place)
                    raise_if_cancelled()
                    return result
            except Exception as found:
                error = self._late(found) if timeout.expired() and isinstance(found, TimeoutError) else found
            except BaseException as found:
                if _is_cancelled():
                    raise
                return Raised(found)
            if tries > self._calls.retries:
                return Raised(error)
            self.retried += 1
            await asyncio.sleep(pause_us(self._calls, tries, random.random()) / 1e6)

    def _late(self, error: TimeoutError) -> CallTimeoutError:
        """With the traceback of where it waited."""
        retries = self._calls.retries
        tries = f", {retries} {'retry' if retries == 1 else 'retries'}" if retries else ""
        late = CallTimeoutError(
            f"{self._what} did not end within {duration_text(self._calls.timeout_us)}{tries}",
            "look at what it waits for, or give it more time: hr.concurrent(..., timeout=...)",
        )
        return late.with_traceback((error.__cause__ or error).__traceback__)

    def too_long(self) -> RoundFailedError:
        count, left = len(self.results), self.results.count(_PENDING)
        return RoundFailedError(
            f"{self._what}: of {count:,} calls {left:,} have not ended in {duration_text(int(PIECE_S_MAX * 1e6))}",
            "what it waits for is too slow, or does not answer: give it a shorter timeout, fewer retries or more keys, or "
            'let calls for one key run at once, hr.concurrent(..., order="none")',
        )


def raise_if_cancelled() -> None:
    """A function that was cancelled, because its time or the round is over, may have caught that: it has ended all the same."""
    if _is_cancelled():
        raise asyncio.CancelledError


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
