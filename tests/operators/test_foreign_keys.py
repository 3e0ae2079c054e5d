"""Joins of tables by foreign keys: many rows of the left table with one of the right one, each in a task of its own."""

from __future__ import annotations

import os
from collections import defaultdict
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.testing import Driver

HISTORIES = int(os.environ.get("HEADRACE_TEST_HISTORIES", "24"))  # `make soak` sets more
PEOPLE, CITIES = "abcd", "XYZ"


def city_of(record: hr.Record) -> str | None:
    return record.value["city"]


def pair(left: dict[str, Any], right: Any) -> dict[str, Any]:
    return {"left": left["id"], "right": None if right is None else right["id"]}


def app_of(kind: str, emit: str = "each", **keys: Any) -> hr.App:
    app = hr.App("foreign", **keys)
    people = app.table("people", key=hr.String(), value=hr.Json())
    cities = app.table("cities", key=hr.String(), value=hr.Json())
    method = {"inner": people.join, "left": people.left_join}[kind]
    method(cities, pair, foreign_key=city_of, value=hr.Json(), store="j").to_stream(emit=emit).to("out")
    return app


def row(number: int, city: str | None = None) -> dict[str, Any]:
    return {"id": number, "city": city}


def values(driver: Driver) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for record in driver.read("out"):
        found[record.key].append(record.value)
    return dict(found)


