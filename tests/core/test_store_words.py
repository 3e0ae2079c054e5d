"""What an edit changed of a store, in words: for every two kinds of stores something, and nothing of how forms are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.core.topology.compatibility import store_forms
from headrace.core.topology.store_forms import changes_of, parts_of

VALUE = "item string, price double, number int"
Make = Callable[[Any], object]


def form_of(make: Make) -> str:
    app = hr.App("words")
    make(app.stream("in", key=hr.String(), value=hr.Json(VALUE)))
    (form,) = store_forms(app.topology()).values()
    return form.partition("|")[2]


def windowed(windows: Any) -> Make:
    return lambda s: s.group_by_key().windowed_by(windows).count(store="n")


class Holder(hr.Processor[str, Any, str, Any]):
    stores = (hr.KeyValueStore("n", value=hr.Long()),)

    def process(self, record: hr.Record) -> None: ...


class Expiring(Holder):
    stores = (hr.KeyValueStore("n", value=hr.Long(), ttl="1 hour"),)


class Timed(Holder):
    stores = (hr.WindowStore("n", value=hr.Long()),)


FORMS: dict[str, Make] = {
    "count": lambda s: s.group_by_key().count(store="n"),
    "keys": lambda s: s.select_key(lambda r: 1, key=hr.Long()).repartition(name="by").group_by_key().count(store="n"),
    "reduce": lambda s: s.group_by_key().reduce(lambda a, b: a, store="n"),
    "values": lambda s: s.group_by_key().reduce(lambda a, b: a, value=hr.Json(), store="n"),
    "general": lambda s: s.group_by_key().aggregate(initial=0, function=lambda t, r: t, value=hr.Long(), store="n"),
    "named": lambda s: s.group_by_key().aggregate(a=hr.count(), b=hr.sum("value.price"), store="n"),
    "order": lambda s: s.group_by_key().aggregate(b=hr.sum("value.price"), a=hr.count(), store="n"),
    "more": lambda s: s.group_by_key().aggregate(a=hr.count(), b=hr.sum("value.price"), c=hr.count(), store="n"),
    "other": lambda s: s.group_by_key().aggregate(a=hr.count(), b=hr.max("value.price"), store="n"),
    "type": lambda s: s.group_by_key().aggregate(a=hr.count(), b=hr.sum("value.number"), store="n"),
    "tumbling": windowed(hr.Tumbling("1 hour")),
    "longer": windowed(hr.Tumbling("90 minutes")),
    "hopping": windowed(hr.Hopping("1 hour", "15 minutes")),
    "sessions": windowed(hr.Session("5 minutes")),
    "gap": windowed(hr.Session("10 minutes")),
    "table": lambda s: s.to_table(store="n"),
    "expiring": lambda s: s.process(Expiring, name="x"),
    "processor": lambda s: s.process(Holder, name="x"),
    "times": lambda s: s.process(Timed, name="x"),
}


@pytest.mark.parametrize("old", FORMS)
@pytest.mark.parametrize("new", FORMS)
def test_of_every_two_kinds_of_stores_the_difference_is_said(old: str, new: str) -> None:
    before, now = form_of(FORMS[old]), form_of(FORMS[new])
    changes = changes_of(before, now)
    assert bool(changes) is (before != now)
    said = ", ".join(changes)
    assert not any(stored in said for stored in ("us/", "session/", "key=", "windows=")), said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sessions", "gap", ["its gap was 5 minutes, is 10 minutes"]),
        ("tumbling", "longer", ["the size of its windows was 1 hour, is 1 hour 30 minutes"]),
        ("tumbling", "hopping", ["their advance was 1 hour, is 15 minutes"]),
        (
            "hopping",
            "longer",
            ["the size of its windows was 1 hour, is 1 hour 30 minutes", "their advance was 15 minutes, is 1 hour 30 minutes"],
        ),
        ("hopping", "gap", ["it had windows of 1 hour every 15 minutes, has sessions with a gap of 10 minutes"]),
        ("count", "tumbling", ["it had no windows, has windows of 1 hour"]),
        ("count", "named", ["it held counts, would hold named aggregates (a=count, b=sum(value.price) of double)"]),
        ("named", "more", ["its aggregate c=count is new"]),
        ("more", "named", ["its aggregate c=count is missing"]),
        ("named", "other", ["its aggregate b was sum(value.price) of double, is max(value.price) of double"]),
        ("named", "type", ["its aggregate b was sum(value.price) of double, is sum(value.number) of int"]),
        ("named", "order", ["its aggregates were in the order a, b, are in the order b, a"]),
        ("count", "keys", ["its keys were `string`, are `long`"]),
        ("count", "reduce", ["it held counts, would hold values folded by reduce()"]),
        ("processor", "expiring", ["its values never expire, now expire"]),
    ],
)
def test_the_words(old: str, new: str, said: list[str]) -> None:
    assert changes_of(form_of(FORMS[old]), form_of(FORMS[new])) == said


def test_a_serde_that_is_not_known_yet_differs_from_none() -> None:
    stored = "reduce key=string value=json<a int> windows=session/300000000us"
    assert changes_of(stored, "reduce key=spark value=spark windows=session/300000000us") == []
    assert changes_of(stored, "reduce key=spark value=spark windows=session/600000000us") == [
        "its gap was 5 minutes, is 10 minutes"
    ]


def test_a_form_of_another_version_is_said_as_it_is() -> None:
    assert parts_of("something else") is None
    assert changes_of("something else", "count key=string value=long") == [
        "it held `something else`, would hold `count key=string value=long`"
    ]
