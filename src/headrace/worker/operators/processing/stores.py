"""What a `Processor` sees of its state: stores, scoped to the current record's key. The routing key is the first part of every
entry's key, so that state is found again after any split or merge; keys are iterated over by punctuations alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.core.accumulators import INT64_MAX, INT64_MIN
from headrace.core.keys.key_layout import TIME_BYTES, split_state_key, state_key, time_bytes, time_from
from headrace.errors import StateError, TopologyError
from headrace.model.topology import StoreKind, StoreSpec
from headrace.worker.batch_keys import state_keys
from headrace.worker.operators.expiry import expire, forget_expiry

if TYPE_CHECKING:
    from headrace.worker.operators.processing.process import ProcessorContext

SUB_KEY_BYTES_MAX = 64
LIST = "list "  # the form of a `ListStore` begins with it
MAP = "map-"  # and the class of the sub-keys: of the form of a `MapStore`
AFTER_ALL_SUBS = b"\xff" * (SUB_KEY_BYTES_MAX + 1)


class _Store:
    """A view outlives rounds, because a Processor may keep it: the operator of the round at work is that of `context`."""

    def __init__(self, spec: StoreSpec, context: ProcessorContext) -> None:
        self.name = spec.name
        self._spec, self._kept_in, self._context = spec, spec.kept_in, context
        self._last_key: bytes | None = None
        self._prefix = b""

    def _key(self) -> bytes:
        key = self._context.operator.key_bytes
        if key is None:
            if self._context.operator.is_punctuating:
                raise TopologyError(f"store {self.name!r}: a punctuation has no current key", "call context.set_key(key)")
            raise StateError(
                f"store {self.name!r}: the current record has a null key, and a null key has no state",
                "filter such records out before this operator, or give them a key",
            )
        return key

    def keys(self) -> Iterator[Any]:
        """The keys of the task that have an entry, each once, in an order of their hashes; for punctuations."""
        before = None
        for key, _, _ in self._entries():
            if key != before:
                yield self._key_of(key)
            before = key

    def _entries(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Key, sub-key and data of all entries of the task."""
        if not self._context.operator.is_punctuating:
            raise TopologyError(
                f"store {self.name!r}: the keys of a task are for punctuations: a record and a timer see those of their key",
                "call it in a function that was given to context.schedule",
            )
        return ((*split_state_key(layout), data) for layout, data in self._database().scan())

    def _key_of(self, key: bytes) -> Any:
        work = self._context.operator
        serde: Any = work.context.program.key_serdes[work.node.name]
        return serde.decode(key)

    def _layout(self, sub: bytes) -> bytes:
        if len(sub) > SUB_KEY_BYTES_MAX:
            raise StateError(
                f"store {self.name!r}: a sub-key of {len(sub)} bytes, at most {SUB_KEY_BYTES_MAX} are allowed",
                "use a shorter sub-key, such as a hash of it, and keep the whole one in the value",
            )
        key = self._key()
        if key is not self._last_key:  # several accesses for one record are the rule, and hashing is most of their cost
            self._last_key, self._prefix = key, state_key(key)
        return self._prefix + sub

    def _database(self) -> Any:
        return self._context.operator.context.database(self._kept_in)

    def _encoded(self, value: Any, at_us: int | None) -> bytes:
        assert self._spec.value is not None
        data = self._spec.value.encode(value)
        return data if at_us is None else time_bytes(at_us) + data

    def _decoded(self, data: bytes) -> Any:
        assert self._spec.value is not None
        if self._spec.ttl_us is None:
            return self._spec.value.decode(data)
        until_us = self._context.operator.event_time_us
        is_expired = until_us is not None and time_from(data[:TIME_BYTES]) <= until_us
        return _EXPIRED if is_expired else self._spec.value.decode(data[TIME_BYTES:])

    def _get(self, layout: bytes, default: object) -> object:
        data = self._database().get(layout)
        value = _EXPIRED if data is None else self._decoded(data)
        return default if value is _EXPIRED else value

    def _put(self, layout: bytes, value: Any, at_us: int) -> None:
        if value is None:
            self._delete(layout)
            return
        ttl = self._spec.ttl_us
        data = self._encoded(value, None if ttl is None else at_us + ttl)
        if ttl is not None:
            self._forget_expiry(layout)
            expire(self._context.operator.context, self._kept_in, [(self._key(), layout, at_us + ttl)])
        self._database().put(layout, data)

    def _delete(self, layout: bytes) -> None:
        self._forget_expiry(layout)
        self._database().delete(layout)

    def _forget_expiry(self, layout: bytes) -> None:
        """An entry has one expiry, that of its last put: an older one would delete it too early."""
        stored = None if self._spec.ttl_us is None else self._database().get(layout)
        if stored is not None:
            context, at_us = self._context.operator.context, time_from(stored[:TIME_BYTES])
            forget_expiry(context, self._kept_in, self._key(), layout, at_us)


_EXPIRED = object()


