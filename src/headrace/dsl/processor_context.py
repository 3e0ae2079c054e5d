"""What a `Processor` is given: its context, its stores and its timers. The worker has the implementations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, overload

from headrace.serdes.typed import K_co, V

if TYPE_CHECKING:
    from headrace.dsl.processor import KeyValueStore, ListStore, MapStore, WindowStore

D = TypeVar("D")
R = TypeVar("R")
StoredV = TypeVar("StoredV")
SubKey: TypeAlias = str | bytes | int  # of a `MapStore`, as declared


class KeyValueStoreView(Protocol[V]):
    """One value per key, and per sub-key (`sub`: text or bytes of at most 64 bytes) where one is given."""

    @property
    def name(self) -> str: ...

    @overload
    def get(self, default: None = None, *, sub: str | bytes = b"") -> V | None: ...
    @overload
    def get(self, default: D, *, sub: str | bytes = b"") -> V | D: ...

    def get(self, default: object = None, *, sub: str | bytes = b"") -> object:
        """The value of the current key (and sub-key), `default` without one."""

    def put(self, value: V | None, *, sub: str | bytes = b"") -> None:
        """Store `value`; None deletes."""

    def delete(self, *, sub: str | bytes = b"") -> None:
        """Forget the value; no error if there is none."""

    def keys(self) -> Iterator[object]:
        """The keys of the task that have an entry, each once, in an order of their hashes; for punctuations."""

    def all(self) -> Iterator[tuple[object, V]]:
        """(key, value) of all keys of the task, without what is under sub-keys, in an order of hashes; for punctuations."""

    def get_many(self, keys: Sequence[bytes]) -> list[V | None]:
        """The values (None where absent) of `keys`, the encoded keys of records of the current batch."""

    def put_many(self, keys: Sequence[bytes], values: Sequence[V | None]) -> None:
        """Store a value (None deletes) for each of `keys`, the encoded keys of records of the current batch."""


class MapStoreView(Protocol[V]):
    """Ordered sub-keys under the current key, each with a value. They are texts, bytes or numbers, as declared."""

    @property
    def name(self) -> str: ...

    @overload
    def get(self, sub: SubKey, default: None = None) -> V | None: ...
    @overload
    def get(self, sub: SubKey, default: D) -> V | D: ...

    def get(self, sub: SubKey, default: object = None) -> object:
        """The value of a sub-key, `default` without one."""

    def put(self, sub: SubKey, value: V | None) -> None:
        """Store `value`; None deletes."""

    def delete(self, sub: SubKey) -> None:
        """Forget the value; no error if there is none."""

    def range(
        self, start: SubKey | None = None, stop: SubKey | None = None, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[SubKey, V]]:
        """(sub-key, value) pairs with start <= sub-key < stop, None for no bound; at most `limit`.

        They are in their order, or with `reverse` from the last one on: numbers as numbers, texts by their UTF-8 bytes.
        """

    def prefix_scan(self, prefix: str | bytes, *, reverse: bool = False, limit: int | None = None) -> list[tuple[SubKey, V]]:
        """The pairs whose sub-keys, texts or bytes, begin with `prefix`; else as `range`."""

    def clear(self) -> None:
        """Forget all sub-keys of the current key."""

    def keys(self) -> Iterator[object]:
        """The keys of the task that have an entry, each once, in an order of their hashes; for punctuations."""


class ListStoreView(Protocol[V]):
    """An ordered list of values under the current key."""

    @property
    def name(self) -> str: ...

    def append(self, value: V) -> None:
        """Put `value` behind the last one."""

    def extend(self, values: Iterable[V]) -> None:
        """Put `values` behind the last one, in their order."""

    @overload
    def get(self, index: int, default: None = None) -> V | None: ...
    @overload
    def get(self, index: int, default: D) -> V | D: ...

    def get(self, index: int, default: object = None) -> object:
        """The value at an index, from 0 on, or from -1 backwards; `default` where there is none."""

    def range(
        self, start: int | None = None, stop: int | None = None, *, reverse: bool = False, limit: int | None = None
    ) -> list[V]:
        """The values at `start` <= index < `stop`, as in a slice; with `reverse` from the last one on; at most `limit`."""

    @overload
    def pop_first(self, default: None = None) -> V | None: ...
    @overload
    def pop_first(self, default: D) -> V | D: ...

    def pop_first(self, default: object = None) -> object:
        """Take the first value out and give it; `default` where the list is empty."""

    def trim(self, count: int) -> None:
        """Take the first `count` values out, or all where there are fewer."""

    def clear(self) -> None:
        """Take all values of the current key out."""

    def keys(self) -> Iterator[object]:
        """The keys of the task that have an entry, each once, in an order of their hashes; for punctuations."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[V]: ...


