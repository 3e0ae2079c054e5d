"""`Rows`: a batch of records on its way through a task's operators, in whatever form it is cheapest to keep.

A key or value may exist as bytes (as read or to be written), as a typed Arrow array (as Spark gave it, or for vectorised
work) and as Python objects (for record functions). Each form is made at its first use and kept. Rows also carry where
they came from (`ssp`, `offset`), so that a failure names its record, and their `rank`, the order in which the task takes
them, so that a merge restores it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.codec.record_batches import HEADERS_TYPE, header_tuples
from headrace.errors import SerdeError
from headrace.model.serde import Failures, Serde
from headrace.record import Record
from headrace.serdes.serdes import has_arrows_values


class Field:
    """The keys or the values of some rows. At least one of `raw`, `typed` and `objects` is present."""

    __slots__ = ("_objects", "raw", "serde", "typed")

    def __init__(self, serde: Serde | None, raw: Any = None, typed: Any = None, objects: list[Any] | None = None) -> None:
        self.serde, self.raw, self.typed, self._objects = serde, raw, typed, objects

    def __len__(self) -> int:
        return len(next(form for form in (self.raw, self.typed, self._objects) if form is not None))

    @property
    def only_raw(self) -> bool:
        """Nothing but the bytes has been made so far."""
        return self.raw is not None and self.typed is None and self._objects is None

    def objects(self) -> tuple[list[Any], Failures]:
        """Python values; at a failure the value is None."""
        if self._objects is None:
            if self.typed is not None and has_arrows_values(self.serde):
                self._objects = self.typed.to_pylist()
            else:
                raw, failures = self.bytes()
                objects, failures = ([None] * len(self), failures) if failures else _serde(self).decode_many(raw)
                if failures:
                    return objects, failures
                self._objects = objects
        return self._objects, []

    def arrow(self) -> tuple[Any, Failures]:
        """A typed Arrow array, of the serde's Spark type where it has one, else inferred from the values."""
        if self.typed is None:
            has_type = self.serde is not None and self.serde.spark_type is not None
            given, failures = self.bytes() if has_type else self.objects()
            if failures:
                return None, failures
            typed, failures = _serde(self).decode_arrow(given) if has_type else _inferred(given)
            if failures:
                return typed, failures
            self.typed = typed
        return self.typed, []

    def bytes(self) -> tuple[Any, Failures]:
        """A binary array of the encoded values."""
        if self.raw is None:
            if self.typed is not None:
                try:
                    raw, failures = _serde(self).encode_arrow(self.typed)
                except SerdeError as error:  # the whole array is of a kind that the serde does not take
                    raw, failures = pa.nulls(len(self), pa.binary()), [(i, error) for i in range(len(self))]
            else:
                raw, failures = _serde(self).encode_many(self._objects or [])
            if failures:
                return raw, failures
            self.raw = raw
        return self.raw, []

    def of_serde(self, serde: Serde) -> Field:
        """The same values to be written by another serde."""
        if self.serde is not None and self.serde.form == serde.form:
            if serde is self.serde or self.raw is not None:
                return self
            if self.serde.spark_type == serde.spark_type:  # of one form, and yet registered elsewhere
                return Field(serde, None, self.typed, self._objects)
        if self.typed is not None and self._objects is None and self.serde is None:
            return Field(serde, typed=self.typed)
        objects, _ = self.objects()
        return Field(serde, objects=objects)

    def is_null(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        form = self.raw if self.raw is not None else self.typed
        if form is not None:
            if not form.null_count:
                return np.zeros(len(form), bool)
            return np.asarray(form.is_null().to_numpy(zero_copy_only=False), bool)
        assert self._objects is not None
        return np.fromiter((value is None for value in self._objects), bool, len(self._objects))

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays; Python objects are not counted."""
        return sum(form.nbytes for form in (self.raw, self.typed) if form is not None)

    def slice(self, start: int, stop: int) -> Field:
        """Those from `start` to before `stop`; arrays are not copied."""
        return Field(
            self.serde,
            None if self.raw is None else self.raw.slice(start, stop - start),
            None if self.typed is None else self.typed.slice(start, stop - start),
            None if self._objects is None else self._objects[start:stop],
        )

    def take(self, indices: np.ndarray[Any, Any]) -> Field:
        arrow_indices = None if self.raw is None and self.typed is None else pa.array(indices)
        return Field(
            self.serde,
            None if self.raw is None else self.raw.take(arrow_indices),
            None if self.typed is None else self.typed.take(arrow_indices),
            None if self._objects is None else [self._objects[i] for i in indices.tolist()],
        )

    @classmethod
    def concat(cls, fields: Sequence[Field]) -> Field:
        first = fields[0]
        if len(fields) == 1:
            return first
        if all(field.raw is not None for field in fields):
            return cls(first.serde, raw=pa.concat_arrays([flat(field.raw) for field in fields]))
        if all(field.typed is not None for field in fields) and len({str(field.typed.type) for field in fields}) == 1:
            return cls(first.serde, typed=pa.concat_arrays([flat(field.typed) for field in fields]))
        return cls(first.serde, objects=[value for field in fields for value in field.objects()[0]])


def _inferred(objects: list[Any]) -> tuple[Any, Failures]:
    """The values as an Arrow array of the type that they have in common; those that do not fit the first are failures."""
    try:
        return pa.array(objects), []
    except (pa.ArrowException, OverflowError):
        first = next(value for value in objects if value is not None)
    failures: Failures = []
    for i, value in enumerate(objects):
        try:
            pa.array([first, value])
        except (pa.ArrowException, OverflowError) as error:
            failures.append((i, TypeError(f"a batch needs values of one type: {error}")))
    # Values that fit the first one, but not each other: give them one by one to callers that need to know which.
    return None, failures or [(i, TypeError("the values of a batch have no type in common")) for i in range(len(objects))]


def flat(array: Any) -> Any:
    """A column in one piece."""
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def order_of(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """What sorts integers from 0 to before 2 ** 32; equal ones keep their order. numpy sorts 16 bits by counting, in a tenth
    of the time of more.

    >>> order_of(np.array([70_000, 3, 70_000, 0])).tolist()
    [3, 1, 0, 2]
    """
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    if len(numbers) and int(numbers.max()) >> 16:
        order = order[np.argsort((numbers >> 16)[order].astype(np.uint16), kind="stable")]
    return order


def _serde(field: Field) -> Serde:
    assert field.serde is not None, "these values have no serde; building the topology must have refused this"
    return field.serde


@dataclass(slots=True, eq=False)
class Rows:
    """Some records of one task. All arrays have one length. `ssp`: index into the container's table of SSPs; `offset`,
    `timestamp_us`, `rank`: int64; `headers`: an Arrow array of `HEADERS_TYPE` or None for no headers at all. `own_us`: the
    records' own times, where the engine gave them others; `low`: the low bits of the hashes of their keys as they were read
    (`batch_keys.key_lows`), where expressions may have changed the keys. Only the container that takes the rows looks at these
    two."""

    ssp: Any
    offset: Any
    timestamp_us: Any
    key: Field
    value: Field
    headers: Any = None
    rank: Any = None
    own_us: Any = None
    low: Any = None

    def __len__(self) -> int:
        return len(self.offset)

    def take(self, indices: np.ndarray[Any, Any]) -> Rows:
        if len(indices) == len(self) and (len(indices) == 0 or bool((np.diff(indices) == 1).all()) and indices[0] == 0):
            return self
        return Rows(
            self.ssp[indices],
            self.offset[indices],
            self.timestamp_us[indices],
            self.key.take(indices),
            self.value.take(indices),
            None if self.headers is None else self.headers.take(pa.array(indices)),
            None if self.rank is None else self.rank[indices],
            None if self.own_us is None else self.own_us[indices],
        )

    @property
    def nbytes(self) -> int:
        """The bytes of keys, values and headers, as far as they are in arrays."""
        return self.key.nbytes + self.value.nbytes + (0 if self.headers is None else self.headers.nbytes)

    def slice(self, start: int, stop: int) -> Rows:
        """The rows from `start` to before `stop`, all that is known of them included; arrays are not copied."""
        columns = (self.ssp, self.offset, self.timestamp_us, self.headers, self.rank, self.own_us, self.low)
        ssp, offset, timestamp_us, headers, rank, own_us, low = (
            None if column is None else column[start:stop] for column in columns
        )
        key, value = self.key.slice(start, stop), self.value.slice(start, stop)
        return Rows(ssp, offset, timestamp_us, key, value, headers, rank, own_us, low)

    def where(self, mask: np.ndarray[Any, Any]) -> Rows:
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def with_distinct_keys(self) -> Iterator[Rows]:
        """The rows in their order, in parts in which no key occurs twice."""
        start, seen = 0, set[bytes]()
        for at, key in enumerate(self.key.bytes()[0].to_pylist()):
            if key in seen:
                yield self.slice(start, at)
                start, seen = at, set()
            if key is not None:
                seen.add(key)
        yield self.slice(start, len(self))

    def without(self, positions: Sequence[int]) -> Rows:
        mask = np.ones(len(self), bool)
        mask[list(positions)] = False
        return self.where(mask)

    def numbered(self) -> Rows:
        """The same rows with their own numbers as rank: what is left of them then says which ones these are."""
        return replace(self, rank=np.arange(len(self)))

    def records(self, streams: Sequence[tuple[str, int]]) -> list[Record]:
        """One `Record` each; keys and values must decode (ask `Field.objects` first). `streams`: SSP to (stream, partition)."""
        keys, values = self.key.objects()[0], self.value.objects()[0]
        headers = [()] * len(self) if self.headers is None else header_tuples(self.headers)
        names = [streams[i] for i in self.ssp.tolist()]
        rows = zip(keys, values, self.timestamp_us.tolist(), headers, self.offset.tolist(), names, strict=True)
        return [Record(key, value, time, own, where[1], offset, where[0]) for key, value, time, own, offset, where in rows]

    @classmethod
    def concat(cls, batches: Sequence[Rows]) -> Rows:
        if len(batches) == 1:
            return batches[0]
        headers = None
        if any(batch.headers is not None for batch in batches):
            headers = pa.concat_arrays(
                [flat(b.headers) if b.headers is not None else pa.nulls(len(b), HEADERS_TYPE) for b in batches]
            )
        own = [batch.own_us for batch in batches], [batch.low for batch in batches]
        return cls(
            np.concatenate([batch.ssp for batch in batches]),
            np.concatenate([batch.offset for batch in batches]),
            np.concatenate([batch.timestamp_us for batch in batches]),
            Field.concat([batch.key for batch in batches]),
            Field.concat([batch.value for batch in batches]),
            headers,
            np.concatenate([batch.rank for batch in batches]) if batches[0].rank is not None else None,
            *(None if any(part is None for part in parts) else np.concatenate(parts) for parts in own),
        )
