"""Cogroups: several streams fold into one state of each key, in the order in which the task takes their records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver

SENT = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.one_of(st.none(), st.integers(-9, 9))), max_size=20)


def listed(name: str) -> Any:
    def fold(state: list[Any], record: hr.Record) -> list[Any]:
        state.append([name, record.value])
        return state

    return fold


def app_of(is_rekeyed: bool = False, windows: Any = None, **keys: Any) -> hr.App:
    app = hr.App("together", **keys)
    one = app.stream("a", key=hr.String(), value=hr.Long())
    other = app.stream("b", key=hr.String(), value=hr.Json())
    grouped = other.group_by(lambda r: r.key[::-1], key=hr.String()) if is_rekeyed else other.group_by_key()
    cogrouped = one.group_by_key().cogroup(listed("one")).cogroup(grouped, listed("other"))
    merger = None
    if windows is not None:
        cogrouped = cogrouped.windowed_by(windows)
        merger = (lambda earlier, later: [*earlier, *later]) if windows == hr.Session("5 seconds") else None
    cogrouped.aggregate(initial=list, value=hr.Json(), store="s", merger=merger).to_stream(emit="each").to("out")
    return app


@settings(max_examples=40)
@given(SENT, st.sampled_from([1, 3, 1000]), st.booleans())
def test_the_state_has_the_records_of_both_in_their_order(sent: Any, per_round: int, is_rekeyed: bool) -> None:
    with Driver(app_of(is_rekeyed, max_records_per_round=per_round), partitions={"a": 2, "b": 2}) as d:
        expected: dict[str, list[Any]] = {}
        for number, (stream, key, value) in enumerate(sent):
            d.send(stream, key, value, at=number * 1_000_000)
            if value is not None:
                expected.setdefault(key, []).append(["one" if stream == "a" else "other", value])
            if is_rekeyed or per_round < 1000:  # of two streams only the records of one round are put in order
                d.run()
        d.run()
        assert d.store("s").all() == expected
        updates: dict[str, list[Any]] = {}
        for record in d.read("out"):
            updates.setdefault(record.key, []).append(record.value)
        assert updates == {key: [mine[: number + 1] for number in range(len(mine))] for key, mine in expected.items()}


@pytest.mark.parametrize("windows", [hr.Tumbling("10 seconds"), hr.Hopping("10 seconds", "5 seconds"), hr.Session("5 seconds")])
def test_windows_of_several_streams(windows: Any) -> None:
    with Driver(app_of(windows=windows)) as d:
        d.send("a", "k", 1, at=10_000_000)
        d.send("b", "k", 2, at=12_000_000)
        d.run()
        assert [["one", 1], ["other", 2]] in d.store("s").all().values()


def test_streams_of_several_sub_topologies_meet() -> None:
    """The one that is by its key already is repartitioned as well: its tasks would read what they write else."""
    reads = [node.stream for node in app_of(is_rekeyed=True).topology().repartitions]
    assert sorted(reads) == ["together-s-1-repartition", "together-s-2-repartition"]
    assert app_of().topology().repartitions == ()


def test_what_cannot_be_grouped_together_is_refused() -> None:
    app, elsewhere = hr.App("one"), hr.App("two")
    grouped = app.stream("a", key=hr.String()).group_by_key()
    other = elsewhere.stream("b", key=hr.String()).group_by_key()
    by_number = app.stream("c", key=hr.Long()).group_by_key()
    started = grouped.cogroup(listed("one"))
    for text, build in {
        "expected a grouped stream": lambda: started.cogroup(app.stream("d"), listed("other")),
        "of application": lambda: started.cogroup(other, listed("other")),
        "windows already": lambda: grouped.windowed_by(hr.Tumbling("1 hour")).cogroup(listed("one")),
        "joins keys of the serde": lambda: started.cogroup(by_number, listed("other")).aggregate(initial=list),
        "called with": lambda: grouped.cogroup(lambda record: record),
    }.items():
        before = app.builder.topology().nodes
        with pytest.raises(hr.TopologyError, match=text):
            build()
        assert text == "expected a grouped stream" or app.builder.topology().nodes == before