class WindowStoreView(Protocol[V]):
    """Values by time under the current key. Times are µs since the epoch; entries live for the store's retention."""

    @property
    def name(self) -> str: ...

    def put(self, value: V | None, at: int) -> None:
        """Store `value` at a time; None deletes."""

    def delete(self, at: int) -> None:
        """Forget the value at a time; no error if there is none."""

    @overload
    def get(self, at: int, default: None = None) -> V | None: ...
    @overload
    def get(self, at: int, default: D) -> V | D: ...

    def get(self, at: int, default: object = None) -> object:
        """The value of the current key at a time, `default` without one."""

    def range(self, start: int, stop: int) -> list[tuple[int, V]]:
        """(time, value) pairs with start <= time < stop, in order of time."""

    def keys(self) -> Iterator[object]:
        """The keys of the task that have an entry, each once, in an order of their hashes; for punctuations."""


class NamedStore(Protocol[V]):
    """A store of which a type checker knows the name alone: it may be of any kind, and its values of any type."""

    @property
    def name(self) -> str: ...
    def get(self, *arguments: object, **options: object) -> V: ...
    def put(self, value: V | None, *arguments: object, **options: object) -> None: ...
    def delete(self, *arguments: object, **options: object) -> None: ...
    def get_many(self, keys: Sequence[bytes]) -> list[V | None]: ...
    def put_many(self, keys: Sequence[bytes], values: Sequence[V | None]) -> None: ...
    def range(self, *arguments: object, **options: object) -> list[tuple[int, V]]: ...
    def prefix_scan(self, prefix: str | bytes, **options: object) -> list[tuple[str, V]]: ...
    def clear(self) -> None: ...
    def keys(self) -> Iterator[object]: ...
    def all(self) -> Iterator[tuple[object, V]]: ...
    def append(self, value: V) -> None: ...
    def extend(self, values: Iterable[V]) -> None: ...
    def pop_first(self, default: object = None) -> V: ...
    def trim(self, count: int) -> None: ...


class Counter(Protocol):
    """Adds to a counter of a `Processor`."""

    def __call__(self, by: int = 1) -> None: ...


class Metrics(Protocol):
    """Counters of a `Processor`; they are summed over all tasks and shown by `status`."""

    def counter(self, name: str) -> Counter:
        """A function that adds to the counter: `counter("misses")(3)`; without an argument it adds 1."""


class Timer(Protocol[K_co]):
    """A timer that fires: what `on_timer` is given. `timestamp_us` is the time it was set for."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> K_co: ...
    @property
    def timestamp_us(self) -> int: ...
    @property
    def clock(self) -> str: ...


class Schedule(Protocol):
    """A callback that is called again and again, until it is cancelled."""

    def cancel(self) -> None:
        """Do not call it any more, until the processor's object is made again: after a restart `init` schedules it again."""


class ProcessorContext(Protocol[K_co]):
    """What a `Processor` sees: the current record, its stores, and ways to send records and set timers.

    `stream`, `partition` and `offset` are None while a timer fires, and in a punctuation; `key` there too, until it is set.
    """

    @property
    def key(self) -> K_co: ...
    @property
    def timestamp_us(self) -> int: ...
    @property
    def stream(self) -> str | None: ...
    @property
    def partition(self) -> int | None: ...
    @property
    def offset(self) -> int | None: ...
    @property
    def task(self) -> str: ...
    @property
    def logger(self) -> logging.Logger: ...
    @property
    def metrics(self) -> Metrics: ...

    @overload
    def store(self, name: KeyValueStore[StoredV]) -> KeyValueStoreView[StoredV]: ...
    @overload
    def store(self, name: WindowStore[StoredV]) -> WindowStoreView[StoredV]: ...
    @overload
    def store(self, name: MapStore[StoredV]) -> MapStoreView[StoredV]: ...
    @overload
    def store(self, name: ListStore[StoredV]) -> ListStoreView[StoredV]: ...
    @overload
    def store(self, name: str) -> NamedStore: ...

    def store(self, name: Any) -> object:
        """The store that the class declared, by its name or, for its types' sake, by its declaration."""

    def forward(
        self,
        key: object = ...,
        value: object = None,
        timestamp: int | datetime | None = None,
        headers: Any = None,
        to: str | None = None,
    ) -> None:
        """Send a record on: to all operators that follow, or to the one named `to`. Key and time default to the current."""

    def timer(
        self, name: str, at: int | datetime | None = None, after: str | timedelta | None = None, clock: str = "event"
    ) -> None:
        """Call `on_timer` for the current key at a time (µs or an aware datetime), or `after` a duration such as "1 hour".

        One of the same name, key and clock that is still to come is replaced.
        """

    def schedule(
        self, interval: str | timedelta, callback: Callable[[int], object], *, clock: Literal["event", "wall"] = "event"
    ) -> Schedule:
        """Call `callback(time)` each `interval`, such as "10 seconds", of event time or of the wall clock; for `init` alone.

        It is called for the task as a whole, with a whole multiple of the interval in µs: the last one that time has passed.
        """

    def set_key(self, key: Any) -> None:
        """Make `key`, which has state here, the current one until the punctuation at work ends: that of stores and timers."""

    def cancel_timer(self, name: str, clock: str = "event") -> None:
        """Forget a timer of the current key; no error if there is none."""

    def resource(self, loader: Callable[[], R]) -> R:
        """What `loader` gives, called once per worker process: a model, a connection. Several threads may use it."""
