"""Running a user's `Processor`: its context, its stores and timers, and what it forwards."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from headrace.codec.record_batches import HEADERS_TYPE
from headrace.core.rounds.async_calls import queues_of
from headrace.core.rounds.watermarks import checked_time_us
from headrace.errors import ConfigError, TopologyError
from headrace.exchange.messages import Reject
from headrace.exchange.texts import MESSAGE_CHARS_MAX, cut, shown
from headrace.model import topology as t
from headrace.model.calls import Calls
from headrace.model.durations import duration_us
from headrace.worker.async_calls import awaited, raise_if_cancelled
from headrace.worker.operators.base import FAILED, Context, Due, Operator, check_not_async, record_batch
from headrace.worker.operators.faults import checked_fault
from headrace.worker.operators.outputs import header_entries
from headrace.worker.operators.processing.at_work import RECORD, Held, RecordAtWork
from headrace.worker.operators.processing.punctuating import Punctuating
from headrace.worker.operators.processing.schedules import Schedule
from headrace.worker.operators.processing.stores import AnyStoreView, store_view
from headrace.worker.operators.processing.timer_store import CLOCKS, DueTimers, Timer
from headrace.worker.operators.stateless import micros
from headrace.worker.rows import Field, Rows

R = TypeVar("R")
_KEEP = object()
_NAME_A_KEY = "give key=..., or choose a key that has state here by context.set_key(key)"
_HELD_MAX = 10_000  # records that timers forward: they are given on in pieces
_COUNT_MAX = 1 << 53  # counters travel as JSON: their sums must stay below 64 bits


class UnknownAttributeError(TopologyError, AttributeError):
    """The context has no attribute of that name: an `AttributeError` to `getattr`, a mistake to the job."""


class Metrics:
    """Counters of a `Processor`; they are summed over all tasks and shown by `status`."""

    def __init__(self, context: ProcessorContext) -> None:
        self._context = context

    def counter(self, name: str) -> Callable[..., None]:
        """A function that adds to the counter: `counter("misses")(3)`; without an argument it adds 1."""

        def add(by: int = 1) -> None:
            if not isinstance(name, str) or cut(name) != name:
                raise ValueError(f"counter {shown(name)}: expected a name of up to {MESSAGE_CHARS_MAX:,} characters of UTF-8")
            if not isinstance(by, int) or abs(by) > _COUNT_MAX:
                raise ValueError(f"counter {name!r}: expected a whole number up to 2**53 to add, got {shown(by)}")
            self._context.operator.held_counts.append((name, int(by)))

        return add


class ProcessorContext:
    """What a `Processor` sees: the current record, its stores, and ways to send records and set timers. It lives as long as the
    object of the user's class, from `init` on, over many rounds; `operator` is at work in the present one. `stream`,
    `partition` and `offset` are None while a timer fires."""

    def __init__(self, operator: ProcessOperator) -> None:
        self.operator: ProcessOperator | RecordAtWork = operator
        self.metrics = Metrics(self)
        self.logger = logging.getLogger(f"headrace.processor.{operator.node.name}")
        self.task = operator.context.task
        self.schedules: list[Schedule] = []
        self._stores = {spec.name: store_view(spec, self) for spec in operator.node.stores}

    def __getattr__(self, name: str) -> Any:
        if name in ("key", "stream", "partition", "offset", "timestamp_us"):
            return self.operator.current(name)
        near = difflib.get_close_matches(name, [each for each in dir(self) if not each.startswith("_")], 1)
        raise UnknownAttributeError(f"the processor's context has no {name!r}", f"did you mean {near[0]!r}?" if near else None)

    def store(self, name: Any) -> AnyStoreView:
        """The store that the class declared, given by its name or its declaration, scoped to the current record's key."""
        name = getattr(name, "name", name)
        if name not in self._stores:
            known = ", ".join(sorted(self._stores)) or "none"
            text = f"{self.operator.text} has no store {name!r}; it declares: {known}"
            raise TopologyError(text, "add it to `stores`")
        return self._stores[name]

    def forward(
        self, key: Any = _KEEP, value: Any = None, timestamp: Any = None, headers: Any = None, to: str | None = None
    ) -> None:
        """Send a record on: to all operators that follow, or to the one named `to`. Key and time default to the current."""
        work = self.operator
        if to is not None and to not in {child.node.name for child in work.children}:
            known = ", ".join(child.node.name for child in work.children) or "none"
            raise TopologyError(
                f"{work.text}: forward(to={to!r}), but the operators that follow are: {known}",
                "name one of them, or leave `to` out for all of them",
            )
        if key is _KEEP:
            if work.is_punctuating and work.key_bytes is None:
                raise TopologyError(f"{work.text}: forward in a punctuation has no current key", _NAME_A_KEY)
            key = work.key
        elif work.keyed_behind:
            work.check_key(key, to)
        time_us = work.time_us if timestamp is None else checked_time_us(micros(timestamp))
        work.held.append((to, key, value, time_us, header_entries(headers), work.where))

    def timer(self, name: str, at: Any = None, after: Any = None, clock: str = "event") -> None:
        """Call `on_timer` for the current key at a time (µs or an aware datetime), or `after` a duration such as "1 hour". One
        of the same name, key and clock that is still to come is replaced."""
        work = self.operator
        if clock not in CLOCKS:
            raise TopologyError(f"timer {name!r}: clock {clock!r}, expected 'event' or 'wall'")
        if (at is None) == (after is None):
            raise TopologyError(f"timer {name!r}: give either `at` or `after`")
        if isinstance(after, (int, float)):
            hint = 'write a duration such as "10 seconds", or a timedelta'
            raise TopologyError(f"timer {name!r}: after={after!r} is a bare number", hint)
        if not _overrides(work.node.processor, "on_timer"):
            text = f"timer {name!r}: {work.node.processor.__name__} defines no on_timer, nothing would happen"
            raise TopologyError(text, "define on_timer(self, timer)")
        if work.key_bytes is None:
            raise ValueError(f"timer {name!r}: a record with a null key can set no timer")
        if at is not None:
            at_us = micros(at)
        else:
            try:
                at_us = (work.time_us if clock == "event" else work.context.now_us) + duration_us(after)
            except ConfigError as error:  # it may well come from the record
                raise ValueError(str(error)) from None
        work.context.timers.set(work.timer_owner, work.key_bytes, name, clock, at_us)
        if work.due is not None:
            work.due.changed(name, clock, at_us)

    def schedule(self, interval: Any, callback: Callable[[int], object], *, clock: str = "event") -> Schedule:
        """Call `callback(time)` each `interval`, such as "10 seconds", of event time or of the wall clock; for `init` alone."""
        return self.operator.schedule(interval, callback, clock)

    def set_key(self, key: Any) -> None:
        """Make `key`, which has state here, the current one until the punctuation at work ends: that of stores and timers."""
        self.operator.set_key(key)

    def cancel_timer(self, name: str, clock: str = "event") -> None:
        """Cancel a timer of the current key; no error if there is none."""
        work = self.operator
        if work.key_bytes is not None:
            work.context.timers.delete(work.timer_owner, work.key_bytes, name, clock)
            if work.due is not None:
                work.due.changed(name, clock, None)

    def resource(self, loader: Callable[[], R]) -> R:
        """What `loader` gives, called once per worker process: a model, a connection. Several threads may use it."""
        # not the object: a lambda is another one at each call. Its code is compared by value, its line included.
        code = getattr(loader, "__code__", None) or getattr(loader, "__qualname__", None) or loader
        made: R = self.operator.context.resources.of((getattr(loader, "__module__", None), code), loader)
        return made


