"""`Serde[V]`: a serde and the type of its values, as type checkers see it.

Inside, values have any type: there it is `headrace.model.serde.Serde`, which may name no pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from headrace.model.serde import Failures
from headrace.model.serde import Serde as UntypedSerde

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar  # `typing` has defaults from Python 3.13 on

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    K_co = TypeVar("K_co", covariant=True, default=Any)
    KIn = TypeVar("KIn", default=Any)
    VIn = TypeVar("VIn", default=Any)
    KOut = TypeVar("KOut", default=Any)
    VOut = TypeVar("VOut", default=Any)
else:
    from typing import TypeVar

    K, V, KIn, VIn, KOut, VOut = (TypeVar(name) for name in ("K", "V", "KIn", "VIn", "KOut", "VOut"))
    K_co = TypeVar("K_co", covariant=True)


@runtime_checkable
class Serde(UntypedSerde, Protocol[V]):
    """Turns values of type `V` into bytes and back. None is never passed in: a null key or value has no bytes.

    The plural methods take and return pyarrow arrays, and raise for no value: a failure is (index, exception), and the
    result is null there.
    """

    def encode(self, value: V) -> bytes: ...

    def decode(self, data: bytes) -> V: ...

    def encode_many(self, values: Sequence[V | None]) -> tuple[pa.Array, Failures]:
        """Python values (None for null) to a binary array."""

    def decode_many(self, data: pa.Array) -> tuple[list[V | None], Failures]:
        """A binary array to Python values (None for null)."""

    def encode_arrow(self, values: pa.Array) -> tuple[pa.Array, Failures]:
        """A typed array, as Spark has it for `spark_type`, to a binary array of the same bytes."""

    def decode_arrow(self, data: pa.Array) -> tuple[pa.Array, Failures]:
        """A binary array to a typed array of `spark_type`. Only where `spark_type` is not None."""
