"""Whether an edited application may go on with what it has stored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headrace as hr
from headrace.core.topology.compatibility import (
    check_compatible,
    check_same_partitioning,
    notes,
    refusals,
    store_forms,
    with_spark_types,
)
from headrace.errors import IncompatibleChangeError
from headrace.model.job_model import JobModel
from headrace.model.topology import StoreKind, StoreSpec

FLIGHT = "carrier string, dep_delay double, distance int"


def stored(make: Callable[[hr.KStream], object], schema: str = FLIGHT) -> dict[str, str]:
    app = hr.App("delays")
    make(app.stream("flights", key=hr.String(), value=hr.Json(schema)))
    return dict(store_forms(app.topology()))


def model_of(stores: dict[str, str]) -> JobModel:
    return JobModel("delays", 3, (), stores=stores)


def by_carrier(stream: hr.KStream) -> hr.KGrouped:
    return stream.select_key("value.carrier").repartition(name="by-carrier").group_by_key()


def in_worker(stream: hr.KStream) -> hr.KGrouped:
    keyed = stream.select_key(lambda r: r.value["carrier"], key=hr.String())
    return keyed.repartition(name="by-carrier").group_by_key()


def test_store_forms_say_place_and_form() -> None:
    def make(stream: hr.KStream) -> None:
        by_carrier(stream).count(store="n")
        stream.to_table(store="latest")

    assert stored(make) == {
        "n": "by-carrier|count key=string value=long",
        "latest": "source|table key=string value=json<carrier string, dep_delay double, distance int>",
    }


@pytest.mark.parametrize(
    "edited",
    [
        lambda s: by_carrier(s.filter("value.dep_delay > 0")).count(store="n"),
        lambda s: in_worker(s.filter(lambda r: True).peek(print)).count(store="n"),
        lambda s: by_carrier(s).count(store="n").filter(lambda r: r.value > 3).to("out"),
        lambda s: (by_carrier(s).count(store="n"), s.group_by_key().count(store="other")),
        lambda s: (
            s.select_key("value.carrier").repartition(name="by-carrier").peek(print).group_by_key().count(store="n")
        ),
        lambda s: by_carrier(s).count(store="n", name="another-name"),
    ],
    ids=["before", "before in the worker", "after", "beside", "between repartition and store", "renamed operator"],
)
def test_operators_around_a_store_carry_on(edited: Callable[[hr.KStream], object]) -> None:
    previous = model_of(stored(lambda s: by_carrier(s).count(store="n")))
    assert refusals(previous, stored(edited)) == []
    check_compatible(previous, stored(edited))


def test_unnamed_stores_carry_on_too() -> None:
    previous = model_of(stored(lambda s: s.group_by("value.carrier").count()))
    edited = stored(lambda s: s.filter("true").map_values("value").group_by("value.carrier").count())
    assert set(edited) == set(previous.stores)
    assert refusals(previous, edited) == []


def test_another_form_is_refused_and_both_are_named() -> None:
    previous = model_of(stored(lambda s: by_carrier(s).count(store="n")))
    edited = stored(lambda s: by_carrier(s).windowed_by(hr.Tumbling("1 hour")).count(store="n"))
    assert refusals(previous, edited) == [
        (
            "store 'n': it had no windows, has windows of 1 hour: what it holds cannot be read as that"
        )
    ]
    with pytest.raises(IncompatibleChangeError) as error:
        check_compatible(previous, edited)
    text = str(error.value)
    assert text.startswith("application 'delays' is incompatible with its stored state: store 'n': it had no windows")
    assert "undo that edit; or drop the state: `headrace run ... --drop-store n`" in text


FORMS: dict[str, Callable[[hr.KStream], object]] = {
    "count": lambda s: by_carrier(s).count(store="n"),
    "key": lambda s: s.select_key("value.distance").repartition(name="by-carrier").group_by_key().count(store="n"),
    "hop": lambda s: by_carrier(s).windowed_by(hr.Hopping("1 hour", "30 minutes")).count(store="n"),
    "size": lambda s: by_carrier(s).windowed_by(hr.Tumbling("2 hours")).count(store="n"),
    "named": lambda s: by_carrier(s).aggregate(n=hr.count(), store="n"),
    "one more": lambda s: by_carrier(s).aggregate(n=hr.count(), m=hr.max("value.distance"), store="n"),
    "another": lambda s: by_carrier(s).aggregate(n=hr.count(), m=hr.max("value.dep_delay"), store="n"),
    "reduce": lambda s: by_carrier(s).reduce(lambda a, b: b, store="n"),
    "value": lambda s: by_carrier(s).reduce(lambda a, b: b, value=hr.Json(), store="n"),
}


@pytest.mark.parametrize("old", FORMS)
@pytest.mark.parametrize("new", FORMS)
def test_every_two_forms_refuse_each_other(old: str, new: str) -> None:
    assert bool(refusals(model_of(stored(FORMS[old])), stored(FORMS[new]))) is (old != new)


def test_grace_and_retention_may_change() -> None:
    previous = model_of(stored(lambda s: by_carrier(s).windowed_by(hr.Tumbling("1 hour")).count(store="n")))
    edited = stored(
        lambda s: by_carrier(s).windowed_by(hr.Tumbling("1 hour", grace="1 day", retention="9 days")).count(store="n")
    )
    assert refusals(previous, edited) == []


def test_a_field_may_be_added_to_the_schema_beside_those_that_are_aggregated() -> None:
    def make(stream: hr.KStream) -> object:
        return by_carrier(stream).aggregate(m=hr.max("value.distance"), store="n")

    assert refusals(model_of(stored(make)), stored(make, FLIGHT + ", origin string")) == []
    assert refusals(model_of(stored(make)), stored(make, FLIGHT.replace("int", "double"))) != []


def test_a_store_that_moved_is_refused() -> None:
    previous = model_of(stored(lambda s: s.group_by_key().count(store="n")))
    (refusal,) = refusals(previous, stored(lambda s: by_carrier(s).count(store="n")))
    assert refusal.startswith("store 'n' was in sub-topology 'source' and is now in 'by-carrier'")


def test_stores_that_go_and_come_are_noted() -> None:
    previous = model_of(stored(lambda s: by_carrier(s).count(store="old")))
    edited = stored(lambda s: by_carrier(s).count(store="new"))
    assert refusals(previous, edited) == []
    assert notes(previous, edited) == [
        "store 'old' was removed; its state is dropped",
        "store 'new' is new and begins empty, at the stored positions",
    ]


def test_the_first_start_refuses_and_notes_nothing() -> None:
    stores = stored(lambda s: s.group_by_key().count(store="n"))
    assert refusals(None, stores) == []
    assert notes(None, stores) == []
    check_compatible(None, stores)


def test_spark_types_are_filled_into_the_form() -> None:
    app = hr.App("a")
    stream = app.stream("s", value=hr.Json("key string"))
    stream.group_by("upper(value.key)").count(store="n")
    assert store_forms(app.topology())["n"] == "n|count key=spark value=long"
    spec = StoreSpec("n", StoreKind.KEY_VALUE, "reduce key=spark value=spark")
    resolved = with_spark_types(spec, hr.String(), hr.Json("a int, b string"))
    assert resolved.form == "reduce key=string value=json<a int, b string>"
    assert resolved.value == hr.Json("a int, b string")
    assert with_spark_types(resolved, hr.Long(), hr.Long()).form == resolved.form


@pytest.mark.parametrize(("before", "now"), [((), ("s",)), (("s",), ()), (("s", "t"), ("t",))])
def test_state_does_not_follow_to_a_partitioner_or_from_one(before: tuple[str, ...], now: tuple[str, ...]) -> None:
    model = JobModel("delays", 3, (), partition_counts={"s": 2, "t": 2}, partitioned_by_users=before)
    with pytest.raises(IncompatibleChangeError, match=r"stream 's' was written by (the key|a partitioner), and is now by"):
        check_same_partitioning(model, now, ["t", "s"])
    check_same_partitioning(model, now, ["t"])  # no state takes `s`
    check_same_partitioning(model, before, ["t", "s"])
    check_same_partitioning(model, (*now, "new"), ["new"])
    check_same_partitioning(None, now, ["t", "s"])
