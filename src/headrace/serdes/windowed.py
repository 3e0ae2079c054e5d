"""The keys of windows: `WindowedKey`, and `Windowed`, their bytes.

Bytes: those of the inner key, then start and end in µs since 1970, 8 bytes each with a sign, most significant first.
Windowed keys are partitioned by their inner key, so that all windows of a key stay together: hence `inner_many`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime
from functools import total_ordering
from typing import Any, Generic

from headrace.errors import SerdeError
from headrace.model.durations import datetime_of, time_text, time_us
from headrace.model.serde import Failures
from headrace.serdes.binary_arrays import as_array, as_binary, nulled, offsets_of, unpacked, valid_of
from headrace.serdes.deferred import np, pa
from headrace.serdes.scalars import encoded_each, shown
from headrace.serdes.typed import K, Serde

_TIMES = struct.Struct(">qq")
TIMES_BYTES = _TIMES.size


@total_ordering
class WindowedKey(Generic[K]):
    """A key and the window [start, end), or session [start, end], of a result. A value: it cannot be changed, and has an order.

    `start` and `end` are given as aware datetimes or as µs since 1970, and are read as `start`, `end` (aware datetimes
    in UTC, made at each access) or `start_us`, `end_us` (ints). Of a session they are the times of its first and its last
    record, and both are in it.
    """

    __slots__ = ("_parts",)

    _parts: tuple[K, int, int]

    def __init__(self, key: K, start: datetime | int | str, end: datetime | int | str) -> None:
        start_us = start if type(start) is int else time_us(start, "start of a window")
        end_us = end if type(end) is int else time_us(end, "end of a window")
        _set_parts(self, (key, start_us, end_us))

    @property
    def key(self) -> K:
        return self._parts[0]

    @property
    def start_us(self) -> int:
        return self._parts[1]

    @property
    def end_us(self) -> int:
        return self._parts[2]

    @property
    def start(self) -> datetime:
        return datetime_of(self.start_us)

    @property
    def end(self) -> datetime:
        return datetime_of(self.end_us)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a WindowedKey cannot be changed: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a WindowedKey cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return self._parts == other._parts if isinstance(other, WindowedKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._parts)

    def __lt__(self, other: WindowedKey) -> bool:
        return self._parts < other._parts if isinstance(other, WindowedKey) else NotImplemented

    def __reduce__(self) -> tuple[Any, ...]:
        return (WindowedKey, self._parts)

    def __repr__(self) -> str:
        return f"WindowedKey({self.key!r}, {time_text(self.start_us)!r}, {time_text(self.end_us)!r})"


_set_parts = WindowedKey.__dict__["_parts"].__set__  # the slot's own: `object.__setattr__` takes twice as long
_new = WindowedKey.__new__


def _key_of(parts: tuple[Any, int, int]) -> WindowedKey:
    """A key of parts that are known to be right, four times as fast as by its constructor."""
    key = _new(WindowedKey)
    _set_parts(key, parts)
    return key


class Windowed(Generic[K]):
    """The serde of `WindowedKey`s whose own keys `inner` encodes."""

    __slots__ = ("inner",)

    def __init__(self, inner: Serde[K]) -> None:
        if not isinstance(inner, Serde) or isinstance(inner, type):
            raise SerdeError(f"Windowed: expected the serde of the key, found {inner!r}", "for example Windowed(String())")
        self.inner = inner

    @property
    def form(self) -> str:
        return f"windowed<{self.inner.form}>"

    @property
    def spark_type(self) -> str | None:
        key = self.inner.spark_type
        return None if key is None else f"struct<key:{key},start:timestamp,end:timestamp>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Windowed) and self.inner == other.inner

    def __hash__(self) -> int:
        return hash((Windowed, self.inner))

    def __repr__(self) -> str:
        return f"Windowed({self.inner!r})"

    def encode(self, value: WindowedKey[K]) -> bytes:
        if not isinstance(value, WindowedKey):
            raise SerdeError(
                f"{self.form}: expected a WindowedKey, found {type(value).__name__} {shown(value)}",
                "make one: hr.WindowedKey(key, start, end)",
            )
        try:
            return self.inner.encode(value.key) + _TIMES.pack(value.start_us, value.end_us)
        except struct.error:
            raise SerdeError(
                f"{self.form}: the times of {value!r} do not fit into 64 bits",
                "give times in µs since 1970",
            ) from None

    def decode(self, data: bytes) -> WindowedKey[K]:
        return WindowedKey(self.inner.decode(self.inner_of(data)), *_TIMES.unpack(data[-TIMES_BYTES:]))

    def inner_of(self, data: bytes) -> bytes:
        """The bytes of the inner key: what a windowed key is partitioned by."""
        if len(data) < TIMES_BYTES:
            raise self._too_short(data)
        return data[:-TIMES_BYTES]

    def _too_short(self, data: bytes) -> SerdeError:
        return SerdeError(
            f"{self.form}: expected the key and {TIMES_BYTES} bytes of times, found {len(data)} bytes: {shown(data)}",
            "the stream may hold plain keys, not windowed ones",
        )

    def encode_many(self, values: Sequence[Any]) -> tuple[pa.Array, Failures]:
        try:
            parts = [(None, 0, 0) if value is None else value._parts for value in values]
            starts, ends = (np.array([part[at] for part in parts], dtype=np.int64) for at in (1, 2))
            inner, failures = self.inner.encode_many([part[0] for part in parts])
            if not failures and None not in {type(value) for value in values} and inner.null_count == values.count(None):
                return self.encode_parts(inner, starts, ends), []
        except (AttributeError, OverflowError):
            pass  # something that is no WindowedKey, or a time beyond 64 bits
        return encoded_each(self.encode, values)

    def decode_many(self, data: pa.Array) -> tuple[list[WindowedKey[K] | None], Failures]:
        inner, starts, ends, failures = self._parts_of(data)
        keys, more = self.inner.decode_many(inner)
        values: list[Any] = [_key_of(parts) for parts in zip(keys, starts.tolist(), ends.tolist(), strict=True)]
        absent = [index for index, missing in enumerate(inner.is_null().to_pylist()) if missing] if inner.null_count else []
        for index in [*absent, *(index for index, _ in more)]:
            values[index] = None
        return values, sorted(failures + more, key=lambda failure: failure[0])

    def encode_parts(self, inner: pa.Array, starts: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> pa.Array:
        """The bytes of windowed keys from those of their inner keys and times in µs; null where `inner` is null."""
        times = np.empty((len(inner), 2), dtype=">i8")
        times[:, 0], times[:, 1] = starts, ends
        fixed = pa.Array.from_buffers(pa.binary(TIMES_BYTES), len(inner), [None, pa.py_buffer(times.tobytes())])
        return pa.compute.binary_join_element_wise(inner, fixed.cast(pa.binary()), b"")

    def inner_many(self, data: pa.Array) -> pa.Array:
        """The bytes of the inner keys; raises `SerdeError` for the first value that is too short."""
        inner, _, _, failures = self._parts_of(data)
        if failures:
            raise failures[0][1]
        return inner

    def _parts_of(self, data: pa.Array) -> tuple[pa.Array, np.ndarray[Any, Any], np.ndarray[Any, Any], Failures]:
        """The bytes of the inner keys (null where something is wrong), starts and ends in µs, and what is wrong."""
        data = as_binary(data)
        valid = valid_of(data)
        short = valid & (np.diff(offsets_of(data)) < TIMES_BYTES)
        failures: Failures = [(int(index), self._too_short(data[int(index)].as_py())) for index in short.nonzero()[0]]
        absent = short | ~valid
        if absent.any():  # pyarrow miscounts the bytes of nulls in some slices
            data = pa.compute.if_else(pa.array(absent), pa.scalar(bytes(TIMES_BYTES), pa.binary()), data)
        inner = pa.compute.binary_slice(data, 0, -TIMES_BYTES)
        times = pa.compute.binary_slice(data, -TIMES_BYTES)
        starts = unpacked(pa.compute.binary_slice(times, 0, 8), ">i8")[0]
        ends = unpacked(pa.compute.binary_slice(times, 8, TIMES_BYTES), ">i8")[0]
        if absent.any():
            inner = nulled(inner, absent.nonzero()[0])
        return inner, starts, ends, failures

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        values = as_array(values)
        if not pa.types.is_struct(values.type) or [field.name for field in values.type] != ["key", "start", "end"]:
            raise SerdeError(f"{self.form}: expected an array of {self.spark_type}, found {values.type}")
        key, start, end = values.flatten()
        inner, failures = self.inner.encode_arrow(key)
        micros = [time.cast(pa.timestamp("us", "UTC")).cast(pa.int64()) for time in (start, end)]
        starts, ends = (time.fill_null(0).to_numpy() for time in micros)
        missing = pa.compute.or_(micros[0].is_null(), micros[1].is_null())
        inner = pa.compute.if_else(missing, pa.scalar(None, pa.binary()), inner)
        return self.encode_parts(inner, starts, ends), failures

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        inner, starts, ends, failures = self._parts_of(data)
        keys, more = self.inner.decode_arrow(inner)
        missing = np.array(inner.is_null().to_numpy(zero_copy_only=False))
        missing[[index for index, _ in more]] = True
        time = pa.timestamp("us", "UTC")
        columns = [keys, pa.array(starts).cast(time), pa.array(ends).cast(time)]
        mask = pa.array(missing) if missing.any() else None
        array = pa.StructArray.from_arrays(columns, ["key", "start", "end"], mask=mask)
        return array, sorted(failures + more, key=lambda failure: failure[0])
