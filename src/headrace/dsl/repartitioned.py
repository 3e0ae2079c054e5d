"""Owns `Repartitioned`: what a user says about a repartition stream. Seed: KIP-221 "Repartitioned"."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.dsl.flow import checked_serde
from headrace.errors import TopologyError
from headrace.model.names import checked_own_name
from headrace.model.serde import Serde

PARTITIONS_MAX = 100_000  # a typing error, not a need


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartitioned:
    """How to write a stream anew by its key. Everything is optional.

    `name` names the stream `<application>-<name>-repartition`. The serdes are those of the stream where not given.
    `number_of_partitions` is binding; without one the stream has as many partitions as the largest of its sources.

    >>> Repartitioned(name="by-carrier", number_of_partitions=4).number_of_partitions
    4
    """

    name: str | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    number_of_partitions: int | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            checked_own_name("repartition", self.name)
        if self.key_serde is not None:
            checked_serde("Repartitioned(key_serde=...)", self.key_serde)
        if self.value_serde is not None:
            checked_serde("Repartitioned(value_serde=...)", self.value_serde)
        count = self.number_of_partitions
        if count is None:
            return
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= PARTITIONS_MAX:
            raise TopologyError(
                f"Repartitioned(number_of_partitions={count!r}): expected a whole number from 1 to {PARTITIONS_MAX:,}",
                "leave it out to inherit the number of the source's partitions",
            )
