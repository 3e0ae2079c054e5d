"""`drop_duplicates` beside a plain model, however the rounds are cut, and across restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import TopologyError
from headrace.testing import Driver

MINUTE = 60_000_000
START = 1_700_000_000_000_000


def app_of(by: Any = None, within: str = "10 minutes", **keys: Any) -> hr.App:
    app = hr.App("duplicates", **keys)
    records = app.stream("in", key=hr.String(), value=hr.Json())
    records.drop_duplicates(by, within=within, name="once").to("out")
    return app


def kept(records: list[tuple[str, int, int]], by: bool, within_us: int) -> list[tuple[str, int]]:
    """(key, value) of those that the model keeps of (key, value, minute)."""
    last: dict[Any, int] = {}
    found = []
    for key, value, minute in records:
        name = (key, value) if by else key
        time_us = START + minute * MINUTE
        if name in last and abs(time_us - last[name]) < within_us:
            continue
        last[name] = max(time_us, last.get(name, time_us))
        found.append((key, value))
    return found


RECORDS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 60)), max_size=40)


# In the order of time, but for some minutes: an entry is forgotten `within` after it ceased to count.
@given(RECORDS.map(lambda rows: sorted(rows, key=lambda row: row[2] // 9)), st.booleans(), st.sampled_from([1, 3, 1000]))
def test_as_the_model_whatever_the_rounds(records: list[tuple[str, int, int]], by: bool, per_round: int) -> None:
    app = app_of((lambda r: r.value["n"]) if by else None, max_records_per_round=per_round)
    with Driver(app) as d:
        for key, value, minute in records:
            d.send("in", key, {"n": value}, at=START + minute * MINUTE)
        d.run()
        found = [(r.key, r.value["n"]) for r in d.read("out")]
        assert found == kept(records, by, 10 * MINUTE)
        assert d.counters.get("duplicates_dropped", 0) == len(records) - len(found)


def test_a_restart_remembers_and_what_is_old_is_forgotten(tmp_path: Path) -> None:
    with Driver(app_of(), directory=tmp_path) as d:
        d.send("in", "a", 1, at=START)
        d.run()
    with Driver(app_of(), directory=tmp_path) as d:
        d.send("in", "a", 2, at=START + 9 * MINUTE)
        d.send("in", "a", 3, at=START + 10 * MINUTE)
        d.run()
        assert [r.value for r in d.read("out", from_start=True)] == [1, 3]
        assert d.store("once").all() == {"a": START + 10 * MINUTE}
        d.send("in", "b", 4, at=START + 40 * MINUTE)
        d.run()
        d.send("in", "b", 5, at=START + 41 * MINUTE)  # the next round forgets what is past
        d.run()
        assert d.store("once").all() == {"b": START + 40 * MINUTE}


def test_bytes_headers_and_times_stay_as_they_were() -> None:
    app = hr.App("duplicates")
    app.stream("in").drop_duplicates(within="1 hour").to("out")
    with Driver(app) as d:
        d.send("in", b"k", b'{ "b":1,  "a":2 }', at=START, headers={"h": "x"})
        d.send("in", None, b"no key", at=START)
        d.run()
        (found,) = d.read("out")
        assert (found.value, found.timestamp_us, found.headers) == (b'{ "b":1,  "a":2 }', START, (("h", b"x"),))
        assert d.counters["null_keys_dropped"] == 1


def test_a_changed_key_is_repartitioned_first_and_a_failing_by_rejects_its_record() -> None:
    app = hr.App("duplicates", dead_letter_stream="dead")
    records = app.stream("in", key=hr.String(), value=hr.Json())
    by_n = records.select_key(lambda r: str(r.value["n"]), key=hr.String())
    by_n.drop_duplicates(lambda r: r.value["id"], within="1 hour", name="once").to("out")
    with Driver(app, partitions=3) as d:
        for key, value in (("a", {"n": 1, "id": 7}), ("b", {"n": 1, "id": 7}), ("c", {"n": 1}), ("b", {"n": 1, "id": 8})):
            d.send("in", key, value, at=START)
        d.run()
        assert sorted(r.value["id"] for r in d.read("out")) == [7, 8]
        (dead,) = d.read("dead")
        assert dict(dead.headers)["headrace.error-class"] == b"KeyError"


@pytest.mark.parametrize("within", ["0 seconds", "soon"])
def test_a_time_that_is_none_is_refused(within: str) -> None:
    with pytest.raises(TopologyError, match="drop_duplicates"):
        app_of(within=within)


def test_an_expression_is_refused_with_what_to_give() -> None:
    with pytest.raises(TopologyError, match=r"drop_duplicates\('value.id'\)"):
        app_of(by="value.id")


def test_it_is_described() -> None:
    app = app_of(lambda r: r.value)
    (sub,) = app.describe("dict")["sub_topologies"]
    (found,) = [operator for operator in sub["operators"] if operator["kind"] == "drop_duplicates"]
    assert found["within"] == "10 minutes" and "test_duplicates.py" in found["by"]
    assert f"drop_duplicates, by {found['by']}, within 10 minutes" in app.describe()
    assert "drop_duplicates, by the key, within 10 minutes" in app_of(None).describe()
