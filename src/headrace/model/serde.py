"""What a serde is. The serdes that ship are in `headrace.serdes.serdes`; a user may write another.

The plural methods take and give Arrow arrays (of pyarrow, which this layer does not import: hence `Any`). They never
raise for a value: they return `(result, failures)`, where a failure is `(index, exception)` and the result is null there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

Failures = list[tuple[int, Exception]]  # places in the batch, in their order, and why there is nothing there


def of_stream(serde: Any, stream: str, part: str) -> Any:
    """The serde for the `part` (key or value) of a stream: itself, but for one that must know where its bytes go.

    Such a serde has a method `of_stream(stream, part)`; it registers its schema under a name of the stream's.
    """
    bound = getattr(serde, "of_stream", None)
    return serde if bound is None else bound(stream, part)


def routing_key(serde: Any, data: bytes) -> bytes:
    """What chooses the partition of a record whose key is encoded as `data`: of a windowed key the inner key.

    Such a serde has methods `inner_of`, and `inner_many` for arrays.
    """
    inner = getattr(serde, "inner_of", None)
    return data if inner is None else bytes(inner(data))


def routing_keys(serde: Any, data: Any) -> Any:
    """The same of a pyarrow binary array of keys; an error for the first that cannot be a windowed key."""
    inner = getattr(serde, "inner_many", None)
    return data if inner is None else inner(data)


@runtime_checkable
class Serde(Protocol):
    """Turns values into bytes and back. None is never passed in: a null key or value has no bytes."""

    @property
    def form(self) -> str:
        """A short stable text that names the byte format, such as `string` or `json<carrier string>`."""

    @property
    def spark_type(self) -> str | None:
        """The Spark type in DDL, such as `bigint` or `struct<a:int>`; None if values have no one type."""

    def encode(self, value: Any) -> bytes: ...

    def decode(self, data: bytes) -> Any: ...

    def encode_many(self, values: Sequence[Any]) -> tuple[Any, Failures]:
        """Python values (None for null) to a pyarrow binary array."""

    def decode_many(self, data: Any) -> tuple[list[Any], Failures]:
        """A pyarrow binary array to Python values (None for null)."""

    def encode_arrow(self, values: Any) -> tuple[Any, Failures]:
        """A typed pyarrow array, as Spark would give it for `spark_type`, to a pyarrow binary array of the same bytes."""

    def decode_arrow(self, data: Any) -> tuple[Any, Failures]:
        """A pyarrow binary array to a typed pyarrow array of `spark_type`. Only where `spark_type` is not None."""
