"""`timestamp=` as a Spark expression: timestamps, numbers of every unit and type, and times far from the record's own."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import TopologyError
from headrace.testing import Driver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
NOW = "2026-01-01T00:00:00Z"
NOW_US = 1_767_225_600_000_000
FIELDS = "us bigint, ms bigint, s int, ns bigint, seconds double, millis decimal(20,3), at timestamp, text string, flag boolean"


def value(shift_us: int = 0) -> dict[str, Any]:
    us = NOW_US + shift_us
    return {
        "us": us,
        "ms": us // 1_000,
        "s": us // 1_000_000,
        "ns": us * 1_000,
        "seconds": us / 1_000_000,
        "millis": f"{us // 1_000}.{us % 1_000:03d}",
        "at": "2026-01-01T00:00:00Z",
        "text": "2026-01-01T00:00:00Z",
        "flag": True,
    }


def read(app: hr.App, stream: str, expression: Any, **options: Any) -> Any:
    return app.stream(stream, key=hr.String(), value=hr.Json(FIELDS), timestamp=expression, **options)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING and one.name == "headrace.job"]


def test_timestamps_and_numbers_of_every_unit(caplog: pytest.LogCaptureFixture) -> None:
    app = hr.App("times", event_time_warning_s=3_600_000_000)
    with Driver(app_of(app), start=NOW) as d:
        for name in TIMES:
            d.send(name, "k", value(123_456), at=NOW)
        d.run()
        found = {name: [r.timestamp_us - NOW_US for r in d.read(f"{name}-out")] for name in TIMES}
    assert found == {name: [expected] for name, (_, _, expected) in TIMES.items()}
    assert warnings(caplog) == []


TIMES: dict[str, tuple[Any, dict[str, str], int]] = {
    "column": ("value.at", {}, 0),
    "text": ("value.text", {}, 0),
    "millis-text": ("timestamp_millis(value.ms)", {}, 123_000),
    "millis-column": (lambda: F.timestamp_millis(F.col("value.ms")), {}, 123_000),
    "own": ("timestamp + interval 1 second", {}, 1_000_000),
    "us": ("value.us", {}, 123_456),
    "ms": ("value.ms", {"timestamp_unit": "ms"}, 123_000),
    "s": ("value.s", {"timestamp_unit": "s"}, 0),
    "ns": ("value.ns + 999", {"timestamp_unit": "ns"}, 123_456),
    "ns-before-1970": ("-1L", {"timestamp_unit": "ns"}, -1 - NOW_US),
    "double": ("value.seconds", {"timestamp_unit": "s"}, 123_456),
    "decimal": ("value.millis", {"timestamp_unit": "ms"}, 123_456),
}


def app_of(app: hr.App) -> hr.App:
    from headrace.wiring import config_of
    from headrace.wiring.spark_sessions import shared_spark

    config = config_of(app)
    shared_spark(app, config)  # a Column needs a session
    for name, (expression, options, _) in TIMES.items():
        given = expression() if callable(expression) else expression
        read(app, name, given, **options).to(f"{name}-out")
    return app


@pytest.mark.parametrize(
    ("expression", "unit", "said"),
    [
        ("value.at", "ms", r"gives timestamp, expected a number\n.*timestamp_unit='ms' is for numbers"),
        ("value.text", "s", r"gives string, expected a number"),
        ("value.flag", "us", r"gives boolean, expected a timestamp or a number\n.*timestamp_millis"),
        ("value", "us", r"gives struct<.*, expected a timestamp or a number"),
    ],
)
def test_what_is_no_time_is_refused_at_the_start(expression: str, unit: str, said: str) -> None:
    app = hr.App("refused")
    read(app, "in", expression, timestamp_unit=unit).to("out")
    with pytest.raises(TopologyError, match=f"timestamp of 'in': the expression {said}"), Driver(app):
        pass


def test_a_far_time_is_named_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    app = hr.App("far")
    wrong = read(app, "wrong", "value.ms")
    wrong.filter("value.us > 0").to("out")
    wrong.filter("value.us > 1").map_values(lambda r: 1, value=hr.Long()).to("out-2")  # two ways of one stream
    read(app, "right", "value.ms", timestamp_unit="ms").map_values(lambda r: 1, value=hr.Long()).to("out-3")
    app.stream("untimed", key=hr.String(), value=hr.Json(FIELDS)).filter("value.us > 0").to("out-4")
    with Driver(app, start=NOW) as d:
        for _ in range(2):
            for shift_us in (0, 1_000_000, 2_000_000):
                for stream in ("wrong", "right", "untimed"):
                    d.send(stream, "k", value(shift_us), at=NOW)
            d.run()
        assert d.counters["far_event_times"] == 6
        assert [len(d.read(name)) for name in ("out", "out-2", "out-3", "out-4")] == [6, 6, 6, 6]
    (warning,) = warnings(caplog)
    assert warning.startswith(
        "stream 'wrong' partition 0 offset 0: the event time is 1970-01-21T10:53:45.600000Z, the record's own timestamp "
        "2026-01-01T00:00:00Z"
    )
    assert "timestamp_unit='ms'" in warning


def test_a_number_that_no_timestamp_holds_is_an_error_of_its_record() -> None:
    app = hr.App("overflow", dead_letter_stream="dead")
    read(app, "in", "value.us", timestamp_unit="s").to("out")
    with Driver(app, start=NOW) as d:
        d.send("in", "k", value() | {"us": 1})
        d.send("in", "k", value() | {"us": 2**62})
        d.send("in", "k", value() | {"us": 2})
        d.run()
        assert [r.timestamp_us for r in d.read("out")] == [1_000_000, 2_000_000]
        assert len(d.read("dead")) == 1