class History:
    """What was sent to both tables, in this order, and what may come of it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.people: dict[str, list[Any]] = {key: [None] for key in PEOPLE}  # all values that each had
        self.cities: dict[str, list[Any]] = {key: [None] for key in CITIES}

    def result(self, person: Any, city: Any) -> Any:
        if person is None or (city is None and self.kind == "inner"):
            return None
        return pair(person, city)

    def final(self) -> dict[str, Any]:
        found = {}
        for key, had in self.people.items():
            city = None if had[-1] is None or had[-1]["city"] is None else self.cities[had[-1]["city"]][-1]
            result = self.result(had[-1], city)
            if result is not None:
                found[key] = result
        return found

    def check_order(self, key: str, updates: list[Any]) -> None:
        """Each update is one of some value that the person had and one that its city had; neither goes back. A deletion is one
        of a person without a result, and may stand for many."""
        at = 0, 0  # which value of the person, and of its city
        for update in updates:
            possible = [
                (number, place)
                for number, person in enumerate(self.people[key])
                for place, city in self._cities_of(person)
                if self.result(person, city) == update and (number, place if number == at[0] else at[1]) >= at
            ]
            assert possible, f"{key}: {update} after value {at} of {self.people[key]}, in {updates}"
            at = min(possible)

    def _cities_of(self, person: Any) -> list[tuple[int, Any]]:
        if person is None or person["city"] is None:
            return [(0, None)]
        return list(enumerate(self.cities[person["city"]]))


def history_of(draw: Random, kind: str) -> None:
    """Random changes, each perhaps followed by some rounds, in which partitions get on at different speeds."""
    keys = {"max_records_per_round": draw.choice([1, 2, 1000]), "elasticity_factor": draw.choice([1, 1, 4])}
    history, emit = History(kind), draw.choice(["each", "each", "round"])
    counts = {"people": draw.randint(1, 3), "cities": draw.randint(1, 3)}
    with Driver(app_of(kind, emit, **keys), partitions=counts) as d:
        for number in range(draw.randint(5, 40)):
            if draw.random() < 0.6:
                key = draw.choice(PEOPLE)
                value = None if draw.random() < 0.2 else row(number, draw.choice([None, *CITIES, *CITIES]))
                history.people[key].append(value)
                d.send("people", key, value)
            else:
                key = draw.choice(CITIES)
                value = None if draw.random() < 0.3 else row(number)
                history.cities[key].append(value)
                d.send("cities", key, value)
            if draw.random() < 0.1:
                d.run()
            if draw.random() < 0.03:
                d.elasticity(draw.choice([1, 2, 4]))
        d.run()
        assert d.store("j").all() == history.final()
        updates = values(d)
        for key, given in updates.items():
            assert given[-1] == history.final().get(key), key
            if emit == "each":
                history.check_order(key, given)
        assert set(history.final()) <= set(updates)


@pytest.mark.search
@pytest.mark.timeout(3_600 if HISTORIES > 100 else 300)
@pytest.mark.parametrize("kind", ["inner", "left"])
def test_results_follow_both_sides_in_random_histories(kind: str) -> None:
    """The end is the join of what both tables are in the end, and on the way no older result follows a newer one."""
    for seed in range(HISTORIES // 2):
        try:
            history_of(Random(f"{kind} {seed}"), kind)
        except BaseException as error:
            error.add_note(f"history {seed} of {kind}")
            raise


@pytest.mark.parametrize(("kind", "expected"), [("inner", [None]), ("left", [{"left": 5, "right": None}])])
def test_the_row_without_a_foreign_key(kind: str, expected: list[Any]) -> None:
    with Driver(app_of(kind)) as d:
        d.send("cities", "X", row(1))
        d.send("people", "a", row(2, "X"))
        d.run()
        d.send("people", "a", row(5))
        d.send("people", "b", row(6))
        d.run()
        found = values(d)
        assert found["a"][-2:] == [{"left": 2, "right": 1}, *expected]
        assert found.get("b", []) == ([{"left": 6, "right": None}] if kind == "left" else [])


def test_a_row_that_never_had_a_result_gives_no_deletion() -> None:
    with Driver(app_of("inner")) as d:
        for person in (row(1, "X"), row(2, "Y"), row(3), None):
            d.send("people", "a", person)
            d.run()
        assert values(d) == {}


def test_nothing_is_kept_of_rows_that_are_gone() -> None:
    """Once the watermark says that no older result can come; and while one can, it is dropped."""
    with Driver(app_of("left"), partitions={"people": 1, "cities": 1}) as d:
        for second, person in enumerate([row(1, "X"), row(2, "Y"), None, row(3), None]):
            d.send("people", "a", person, at=second * 1_000_000)
            d.send("cities", "X", row(10 + second), at=second * 1_000_000)
            d.run()
        assert d.store("j").all() == {}
        for second in (100, 200, 300):
            d.send("people", "z", row(4, "X"), at=second * 1_000_000)
            d.send("cities", "Z", row(5), at=second * 1_000_000)
            d.run()
        assert set(d.store("j").all()) == {"z"}
        for store in ("j-sent", "j-deleted"):
            assert set(d.store(store).all()) <= {"z"}, store
        assert len(d.store("j-rows").all()) == 1


def test_the_joiner_is_given_the_key_of_the_left_row() -> None:
    app = hr.App("foreign")
    people = app.table("people", key=hr.String(), value=hr.Json())
    cities = app.table("cities", key=hr.Long(), value=hr.String())

    @hr.batch
    def joined(batch: pa.RecordBatch) -> pa.Array:
        rows = zip(*(batch.column(name).to_pylist() for name in ("key", "left", "right")), strict=True)
        return pa.array([f"{key} {left['id']} {right}" for key, left, right in rows])

    by = {"foreign_key": lambda r: r.value["city"], "value": hr.String()}
    people.join(cities, lambda key, left, right: f"{key} {left['id']} {right}", store="one", **by)
    people.join(cities, joined, store="batch", **by)
    with Driver(app) as d:
        d.send("cities", 7, "seven")
        d.send("people", "a", {"id": 1, "city": 7})
        d.run()
        assert d.store("one").all() == d.store("batch").all() == {"a": "a 1 seven"}


def test_a_table_is_joined_with_itself() -> None:
    app = hr.App("foreign")
    people = app.table("people", key=hr.String(), value=hr.Json())
    people.left_join(people, pair, foreign_key=lambda r: r.value["boss"], value=hr.Json(), store="j")
    with Driver(app, partitions={"people": 2}) as d:
        d.send("people", "a", {"id": 1, "boss": None})
        d.send("people", "b", {"id": 2, "boss": "a"})
        d.send("people", "c", {"id": 3, "boss": "b"})
        d.run()
        found = {"a": (1, None), "b": (2, 1), "c": (3, 2)}
        assert d.store("j").all() == {key: {"left": left, "right": right} for key, (left, right) in found.items()}


@pytest.mark.parametrize("emit", ["each", "round"])
def test_the_time_of_a_deleted_right_row_is_that_of_no_result(emit: str) -> None:
    """The left row comes after it, in the same round."""
    app = app_of("left", emit)
    with Driver(app, partitions=1) as d:
        d.send("cities", "X", row(1), at=1_000_000)
        d.send("people", "a", row(2, "Y"), at=1_000_000)
        d.run()
        d.send("cities", "X", None, at=7_000_000)
        d.send("people", "b", row(3, "X"), at=9_000_000)
        d.send("people", "a", row(2, "X"), at=4_000_000)
        d.run()
        assert [r.timestamp_us for r in d.read("out") if r.key == "a"][-1] == 4_000_000


def test_what_the_joiner_cannot_join_leaves_the_result_as_it_was() -> None:
    app = hr.App("foreign", dead_letter_stream="dead")
    people = app.table("people", key=hr.String(), value=hr.Json())
    cities = app.table("cities", key=hr.String(), value=hr.Long())
    people.join(cities, lambda left, right: 10 // right, foreign_key=city_of, value=hr.Long(), store="j")
    with Driver(app) as d:
        d.send("people", "a", row(1, "X"))
        for number in (5, 0, 2):
            d.send("cities", "X", number)
            d.run()
        assert d.store("j").all() == {"a": 5}
        assert len(list(d.read("dead"))) == 1


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda people, cities, app: people.join(cities, pair, foreign_key="value.city"), "left Spark.s engine"),
        (lambda people, cities, app: people.join(cities, lambda one, other: one, foreign_key=city_of), "value=hr.Json"),
        (lambda people, cities, app: people.join(app.stream("s"), pair, foreign_key=city_of), "expected a table"),
    ],
)
def test_what_cannot_be_joined_is_refused(build: Any, text: str) -> None:
    app = hr.App("foreign")
    people = app.table("people", key=hr.String(), value=hr.Json())
    cities = app.table("cities", key=hr.String(), value=hr.Json())
    with pytest.raises(hr.TopologyError, match=text):
        build(people, cities, app)


def test_a_row_whose_value_has_no_bytes_follows_the_other_side_too() -> None:
    app = hr.App("empty")
    rows, places = (app.table(name, key=hr.String(), value=hr.String()) for name in ("rows", "places"))
    joined = rows.join(places, lambda row, place: [row, place], foreign_key=lambda r: "p", value=hr.Json())
    joined.to_stream().to("out")
    with Driver(app) as d:
        d.send("rows", "k", "")
        d.send("places", "p", "first")
        d.run()
        d.send("places", "p", "second")
        d.run()
        assert [record.value for record in d.read("out")][-1] == ["", "second"]
