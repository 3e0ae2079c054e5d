"""`timestamp=` in other units than µs, and the warning of a time that is far from the record's own; without Spark."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

import headrace as hr
from headrace.errors import TopologyError
from headrace.testing import Driver

NOW = "2026-01-01T00:00:00Z"
NOW_S = 1_767_225_600


def clicks(unit: str | None = None, function: Any = lambda r: r.value, value: hr.Json | None = None, **keys: Any) -> hr.App:
    app = hr.App("clicks", **keys)
    given = {} if unit is None else {"timestamp_unit": unit}
    app.stream("in", key=hr.String(), value=value or hr.Json(), timestamp=function, **given).to("out")
    return app


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("unit", "number"),
    [
        (None, NOW_S * 1_000_000),
        ("us", NOW_S * 1_000_000),
        ("ms", NOW_S * 1_000),
        ("s", NOW_S),
        ("ns", NOW_S * 1_000_000_000),
        ("s", float(NOW_S)),
        ("ms", float(NOW_S * 1_000)),
    ],
)
def test_numbers_are_of_the_unit(unit: str | None, number: float, caplog: pytest.LogCaptureFixture) -> None:
    with Driver(clicks(unit), start=NOW) as d:
        d.send("in", "k", number)
        d.run()
        (record,) = d.read("out")
        assert record.timestamp == datetime(2026, 1, 1, tzinfo=UTC)
        assert "far_event_times" not in d.counters
    assert warnings(caplog) == []


def test_a_datetime_is_a_time_in_every_unit() -> None:
    with Driver(clicks("ms", lambda r: datetime.fromisoformat(r.value)), start=NOW) as d:
        d.send("in", "k", "2026-01-02T00:00:00.000007+01:00")
        d.run()
        (record,) = d.read("out")
        assert record.timestamp == datetime(2026, 1, 1, 23, 0, 0, 7, tzinfo=UTC)


@pytest.mark.parametrize("unit", ["m", "millis", "US", "", None, 3, ["ms"]])
def test_another_unit_is_refused_where_it_is_given(unit: Any) -> None:
    with pytest.raises(TopologyError, match=r"stream\('in'\): timestamp_unit=.*: expected 'us', 'ms', 's' or 'ns'"):
        hr.App("a").stream("in", timestamp="value.ts", timestamp_unit=unit)


def test_a_unit_without_a_time_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"stream\('in'\): timestamp_unit='ms' without timestamp="):
        hr.App("a").stream("in", timestamp_unit="ms")


@pytest.mark.parametrize(
    ("value", "unit"), [(1.5, "us"), (1.5, "ns"), (float("nan"), "s"), (1e300, "s"), (True, "s"), ("1", "ms")]
)
def test_what_is_no_time_is_an_error_of_its_record(value: Any, unit: str) -> None:
    function = {"v": value}
    with Driver(clicks(unit, lambda r: function["v"])) as d:
        d.send("in", "k", 0)
        with pytest.raises(hr.RecordError, match="in, partition 0, offset 0"):
            d.run()


def test_a_far_time_is_named_once_per_stream_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    app = clicks()
    app.stream("other", key=hr.String(), value=hr.Json(), timestamp=lambda r: r.value).to("out-2")
    with Driver(app, start=NOW) as d:
        d.send("in", "k", NOW_S * 1_000_000)
        for second in range(5):
            d.send("in", "k", (NOW_S + second) * 1_000)
        d.run()
        d.send("in", "k", NOW_S * 1_000)
        d.send("other", "k", NOW_S)
        d.run()
        assert d.counters["far_event_times"] == 7
        assert len(d.read("out")) == 7
    first, second = warnings(caplog)
    assert first.startswith(
        "stream 'in' partition 0 offset 1: the event time is 1970-01-21T10:53:45.600000Z, the record's own timestamp "
        "2026-01-01T00:00:00Z, further apart than event_time_warning_s (31,536,000 s); it looks like milliseconds"
    )
    assert "timestamp_unit='ms'" in first
    assert "stream 'other' partition 0 offset 0" in second and "timestamp_unit='s'" in second


@pytest.mark.parametrize(("span_s", "expected"), [(60, 1), (61, 0), (0, 0)])
def test_the_span_can_be_set(span_s: int, expected: int, caplog: pytest.LogCaptureFixture) -> None:
    with Driver(clicks("s", event_time_warning_s=span_s), start=NOW) as d:
        d.send("in", "k", NOW_S - 61)
        d.send("in", "k", NOW_S + 60)
        d.run()
        assert d.counters.get("far_event_times", 0) == expected
    assert len(warnings(caplog)) == expected


def test_a_record_that_is_refused_for_its_time_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with Driver(clicks(), start=NOW, overrides=["dead_letter_stream=bad"]) as d:
        d.send("in", "k", NOW_S * 1_000_000_000_000)
        d.send("in", "k", NOW_S * 1_000_000)
        d.run()
        assert (len(d.read("bad")), len(d.read("out"))) == (1, 1)
        assert "far_event_times" not in d.counters
    assert warnings(caplog) == []


def test_without_a_time_of_its_own_nothing_is_compared(caplog: pytest.LogCaptureFixture) -> None:
    app = hr.App("clicks")
    app.stream("in", key=hr.String(), value=hr.Json()).to("out")
    with Driver(app, start=NOW) as d:
        d.send("in", "k", 1, at="1971-01-01T00:00:00Z")
        d.run()
    assert warnings(caplog) == []


def test_it_is_described() -> None:
    app = hr.App("a")
    app.stream("in", timestamp="value.ts", timestamp_unit="ms").to("out")
    assert "timestamp_unit" in str(app.describe("dict")) and "timestamp value.ts in ms" in app.describe()


def test_several_streams_of_one_task_are_compared_too(caplog: pytest.LogCaptureFixture) -> None:
    app = hr.App("merged")
    a = app.stream("a", key=hr.String(), value=hr.Json(), timestamp=lambda r: r.value)
    b = app.stream("b", key=hr.String(), value=hr.Json(), timestamp=lambda r: r.value, timestamp_unit="ms")
    a.merge(b).group_by_key().count(store="counts").to_stream().to("out")
    with Driver(app, start=NOW) as d:
        d.send("a", "k", NOW_S * 1_000)
        d.send("b", "k", NOW_S * 1_000)
        d.run()
        assert d.store("counts").get("k") == 2 and d.counters["far_event_times"] == 1
    (warning,) = warnings(caplog)
    assert "stream 'a'" in warning
