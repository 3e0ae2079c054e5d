"""`Repartitioned`: what a user says about a repartition stream. Seed: KIP-221 "Repartitioned".

It is a value: `with_name` and the like give another one. The seed's constructor `numberOfPartitions` has no twin here,
because in Python the field has that name: write `Repartitioned(number_of_partitions=4)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, overload

from headrace.core.job_plan.growth_rules import PARTITIONS_MAX
from headrace.core.topology.partitioning import PARTITIONER_ARGUMENTS, STREAM_ARGUMENT, TakesStream, takes_stream
from headrace.dsl.stream_cursor import WORKER, checked_function, checked_serde
from headrace.errors import TopologyError
from headrace.model.names import checked_own_name
from headrace.model.serde import Serde
from headrace.model.topology import Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartitioned:
    """How to repartition a stream by its key. Everything is optional.

    `name` names the stream `<application>-<name>-repartition`, and its operators. The serdes are those of the stream where
    not given. `number_of_partitions` is binding in `repartition`, and in a grouping a hint for a stream that does not exist
    yet; without one the stream has as many partitions as those that it is joined or merged with, else as the largest of the
    streams that they come of.

    `partitioner(record, number_of_partitions)` gives the number of a partition, a list of several that take a copy each, an
    empty list to drop the record, or None for the partition of its key; marked `@hr.batch` it is given a batch, and gives an
    array of numbers or of lists. With a parameter `stream`, or a third one, it is given the name of the stream too. Without a
    partitioner a record goes by its key, a windowed one by the key within. State behind it is where the records are.

    >>> Repartitioned(name="by-carrier", number_of_partitions=4).number_of_partitions
    4
    """

    name: str | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    number_of_partitions: int | None = None
    partitioner: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            checked_own_name("repartition", self.name)
        if self.key_serde is not None:
            checked_serde("Repartitioned(key_serde=...)", self.key_serde)
        if self.value_serde is not None:
            checked_serde("Repartitioned(value_serde=...)", self.value_serde)
        checked_partitioner("Repartitioned", self.partitioner)
        count = self.number_of_partitions
        if count is None:
            return
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= PARTITIONS_MAX:
            raise TopologyError(
                f"Repartitioned(number_of_partitions={count!r}): expected a whole number from 1 to {PARTITIONS_MAX:,}",
                "leave it out to inherit the number of the source's partitions",
            )

    @classmethod
    def as_(cls, name: str) -> Self:
        """With a name.

        >>> Repartitioned.as_("by-carrier").name
        'by-carrier'
        """
        return cls(name=checked_own_name("repartition", name))

    @overload
    @classmethod
    def with_(cls, key_serde: Serde | None, value_serde: Serde | None, /) -> Self: ...

    @overload
    @classmethod
    def with_(cls, name: str, number_of_partitions: int, /) -> Self: ...

    @classmethod
    def with_(cls, *given: Any, **named: Any) -> Self:
        """With a key serde and a value serde, or with a name and a number of partitions.

        >>> Repartitioned.with_("by-carrier", 4)
        Repartitioned(name='by-carrier', key_serde=None, value_serde=None, number_of_partitions=4, partitioner=None)
        """
        if len(given) != 2 or named:
            shown = ", ".join([*(f"{value!r:.60}" for value in given), *(f"{name}={named[name]!r:.60}" for name in named)])
            raise TopologyError(
                f"Repartitioned.with_({shown}): expected two arguments, by position",
                "write Repartitioned.with_(key_serde, value_serde) or Repartitioned.with_(name, number_of_partitions); for a "
                "name alone Repartitioned.as_(name), and for anything else Repartitioned(...) with keywords",
            )
        one, other = given
        if isinstance(one, str):
            if other is None or isinstance(other, Serde):
                raise TopologyError(
                    f"Repartitioned.with_({one!r}, {other!r}): a name is given together with a number of partitions",
                    "write Repartitioned.as_(name).with_value_serde(...), or Repartitioned(name=..., value_serde=...)",
                )
            return cls(name=one, number_of_partitions=other)
        if isinstance(other, int):
            raise TopologyError(
                f"Repartitioned.with_({one!r}, {other!r}): a number of partitions is given together with a name",
                "write Repartitioned(number_of_partitions=...) for the number alone",
            )
        return cls(key_serde=one, value_serde=other)

    @classmethod
    def stream_partitioner(cls, partitioner: Callable[..., Any]) -> Self:
        """With a partitioner."""
        return cls(partitioner=partitioner)

    def with_name(self, name: str | None) -> Self:
        """The same with another name; None takes it back, here and below."""
        return replace(self, name=name)

    def with_number_of_partitions(self, number_of_partitions: int | None) -> Self:
        """The same with another number of partitions."""
        return replace(self, number_of_partitions=number_of_partitions)

    def with_key_serde(self, key_serde: Serde | None) -> Self:
        """The same with another key serde."""
        return replace(self, key_serde=key_serde)

    def with_value_serde(self, value_serde: Serde | None) -> Self:
        """The same with another value serde."""
        return replace(self, value_serde=value_serde)

    def with_stream_partitioner(self, partitioner: Callable[..., Any] | None) -> Self:
        """The same with another partitioner."""
        return replace(self, partitioner=partitioner)


def checked_partitioner(operator: str, given: Any) -> Function | None:
    """The function `given` as a partitioner, None for none; `operator` is where it was given."""
    if given is None:
        return None
    text, takes = f"{operator}: partitioner", takes_stream(given) if callable(given) else TakesStream.NO
    if takes is TakesStream.BY_NAME:
        function = checked_function(text, partial(given, stream=""), WORKER, None, PARTITIONER_ARGUMENTS)
        return replace(function, body=given)
    arguments = (*PARTITIONER_ARGUMENTS, STREAM_ARGUMENT) if takes is TakesStream.THIRD else PARTITIONER_ARGUMENTS
    return checked_function(text, given, WORKER, None, arguments)


def checked_options(operator: str, given: Any) -> Repartitioned:
    """`given` if it is a `Repartitioned`; one that says nothing for None."""
    if given is None:
        return Repartitioned()
    if isinstance(given, Repartitioned):
        return given
    raise TopologyError(
        f"{operator}({given!r:.60}): expected hr.Repartitioned(...)",
        f'write .{operator}(..., hr.Repartitioned(name="...", number_of_partitions=4)), all of it optional',
    )
