"""The test kit itself: streams, time, stores, directories, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver
from headrace.testing import driver as driver_module

SHOUTS = "shouts"


def shouting(name: str = "shout", **keys: Any) -> hr.App:
    app = hr.App(name, **keys)
    app.stream("words", key=hr.String(), value=hr.String()).map_values(
        lambda r: r.value.upper(), value=hr.String()
    ).to(SHOUTS)
    return app


def counting(name: str = "counting", **keys: Any) -> hr.App:
    app = hr.App(name, **keys)
    app.stream("words", key=hr.String(), value=hr.String()).group_by_key().count(store="counts").to("counts-out")
    return app


def test_what_is_sent_is_worked_off_and_read() -> None:
    with Driver(shouting()) as d:
        d.send("words", "k", "hello", at="2026-02-03T04:05:06Z", headers={"trace": "1"})
        assert d.read(SHOUTS) == []
        assert d.run() == 1
        (record,) = d.read(SHOUTS)
    assert (record.key, record.value, record.headers) == ("k", "HELLO", (("trace", b"1"),))
    assert record.timestamp == datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


def test_reading_goes_on_where_it_was_and_can_begin_anew() -> None:
    with Driver(shouting()) as d:
        for word in ("a", "b"):
            d.send("words", "k", word)
            d.run()
            assert [r.value for r in d.read(SHOUTS)] == [word.upper()]
        assert d.read(SHOUTS) == []
        assert [r.value for r in d.read(SHOUTS, from_start=True)] == ["A", "B"]
        assert [r.value for r in d.read(SHOUTS, value=hr.Bytes(), from_start=True)] == [b"A", b"B"]
        assert [r.value for r in d.read("words")] == ["a", "b"]


def test_nothing_to_do_is_no_round() -> None:
    with Driver(shouting()) as d:
        assert d.run() == 0
        d.advance("1 day")
        assert d.run() == 0


@pytest.mark.parametrize("start", ["2026-05-01T00:00:00Z", datetime(2026, 5, 1, tzinfo=UTC), 1_777_593_600_000_000])
def test_the_clock_begins_at_start_and_times_records(start: Any) -> None:
    with Driver(shouting(), start=start) as d:
        d.send("words", "k", "a")
        d.advance("90 minutes")
        d.send("words", "k", "b")
        d.advance(timedelta(seconds=1))
        d.send("words", "k", "c")
        d.run()
        times = [r.timestamp for r in d.read(SHOUTS)]
    first = datetime(2026, 5, 1, tzinfo=UTC)
    assert times == [first, first + timedelta(minutes=90), first + timedelta(minutes=90, seconds=1)]


def test_several_partitions() -> None:
    with Driver(shouting(), partitions=4) as d:
        for i in range(40):
            d.send("words", f"k{i}", "w")
        d.send("words", "pinned", "w", partition=3)
        d.run()
        found = d.read(SHOUTS)
    assert {r.partition for r in found} == {0, 1, 2, 3}
    assert len(found) == 41


def test_partitions_by_stream_make_output_streams_too() -> None:
    app = hr.App("route")
    app.stream("in", key=hr.String(), value=hr.String()).to(lambda r: f"out-{r.value}")
    with Driver(app, partitions={"in": 2, "out-a": 3, "out-b": 1}) as d:
        for value in "abab":
            d.send("in", value, value)
        d.run()
        assert [[r.value for r in d.read(stream)] for stream in ("out-a", "out-b")] == [["a", "a"], ["b", "b"]]


def test_raw_bytes_can_be_sent() -> None:
    with Driver(shouting(dead_letter_stream="dead")) as d:
        d.send("words", b"k", b"\xff", raw=True)
        d.run()
        (letter,) = d.read("dead")
    assert (letter.key, letter.value) == (b"k", b"\xff")


def test_a_store_is_read_as_committed() -> None:
    with Driver(counting(), partitions=3) as d:
        assert d.store("counts").get("a") is None
        assert d.store("counts").get("a", 0) == 0
        for word in "abcaab":
            d.send("words", word, "")
        assert len(d.store("counts")) == 0
        d.run()
        assert [d.store("counts").get(k) for k in "abcd"] == [3, 2, 1, None]
        assert d.store("counts").all() == {"a": 3, "b": 2, "c": 1}
        with pytest.raises(hr.StateError, match="no store 'cuonts'"):
            d.store("cuonts")


def test_a_directory_is_kept_and_another_driver_carries_on(tmp_path: Path) -> None:
    for expected in (1, 2, 3):
        with Driver(counting(), directory=tmp_path) as d:
            d.send("words", "a", "")
            d.run()
            assert d.store("counts").get("a") == expected
            assert [r.value for r in d.read("counts-out", from_start=True)] == list(range(1, expected + 1))


def test_what_was_sent_and_not_run_is_kept(tmp_path: Path) -> None:
    with Driver(shouting(), directory=tmp_path) as d:
        d.send("words", "a", "kept")
    with Driver(shouting(), directory=tmp_path) as d:
        d.run()
        assert [r.value for r in d.read(SHOUTS)] == ["KEPT"]


def test_without_a_directory_nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(driver_module.tempfile, "mkdtemp", _made_in(tmp_path))
    with Driver(counting()) as d:
        d.send("words", "a", "")
        d.run()
        assert list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


def _made_in(place: Path) -> Any:
    def mkdtemp(prefix: str, **_: Any) -> str:
        folder = place / f"{prefix}1"
        folder.mkdir()
        return str(folder)

    return mkdtemp


def test_a_small_memory_disk_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 64 * 1024 * 1024

    asked: list[Any] = []
    monkeypatch.setattr(driver_module.shutil, "disk_usage", lambda place: Usage)
    monkeypatch.setattr(driver_module.tempfile, "mkdtemp", lambda **given: asked.append(given["dir"]) or "/nowhere")
    driver_module._new_folder()
    assert asked == [None]


def test_two_drivers_at_the_same_time() -> None:
    with Driver(counting()) as one, Driver(counting()) as other:
        for d, times in ((one, 1), (other, 2)):
            for _ in range(times):
                d.send("words", "a", "")
            d.run()
        assert (one.store("counts").get("a"), other.store("counts").get("a")) == (1, 2)


def test_a_second_driver_in_one_directory_is_refused(tmp_path: Path) -> None:
    with Driver(counting(), directory=tmp_path), pytest.raises(hr.JobHeldError):
        Driver(counting(), directory=tmp_path).open()
    with Driver(counting(), directory=tmp_path) as d:  # the refused one has not spoilt anything
        d.run()


def test_many_rounds_by_configuration() -> None:
    with Driver(counting(), overrides=["max_records_per_round=2"]) as d:
        for _ in range(7):
            d.send("words", "a", "")
        assert d.run() == 4
        assert [r.value for r in d.read("counts-out")] == [2, 4, 6, 7]


def test_refusals_name_what_is_wrong() -> None:
    with Driver(shouting()) as d:
        with pytest.raises(hr.StreamNotFoundError, match="reads no stream 'wrods'"):
            d.send("wrods", "a", "b")
        with pytest.raises(hr.SerdeError, match="the key of a record for stream 'words' does not encode as `string`"):
            d.send("words", 1, "b")
        with pytest.raises(hr.StreamNotFoundError):
            d.read("nowhere")
    with pytest.raises(hr.HeadraceError, match="not open"):
        d.run()


def test_a_round_that_fails_commits_nothing_and_fails_again() -> None:
    app = hr.App("fails")
    app.stream("in", key=hr.String(), value=hr.Long()).map_values(lambda r: 1 // r.value, value=hr.Long()).to("out")
    with Driver(app) as d:
        d.send("in", "a", 1)
        d.send("in", "a", 0)
        for _ in range(2):
            with pytest.raises(hr.RecordError, match="in, partition 0, offset 1") as raised:
                d.run()
            assert raised.value.offset == 1
            assert d.read("out") == []


def test_a_timer_that_is_always_due_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    class Again(hr.Processor[str, str, str, str]):
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: hr.Record) -> None:
            self.context.timer("again", after="0 s", clock="wall")

        def on_timer(self, timer: Any) -> None:
            self.context.timer("again", after="0 s", clock="wall")

    app = hr.App("again")
    app.stream("in", key=hr.String(), value=hr.String()).process(Again, value=hr.String()).to("out")
    monkeypatch.setattr("headrace.testing.driver.ROUNDS_MAX", 20)
    with Driver(app) as d:
        d.send("in", "a", "x")
        with pytest.raises(hr.RoundFailedError, match="not caught up"):
            d.run()


@pytest.fixture(scope="module")
def modules_loaded() -> set[str]:
    code = (
        "import sys, headrace as hr\n"
        "app = hr.App('a'); app.stream('in').to('out')\n"
        "with hr.testing.Driver(app) as d:\n"
        "    d.send('in', b'k', b'v'); d.run(); assert len(d.read('out')) == 1\n"
        "print(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    return set(done.stdout.split())


def test_no_jvm_where_no_expression_needs_it(modules_loaded: set[str]) -> None:
    assert not {name for name in modules_loaded if name.partition(".")[0] in ("pyspark", "py4j")}
