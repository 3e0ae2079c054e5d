"""Classes as users write them in their application's file, which a worker does not have; `values` makes one of each."""

from __future__ import annotations

import dataclasses
import enum
import typing
from typing import Annotated, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Grade(enum.Enum):
    HIGH = "high"
    LOW = "low"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Item:
    price: int

    def doubled(self) -> Item:
        return Item(self.price * 2)


@dataclasses.dataclass
class Order:
    number: int
    items: list[Item] = dataclasses.field(default_factory=list)
    grade: Grade | None = None
    before: Order | None = None
    kind: typing.ClassVar[str] = "order"


class Opened(msgspec.Struct, frozen=True, tag="opened", rename="camel"):
    of_user: int
    item: Item | None = None
    numbers: list[int] = []
    by_name: dict[str, Opened] = msgspec.field(default_factory=dict)
    limit: typing.ClassVar[int] = 5

    def next(self) -> Opened:
        return Opened(self.of_user + 1)

    @classmethod
    def first(cls) -> Opened:
        return cls(0)

    @property
    def user(self) -> int:
        return self.of_user


class Closed(Opened, tag="closed", kw_only=True):
    left: Annotated[int, msgspec.Meta(ge=0)]
    grade: Grade = Grade.LOW


class Listed(msgspec.Struct, array_like=True, omit_defaults=True, order=True):
    of: Opened | Closed | None = None
    why: str = msgspec.field(name="reason", default="none")


class Counted(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        self.number += 1


class CountedTwice(Counted):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.number += 1


class Pair(msgspec.Struct, Generic[T]):
    one: T
    both: list[T]


class Named(typing.TypedDict):
    item: Item


class NamedMore(Named, total=False):
    number: int


class Two(typing.NamedTuple):
    item: Item
    number: int = 3


KINDS: tuple[typing.Any, ...] = (
    Item, Order, Opened, Closed, Listed, Counted, CountedTwice, Pair[int], Named, NamedMore, Two, Opened | Closed
)  # fmt: skip


def values() -> list[typing.Any]:
    named: Named = {"item": Item(1)}
    more: NamedMore = {"item": Item(1), "number": 2}
    return [
        Item(2).doubled(),
        Order(1, [Item(1)], Grade.HIGH, dataclasses.replace(Order(2), number=3)),
        Opened(1, Item(2), by_name={"a": Opened.first()}).next(),
        Closed(1, left=2),
        Listed(Closed(1, left=3), why="late"),
        Counted(1),
        CountedTwice(1),
        Pair(1, [2]),
        named,
        more,
        Two(Item(1)),
        Opened(Opened(4).user, numbers=[Opened.limit]),
    ]


def facts() -> list[typing.Any]:
    """What else holds for the classes."""
    return [
        Order.kind,
        [field.name for field in dataclasses.fields(Order)],
        dataclasses.asdict(Order(1)),
        Item(1) < Item(2) and Listed(why="a") < Listed(why="b"),
        repr(values()),
        str(CountedTwice.__mro__),
        Opened.__struct_config__.frozen,
    ]