class ConcurrentContext(ProcessorContext):
    """That of an async `process`: its record is that of the call that looks."""

    @property
    def operator(self) -> ProcessOperator | RecordAtWork:
        record = RECORD.get()
        return self._operator if record is None else record.checked()

    @operator.setter
    def operator(self, operator: ProcessOperator | RecordAtWork) -> None:
        self._operator = operator


class ProcessOperator(Punctuating, Operator):
    node: t.Process

    def __init__(self, node: t.Process, context: Context) -> None:
        Punctuating.__init__(self)
        Operator.__init__(self, node, context)
        self.timer_owner = context.program.timer_owner_of(node.name)
        self.keyed_behind = context.program.keyed_behind.get(node.name, {})
        self._key_serde: Any = node.key
        self._processor: Any = None
        self._by_batch = _overrides(node.processor, "process_batch")
        self.due: DueTimers | None = None  # while timers fire

    @property
    def keys_at_work(self) -> Collection[bytes | None]:
        return self.context.batch_keys if self._by_batch and self.key_bytes is None else (self.key_bytes,)

    def _mark(self) -> Any:
        """From here on `_take_back` takes back all that a record did: it takes effect as a whole or not at all."""
        return self.context.savepoint(), len(self.held), len(self.held_counts)

    def _take_back(self, mark: Any) -> None:
        saved, held, counts = mark
        del self.held[held:]
        del self.held_counts[counts:]
        self.context.roll_back(saved)

    def ready(self) -> Any:
        """The user's object: made once per task and worker process, and given this round's operator."""
        if self._processor is None:
            kept = self.context.processor_cache.get(self.node.name)
            if kept is None:
                processor = self.node.processor()
                context = self.new_context()
                self._schedules, self._is_in_init = context.schedules, True
                awaited(f"{self.node.processor.__name__}.init", processor.init(context), self.context.check)
                self._is_in_init = False
                kept = self.context.processor_cache[self.node.name] = (processor, context)
            self._processor, kept[1].operator, self._schedules = kept[0], self, kept[1].schedules
        return self._processor

    def new_context(self) -> ProcessorContext:
        return (ProcessorContext if self.node.calls is None else ConcurrentContext)(self)

    def push(self, rows: Rows) -> None:
        rows = self.without(self.decoded(rows), rows.key.bytes()[1])
        if not len(rows):
            return
        if self.node.key is None:
            self._key_serde = rows.key.serde
        if self._by_batch:
            self._push_batch(rows)
        elif self.node.calls is not None:
            self._push_calls(self.node.calls, rows)
        else:
            self.worked(self.ready().process, rows)
        self._release()

    def _positions(self, rows: Rows) -> Iterator[tuple[bytes | None, int, int]]:
        return zip(rows.key.bytes()[0].to_pylist(), rows.ssp.tolist(), rows.rank.tolist(), strict=True)

    def _push_calls(self, calls: Calls, rows: Rows) -> None:
        processor = self.ready()
        if self.node.stores or self.node.timers:
            self.context.savepoint()  # opens the state here: the loop of the calls serves others too
        records, positions = rows.records(self.context.streams), list(self._positions(rows))

        async def process(place: int) -> tuple[list[Held], list[tuple[str, int]]]:
            record, (key, ssp, rank) = records[place], positions[place]
            work = RecordAtWork(self, key, record, (ssp, record.offset or 0, rank))
            RECORD.set(work)
            try:
                await processor.process(record)
                raise_if_cancelled()
                work.context.apply()
            finally:
                work.has_ended = True
            return work.held, work.held_counts

        keys = [key if calls.by_key else None for key, _, _ in positions]
        label = f"{self.node.processor.__name__}.process"
        for result in self.awaited(calls, label, queues_of(keys), process, rows):
            if result is not FAILED:
                self.held += result[0]
                self.held_counts += result[1]

    def worked(self, method: Callable[[Any], Any], rows: Rows) -> list[Any]:
        """What a method of the user's object gave for each record; `FAILED` (and a reject) where it raised."""
        self.is_event_time = True
        position = self._positions(rows)

        def work(record: Any) -> Any:
            self.key_bytes, ssp, rank = next(position)
            self.key, self.time_us, self.where = record.key, record.timestamp_us, (ssp, record.offset, rank)
            mark = self._mark()
            try:
                given = method(record)
            except BaseException:
                self._take_back(mark)
                raise
            if given is not None:
                check_not_async([given], f"operator {self.node.name!r}: {self.node.processor.__name__}.{method.__name__}")
            return given

        return self.each(work, rows.records(self.context.streams), rows)

    def _push_batch(self, rows: Rows) -> None:
        processor = self.ready()
        rows, key, value = self.columns(rows)
        if not len(rows):
            return
        self.context.batch_keys = set(rows.key.bytes()[0].to_pylist())
        self.where = (int(rows.ssp[0]), int(rows.offset[0]), int(rows.rank[0]))
        self.key, self.key_bytes, self.time_us = None, None, int(rows.timestamp_us.max())
        self.is_event_time = False  # the records of a batch have times of their own: the watermark alone judges
        mark = self._mark()
        try:
            processor.process_batch(record_batch(rows, key, value, self.context.streams))
        except BaseException as error:  # the user's function: anything may come
            self._take_back(mark)
            checked_fault(error, self.node.name)
            if len(rows) == 1:
                self.reject(rows, 0, error)
                return
            half = len(rows) // 2  # find the record that it fails on
            for part in np.split(np.arange(len(rows)), [half]):
                self._push_batch(rows.take(part))

    def fire(self, due: list[Due], until_us: Mapping[str, int]) -> tuple[str, int]:
        """Call `on_timer` for each (time, key, name, clock), and for what that sets which is due by the clocks in `until_us`;
        how many fired. `EndlessTimersError` where a key's timers set timers without end (`core.rounds.timer_chains`)."""
        serde: Any = self.context.program.key_serdes[self.node.name]
        self._key_serde = self.node.key or serde
        processor = self.ready()
        self.due = DueTimers(self.node.name, self.context, due, until_us)
        count = 0
        while (timer := self.due.take()) is not None:
            at_us, key, name, clock = timer
            self.key_bytes, self.time_us, self.where = key, at_us, (0, -1, -1)
            self.is_event_time = clock == "event"
            self.key = serde.decode(key)
            mark = self._mark()
            failed = False
            try:
                processor.on_timer(Timer(name, self.key, at_us, clock))
            except BaseException as error:  # the user's function: anything may come
                failed = True
                self._take_back(mark)
                checked_fault(error, self.node.name)
                self.context.reject(Reject.of(0, -1, f"{self.node.name}, timer {name!r} of key {shown(self.key)}", error))
            self.due.fired(timer, failed=failed)
            count += 1
            if len(self.held) >= _HELD_MAX:
                self._release()
        self.due = None
        self._release()
        return "timers_fired", count

    def _release(self) -> None:
        counts, self.held_counts = self.held_counts, []
        for name, by in counts:
            self.context.count(f"{self.node.name}.{name}", by)
        held, self.held = self.held, []
        for to in dict.fromkeys(entry[0] for entry in held):
            self.forward(self._rows([entry for entry in held if entry[0] == to]), to)

    def _rows(self, entries: list[Any]) -> Rows:
        where = np.array([entry[5] for entry in entries], np.int64)
        times_us = np.array([entry[3] for entry in entries], np.int64)
        key = Field(self._key_serde, objects=[entry[1] for entry in entries])
        value = Field(self.node.value, objects=[entry[2] for entry in entries])
        headers = [entry[4] for entry in entries]
        all_headers = pa.array(headers, HEADERS_TYPE) if any(headers) else None
        return Rows(where[:, 0].astype(np.int32), where[:, 1], times_us, key, value, all_headers, where[:, 2])


def _overrides(processor: Any, name: str) -> bool:
    """Whether the user's class, and not the base class, defines the method."""
    kind = next((kind for kind in processor.__mro__ if name in vars(kind)), None)
    return kind is not None and not kind.__module__.startswith("headrace.dsl")