class KeyValueStoreView(_Store):
    """One value per key, and per sub-key (`sub`: text or bytes of at most 64 bytes) where one is given."""

    def get(self, default: object = None, *, sub: str | bytes = b"") -> object:
        """The value of the current key (and sub-key), `default` without one."""
        return self._get(self._layout(_bytes(sub)), default)

    def put(self, value: Any, *, sub: str | bytes = b"") -> None:
        """Store `value`; None deletes."""
        self._put(self._layout(_bytes(sub)), value, self._context.operator.time_us)

    def delete(self, *, sub: str | bytes = b"") -> None:
        """Delete the value; no error if there is none."""
        self._delete(self._layout(_bytes(sub)))

    def all(self) -> Iterator[tuple[Any, object]]:
        """(key, value) of all keys of the task, without what is under sub-keys, in an order of hashes; for punctuations."""
        for key, sub, data in self._entries():
            if sub == b"" and (value := self._decoded(data)) is not _EXPIRED:
                yield self._key_of(key), value

    def get_many(self, keys: Sequence[bytes]) -> list[object]:
        """The values (None where absent) of `keys`, the encoded keys of records of the current batch."""
        self._checked(keys)
        found = self._database().get_many(state_keys(list(keys)))
        values = [None if data is None else self._decoded(data) for data in found]
        return [None if value is _EXPIRED else value for value in values]

    def put_many(self, keys: Sequence[bytes], values: Sequence[Any]) -> None:
        """Store a value (None deletes) for each of `keys`, the encoded keys of records of the current batch."""
        self._checked(keys)
        database, ttl = self._database(), self._spec.ttl_us
        if ttl is not None:
            raise TopologyError(f"store {self.name!r}: put_many on a store with a ttl", "use put in process()")
        for layout, value in zip(state_keys(list(keys)), values, strict=True):
            database.put(layout, None if value is None else self._encoded(value, None))

    def _checked(self, keys: Sequence[bytes]) -> None:
        allowed = self._context.operator.context.batch_keys
        for key in keys:
            if key is None or key not in allowed:
                raise StateError(
                    f"store {self.name!r}: {key!r:.60} is no key of this batch",
                    "state is reached by the keys of the records at work only, as bytes; a null key has no state",
                )


class WindowStoreView(_Store):
    """Values by time under the current key. Times are µs since the epoch; entries live for the store's retention."""

    def put(self, value: Any, at: int) -> None:
        """Store `value` at a time; None deletes."""
        self._put(self._layout(time_bytes(at)), value, at)

    def delete(self, at: int) -> None:
        """Delete the value at a time; no error if there is none."""
        self._delete(self._layout(time_bytes(at)))

    def get(self, at: int, default: object = None) -> object:
        """The value of the current key at a time, `default` without one."""
        return self._get(self._layout(time_bytes(at)), default)

    def range(self, start: int, stop: int) -> list[tuple[int, object]]:
        """(time, value) pairs with start <= time < stop, in order of time."""
        low, high = self._layout(time_bytes(start)), self._layout(time_bytes(stop))
        found = []
        for layout, data in self._database().scan(low, high):
            _, sub = split_state_key(layout)
            value = self._decoded(data)
            if value is not _EXPIRED:
                found.append((time_from(sub), value))
        return found


class MapStoreView(_Store):
    """Ordered sub-keys under the current key. Sub-keys are stored so that their bytes have their order."""

    def __init__(self, spec: StoreSpec, context: ProcessorContext) -> None:
        super().__init__(spec, context)
        self._kind = spec.form.partition(" ")[0].removeprefix(MAP)

    def get(self, sub: Any, default: object = None) -> object:
        """The value of a sub-key, `default` without one."""
        return self._get(self._layout(self._encoded_sub(sub)), default)

    def put(self, sub: Any, value: Any) -> None:
        """Store `value`; None deletes."""
        self._put(self._layout(self._encoded_sub(sub)), value, 0)

    def delete(self, sub: Any) -> None:
        """Delete the value; no error if there is none."""
        self._delete(self._layout(self._encoded_sub(sub)))

    def range(
        self, start: Any = None, stop: Any = None, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[Any, object]]:
        """(sub-key, value) pairs with start <= sub-key < stop, in their order or from the last one; at most `limit`."""
        low = self._layout(b"" if start is None else self._encoded_sub(start))
        high = self._layout(b"") + AFTER_ALL_SUBS if stop is None else self._layout(self._encoded_sub(stop))
        return self._found(low, high, reverse, limit)

    def prefix_scan(self, prefix: Any, *, reverse: bool = False, limit: int | None = None) -> list[tuple[Any, object]]:
        """The pairs whose sub-keys begin with `prefix`; else as `range`."""
        if self._kind == "int":
            raise StateError(f"store {self.name!r}: its sub-keys are numbers, which have no prefix", "use range(start, stop)")
        low = self._layout(self._encoded_sub(prefix))
        return self._found(low, low + AFTER_ALL_SUBS, reverse, limit)

    def clear(self) -> None:
        """Delete all sub-keys of the current key."""
        low = self._layout(b"")
        for layout, _ in list(self._database().scan(low, low + AFTER_ALL_SUBS)):
            self._delete(layout)

    def _found(self, low: bytes, high: bytes, reverse: bool, limit: int | None) -> list[tuple[Any, object]]:
        if limit is not None and limit < 0:
            raise StateError(f"store {self.name!r}: limit={limit}: expected 0 or more")
        entries: Iterable[tuple[bytes, bytes]] = self._database().scan(low, high) if low < high else ()
        if reverse:
            entries = reversed(deque(entries, maxlen=limit))
        return [(self._decoded_sub(split_state_key(layout)[1]), self._decoded(data)) for layout, data in islice(entries, limit)]

    def _encoded_sub(self, sub: Any) -> bytes:
        if type(sub).__name__ != self._kind:
            raise StateError(f"store {self.name!r}: sub-key {sub!r:.60}: expected {self._kind}, found {type(sub).__name__}")
        if self._kind == "int":
            if not INT64_MIN <= sub <= INT64_MAX:
                raise StateError(f"store {self.name!r}: sub-key {sub}: expected a number of 64 bits")
            return time_bytes(sub)
        return _bytes(sub)

    def _decoded_sub(self, data: bytes) -> Any:
        return time_from(data) if self._kind == "int" else data.decode() if self._kind == "str" else data


