"""Times at the ends of what there is, and before 1970: a record in every window that it belongs to, or a named error."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.core.rounds.watermarks import TIME_MAX_US, TIME_MIN_US, checked_time_us
from headrace.errors import OutOfRangeError, RecordError, TopologyError
from headrace.testing import Driver

HOUR = 3_600_000_000
BEYOND = [TIME_MIN_US - 1, TIME_MAX_US + 1, 2**63 - 1, -(2**63) + 1, 2**62, -(2**62)]
WINDOWS = {
    "tumbling": hr.Tumbling("1 hour"),
    "hopping": hr.Hopping("1 hour", "20 minutes", grace="10 minutes"),
    "long": hr.Tumbling("26000000 days", grace="26000000 days"),
}


def windowed(app: hr.App, kind: str, windows: Any) -> None:
    grouped = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(windows)
    match kind:
        case "count":
            table = grouped.count(store="s")
        case "named":
            table = grouped.aggregate(store="s", total=hr.sum("value"))
        case _:
            table = grouped.reduce(lambda a, b: a + b, store="s")
    table.to_stream().to("out")


def test_the_range_is_that_of_a_datetime() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    for end, us in ((first, TIME_MIN_US), (last, TIME_MAX_US)):
        assert (end - epoch) // timedelta(microseconds=1) == us == checked_time_us(us)
    for us in BEYOND:
        with pytest.raises(OutOfRangeError, match=f"timestamp {us}: expected µs since 1970"):
            checked_time_us(us)


@pytest.mark.parametrize("kind", ["count", "named", "reduce"])
@pytest.mark.parametrize("windows", sorted(WINDOWS))
def test_a_time_that_cannot_be_is_the_records_error_and_moves_no_watermark(kind: str, windows: str) -> None:
    app = hr.App("ends", dead_letter_stream="dead")
    windowed(app, kind, WINDOWS[windows])
    with Driver(app, overrides=["max_records_per_round=1"]) as d:
        d.send("in", "a", 1, at=5 * HOUR)
        for at in BEYOND:
            d.send("in", "a", 1, at=at)
        d.send("in", "a", 1, at=5 * HOUR)  # late, if one of them had moved the time
        d.run()
        letters = d.read("dead")
        found = d.store("s").all()
        assert "late_records" not in d.counters
    assert [r.timestamp_us for r in letters] == BEYOND
    assert [dict(r.headers)["headrace.offset"] for r in letters] == [b"%d" % i for i in range(1, len(BEYOND) + 1)]
    assert {dict(r.headers)["headrace.error-class"] for r in letters} == {b"OutOfRangeError"}
    expected = {"count": 2, "named": {"total": 2}, "reduce": 2}[kind]
    assert found == {("a", start): expected for start in WINDOWS[windows].starts_of(5 * HOUR)}


def test_without_a_dead_letter_stream_the_job_stops_with_the_record() -> None:
    app = hr.App("stops")
    windowed(app, "count", WINDOWS["tumbling"])
    with Driver(app) as d:
        d.send("in", "a", 1, at=0)
        d.send("in", "a", 1, at=2**63 - 1)
        with pytest.raises(RecordError, match="timestamp 9223372036854775807") as raised:
            d.run()
    assert (raised.value.stream, raised.value.partition, raised.value.offset) == ("in", 0, 1)


@pytest.mark.parametrize("kind", ["count", "named", "reduce"])
@pytest.mark.parametrize("windows", sorted(WINDOWS))
def test_the_ends_themselves_and_times_before_1970_fall_into_windows(kind: str, windows: str) -> None:
    times = [TIME_MIN_US, TIME_MIN_US + HOUR, -3 * HOUR - 1, -3 * HOUR, -1, 0, TIME_MAX_US - HOUR, TIME_MAX_US]
    app = hr.App("inside", dead_letter_stream="dead")
    windowed(app, kind, WINDOWS[windows])
    with Driver(app, overrides=["max_records_per_round=3"]) as d:
        for at in times:
            d.send("in", "a", 1, at=at)
        d.run()
        assert d.read("dead") == []
        assert "late_records" not in d.counters
        updates = {(r.key.start_us, r.key.end_us): r.value for r in d.read("out")}
    size = WINDOWS[windows].size_us
    expected: dict[Any, int] = {}
    for at in times:
        for start in WINDOWS[windows].starts_of(at):
            assert start <= at < start + size
            expected[start, start + size] = expected.get((start, start + size), 0) + 1
    assert {w: v["total"] if kind == "named" else v for w, v in updates.items()} == expected


@pytest.mark.parametrize("lengths", [{"size": "27000000 days"}, {"size": "1 hour", "grace": "27000000 days"}])
def test_lengths_that_would_leave_64_bits_are_refused(lengths: dict[str, str]) -> None:
    with pytest.raises(TopologyError, match="'27000000 days': expected at most 26,000,000 days"):
        hr.Tumbling(**lengths)
    with pytest.raises(TopologyError, match="retention '27000000 days'"):
        hr.Hopping("2 hours", "1 hour", retention="27000000 days")


@pytest.mark.parametrize("given", [*BEYOND, 2**70])
def test_a_timestamp_function_that_gives_such_a_time(given: int) -> None:
    app = hr.App("function", dead_letter_stream="dead")
    app.stream("in", key=hr.String(), value=hr.Json(), timestamp=lambda r: int(r.value)).group_by_key().windowed_by(
        hr.Tumbling("1 hour")
    ).count(store="s").to("out")
    with Driver(app) as d:
        for value in (HOUR, given, HOUR):
            d.send("in", "a", str(value))
        d.run()
        assert d.store("s").all() == {("a", HOUR): 2}
        (letter,) = d.read("dead")
        assert f"timestamp {given}".encode() in (dict(letter.headers)["headrace.error-message"] or b"")


class Far(hr.Processor[str, Any, str, Any]):
    stores = [  # noqa: RUF012 - as a user writes it
        hr.KeyValueStore("n", value=hr.Long()),
        hr.WindowStore("w", value=hr.Long(), retention="1 hour"),
    ]

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: hr.Record) -> None:
        n = self.context.store("n")
        n.put(n.get(default=0) + 1)
        what, at = record.value
        match what:
            case "forward":
                self.context.forward(value=0, timestamp=at)
            case "timer":
                self.context.timer("t", at=at)
            case "put":
                self.context.store("w").put(1, at)
            case "range":
                self.context.store("w").range(0, at)
        self.context.forward(value=n.get())

    def on_timer(self, timer: Any) -> None: ...


@pytest.mark.parametrize(
    ("what", "at"),
    [
        ("forward", 2**70),
        ("forward", TIME_MAX_US + 1),
        ("timer", 2**63),
        ("put", 2**63 - 1),  # its end is beyond
        ("put", -(2**63) - 1),
        ("range", 2**63),
    ],
)
def test_times_that_a_processor_gives(what: str, at: int) -> None:
    app = hr.App("processor", dead_letter_stream="dead")
    app.stream("in", key=hr.String(), value=hr.Json()).process(Far, name="p", value=hr.Json()).to("out")
    with Driver(app) as d:
        for value in (["none", 0], [what, at], [what, 5]):
            d.send("in", "a", value)
        d.run()
        (letter,) = d.read("dead")
        headers = dict(letter.headers)
        assert (headers["headrace.offset"], headers["headrace.error-class"]) == (b"1", b"OutOfRangeError")
        assert d.store("n").all() == {"a": 2}
        assert [r.value for r in d.read("out")][-1] == 2
