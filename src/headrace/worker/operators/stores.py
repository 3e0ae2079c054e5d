"""What a `Processor` sees of its state: key-value and window stores, scoped to the current record's key. The routing key is the
first part of every entry's key, so that state is found again after any split or merge; there is no scan over keys on
purpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.core.keys.key_layout import TIME_BYTES, split_state_key, state_key, time_bytes, time_from
from headrace.errors import StateError, TopologyError
from headrace.model.topology import StoreKind, StoreSpec
from headrace.worker.batch_keys import state_keys
from headrace.worker.operators.expiry import expire, forget_expiry

if TYPE_CHECKING:
    from headrace.worker.operators.process import ProcessorContext

SUB_KEY_BYTES_MAX = 64


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
            raise StateError(
                f"store {self.name!r}: the current record has a null key, and a null key has no state",
                "filter such records out before this operator, or give them a key",
            )
        return key

    def _layout(self, sub: bytes) -> bytes:
        if len(sub) > SUB_KEY_BYTES_MAX:
            raise StateError(f"store {self.name!r}: a sub-key of {len(sub)} bytes, at most {SUB_KEY_BYTES_MAX} are allowed")
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


def _bytes(sub: str | bytes) -> bytes:
    return sub.encode() if isinstance(sub, str) else sub


def store_view(spec: StoreSpec, context: ProcessorContext) -> KeyValueStoreView | WindowStoreView:
    return (WindowStoreView if spec.kind is StoreKind.WINDOW else KeyValueStoreView)(spec, context)