class ListStoreView(_Store):
    """An ordered list of values under the current key. Each has an entry of its own, under a number that rises; the number of
    the first one and the next free one are in the entry without a sub-key, so that no other is read to append one."""

    def append(self, value: Any) -> None:
        """Put `value` behind the last one."""
        self.extend([value])

    def extend(self, values: Iterable[Any]) -> None:
        """Put `values` behind the last one, in their order."""
        first, after = self._bounds()
        for value in values:
            if value is None:
                raise StateError(f"store {self.name!r}: a list holds no None", "append values alone")
            self._database().put(self._layout(time_bytes(after)), self._encoded(value, None))
            after += 1
        self._set_bounds(first, after)

    def get(self, index: int, default: object = None) -> object:
        """The value at an index, from 0 on, or from -1 backwards; `default` where there is none."""
        first, after = self._bounds()
        number = (first if index >= 0 else after) + index
        return self._get(self._layout(time_bytes(number)), default) if first <= number < after else default

    def range(
        self, start: int | None = None, stop: int | None = None, *, reverse: bool = False, limit: int | None = None
    ) -> list[object]:
        """The values at `start` <= index < `stop`, as in a slice; with `reverse` from the last one on; at most `limit`."""
        if limit is not None and limit < 0:
            raise StateError(f"store {self.name!r}: limit={limit}: expected 0 or more")
        first, after = self._bounds()
        low, high, _ = slice(start, stop).indices(after - first)
        if limit is not None and reverse:
            low = max(low, high - limit)
        elif limit is not None:
            high = min(high, low + limit)
        found = list(self._between(first + low, first + high))
        return found[::-1] if reverse else found

    def pop_first(self, default: object = None) -> object:
        """Take the first value out and give it; `default` where the list is empty."""
        value = self.get(0, default)
        self.trim(1)
        return value

    def trim(self, count: int) -> None:
        """Take the first `count` values out, or all where there are fewer."""
        if count < 0:
            raise StateError(f"store {self.name!r}: trim({count}): expected 0 or more")
        first, after = self._bounds()
        start = min(first + count, after)
        for number in range(first, start):
            self._delete(self._layout(time_bytes(number)))
        self._set_bounds(start, after)

    def clear(self) -> None:
        """Take all values of the current key out."""
        self.trim(len(self))

    def __len__(self) -> int:
        first, after = self._bounds()
        return after - first

    def __iter__(self) -> Iterator[object]:
        return self._between(*self._bounds())

    def _between(self, first: int, after: int) -> Iterator[object]:
        low, high = self._layout(time_bytes(first)), self._layout(time_bytes(after))
        entries: Iterable[tuple[bytes, bytes]] = self._database().scan(low, high) if low < high else ()
        return (self._decoded(data) for _, data in entries)

    def _bounds(self) -> tuple[int, int]:
        """The numbers of the first value and behind the last one."""
        data = self._database().get(self._layout(b""))
        return (0, 0) if data is None else (time_from(data[:TIME_BYTES]), time_from(data[TIME_BYTES:]))

    def _set_bounds(self, first: int, after: int) -> None:
        bounds = None if first == after else time_bytes(first) + time_bytes(after)
        self._database().put(self._layout(b""), bounds)


def _bytes(sub: str | bytes) -> bytes:
    return sub.encode() if isinstance(sub, str) else sub


AnyStoreView: TypeAlias = KeyValueStoreView | ListStoreView | MapStoreView | WindowStoreView


def store_view(spec: StoreSpec, context: ProcessorContext) -> AnyStoreView:
    if spec.form.startswith(LIST):
        return ListStoreView(spec, context)
    if spec.form.startswith(MAP):
        return MapStoreView(spec, context)
    return (WindowStoreView if spec.kind is StoreKind.WINDOW else KeyValueStoreView)(spec, context)
