"""Values of stores as instances of classes: dataclasses and msgspec structs, in every kind of store, inside and outside."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, TypedDict
from uuid import UUID

import msgspec
import pytest

import headrace as hr
from headrace.testing import Driver

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Grade(enum.Enum):
    HIGH = "high"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    price: Decimal | None = None


@dataclass
class Order:
    number: int
    items: list[Item] = field(default_factory=list)
    by: dict[str, int] = field(default_factory=dict)
    grade: Grade = Grade.LOW
    at: datetime | None = None
    id: UUID | None = None


@dataclass
class Named:
    name: str
    length: int = 0


class Reading(msgspec.Struct, frozen=True):
    number: int
    item: Item
    flags: tuple[bool, ...] = ()


class Opened(msgspec.Struct, tag=True):
    number: int


class Closed(msgspec.Struct, tag=True):
    number: int
    why: str = ""


def order(number: int) -> Order:
    items = [Item("tea", Decimal("2.50")), Item("cup")]
    return Order(number, items, {"tea": number}, Grade.HIGH, AT, UUID(int=number))


CASES: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "dataclass": (hr.Json(Order), order),
    "struct": (hr.Json(Reading), lambda number: Reading(number, Item("x"), (True, False))),
    "union": (hr.Json(Opened | Closed), lambda number: Closed(number, "late") if number % 2 else Opened(number)),
    "list": (hr.Json(list[Item]), lambda number: [Item(str(number)), Item("y", Decimal(1))]),
    "dataclass-messagepack": (hr.MessagePack(Order), order),
    "struct-messagepack": (hr.MessagePack(Reading), lambda number: Reading(number, Item("x"))),
    "union-messagepack": (hr.MessagePack(Opened | Closed), lambda number: Closed(number) if number % 2 else Opened(number)),
    "list-messagepack": (hr.MessagePack(list[Item]), lambda number: [Item(str(number))]),
}


def app_of(serde: Any, make: Callable[[int], Any], seen: list[Any], **keys: Any) -> hr.App:
    """Puts a value into each store, for each record, and writes down what the stores give."""
    values = hr.KeyValueStore("values", serde, ttl="1 day")
    by_name, listed = hr.MapStore("by-name", serde), hr.ListStore("listed", serde)
    by_time = hr.WindowStore("by-time", serde)

    class Keeps(hr.Processor):
        stores: ClassVar[Any] = [values, by_name, listed, by_time]

        def process(self, record: hr.Record) -> None:
            stores, number = self.context.store, record.value
            value = make(number)
            stores(values).put(value)
            stores(by_name).put(str(number), value)
            stores(listed).append(value)
            stores(by_time).put(value, record.timestamp_us)
            kept = [stores(values).get(), *stores(listed), *dict(stores(by_name).range()).values()]
            seen.append([*kept, *dict(stores(by_time).range(0, 10**18)).values()])
            self.context.forward(value=stores(listed).get(0))

    app = hr.App("typed", **keys)
    app.stream("in", key=hr.String(), value=hr.Long()).process(Keeps, name="keeps", value=serde).to("out")
    return app


@pytest.mark.parametrize("name", CASES)
def test_values_are_instances_of_their_class(name: str, tmp_path: Path) -> None:
    serde, make = CASES[name]
    seen: list[Any] = []
    places = {"system": f"log:{tmp_path / 'log'}", "state_uri": str(tmp_path / "state")}
    for number in (1, 2):  # the second after a restart
        app = app_of(serde, make, seen, **places)
        with Driver(app, directory=tmp_path) as d:
            d.send("in", "k", number, at=d.now_us + number)
            d.run()
    one, two = make(1), make(2)
    assert seen == [[one] * 4, [two, one, two, one, two, one, two]]
    assert [type(value) for value in seen[1]] == [type(value) for value in (two, one, two, one, two, one, two)]
    assert app.state("values").get("k") == two
    assert app.state("listed").get("k") == [one, two]
    assert app.state("by-name").get("k") == {"1": one, "2": two}
    assert app.state("by-time").get("k") == {d.now_us + 1: one, d.now_us + 2: two}
    table = app.state("listed").to_arrow()
    assert table.column("sub").to_pylist() == [0, 1] and table.num_rows == 2


def test_a_value_that_is_changed_is_kept_when_it_is_put() -> None:
    """What a store gives is a copy: it holds what was put."""
    store = hr.KeyValueStore("orders", hr.Json(Order))
    seen: list[Any] = []

    class Adds(hr.Processor):
        stores: ClassVar[Any] = [store]

        def process(self, record: hr.Record) -> None:
            kept = self.context.store(store)
            found = kept.get() or Order(0)
            found.items.append(Item(record.value))
            again = kept.get()
            seen.append(None if again is None else len(again.items))
            kept.put(replace(found, number=found.number + 1))

    app = hr.App("typed")
    app.stream("in", key=hr.String(), value=hr.String()).process(Adds, name="adds", value=hr.String()).to("out")
    with Driver(app) as d:
        for value in "abc":
            d.send("in", "k", value)
        d.run()
        assert d.store("orders").get("k") == Order(3, [Item("a"), Item("b"), Item("c")])
    assert seen == [None, 1, 2]


def test_what_is_no_such_value_is_an_error_of_its_record() -> None:
    app = app_of(hr.Json(Order), lambda number: {"numbr": number}, [])
    with Driver(app) as d:
        d.send("in", "k", 1)
        with pytest.raises(hr.RecordError, match="number"):
            d.run()


@pytest.mark.parametrize(("given", "hint"), [(Order, r"write hr.Json\(Order\)"), (Reading, r"write hr.Json\(Reading\)")])
def test_a_class_in_place_of_its_serde_is_refused(given: Any, hint: str) -> None:
    with pytest.raises(hr.TopologyError, match="a class where a serde is expected") as caught:
        hr.ListStore("l", given)
    assert caught.match(hint)


@pytest.mark.spark
def test_through_spark() -> None:
    """The fields of a class are those of a Spark expression; stores hold its instances. Classes travel with the program, also a
    TypedDict, and dataclasses within others."""

    class Kept(TypedDict):
        named: Named
        orders: list[Order]

    store = hr.ListStore("readings", hr.Json(Reading))
    whole = hr.KeyValueStore("whole", hr.Json(Kept))

    class Keeps(hr.Processor):
        stores: ClassVar[Any] = [store, whole]

        def process(self, record: hr.Record) -> None:
            kept = self.context.store(store)
            self.context.store(whole).put({"named": Named("n"), "orders": [order(record.value)]})
            kept.append(Reading(record.value, Item("x")))
            self.context.forward(value=[one.number for one in kept])

    app = hr.App("typed")
    read = app.stream("in", key=hr.String(), value=hr.Json(Named)).filter("value.name <> 'none'")
    read.map_values("length(value.name)").process(Keeps, name="keeps", value=hr.Json()).to("out")
    with Driver(app) as d:
        for name in ("a", "none", "ccc"):
            d.send("in", "k", Named(name))
        d.run()
        assert [record.value for record in d.read("out")] == [[1], [1, 3]]
        assert d.store("whole").get("k") == {"named": Named("n"), "orders": [order(3)]}
        assert d.store("readings").get("k", sub=1) == Reading(3, Item("x"))
