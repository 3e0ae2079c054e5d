"""Times through changes of the elasticity factor: timers of chosen slots and of both clocks, and windows of inputs that are
idle for a while."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import pytest
import xxhash

import headrace as hr
from headrace.testing import Driver

SECOND_US, HOUR_US = 1_000_000, 3_600_000_000
START_US = 1_700_000_000_000_000 // HOUR_US * HOUR_US
BYTES, TEXT, JSON = hr.Bytes(), hr.String(), hr.Json()


def slot_of(key: bytes) -> int:
    """The ten low bits of the hash, in reverse order. Counted here again."""
    return int(f"{xxhash.xxh64(key, seed=42).intdigest() & 1023:010b}"[::-1], 2)


def key_of(slot: int) -> bytes:
    return next(b"%d" % number for number in range(100_000) if slot_of(b"%d" % number) == slot)


class Ringing(hr.Processor[Any, Any, Any, Any]):
    """Sets, replaces and cancels a timer of its key, so many seconds after the beginning, and says when it fires."""

    stores: ClassVar = [hr.KeyValueStore("set", value=hr.Long())]

    def process(self, record: Any) -> None:
        if record.value is None:
            return
        clock, at_s = record.value
        self.context.store("set").put(at_s or 0)
        if at_s is None:
            self.context.cancel_timer("one", clock=clock)
        else:
            self.context.timer("one", at=START_US + at_s * SECOND_US, clock=clock)

    def on_timer(self, timer: Any) -> None:
        assert timer.timestamp_us == START_US + self.context.store("set").get() * SECOND_US
        self.context.forward(key=timer.key, value=timer.clock)


FIRST, LAST, LATE_IN_GROUP, EARLY_IN_GROUP, CANCELLED = map(key_of, (0, 1023, 5, 9, 64))  # 5 and 9 are of one group of 64


class Bell:
    """`Ringing` at work, and a clock of either kind."""

    def __init__(self, driver: Driver, clock: str) -> None:
        self.driver, self.clock, self.now_s = driver, clock, 0

    def set(self, key: bytes, at_s: int | None) -> None:
        self.driver.send("in", key, [self.clock, at_s], at=START_US + self.now_s * SECOND_US)
        self.driver.run()

    def rung(self, at_s: int) -> list[bytes]:
        """What fires until then. There is nothing left to do behind it."""
        self.driver.advance(f"{at_s - self.now_s} seconds")
        self.now_s = at_s
        self.driver.send("in", b"of time alone", None, at=START_US + at_s * SECOND_US)
        self.driver.run()
        assert self.driver.run() == 0, "rounds without an end"
        return [record.key for record in self.driver.read("out")]


@pytest.mark.parametrize("clock", ["event", "wall"])
@pytest.mark.parametrize("factors", [(1, 8, 2), (8, 1, 4), (2, 64, 2)])
def test_a_timer_of_any_slot_fires_once_at_its_time_whatever_the_factor(factors: Sequence[int], clock: str) -> None:
    app = hr.App("bells", elasticity_factor=factors[0])
    app.stream("in", key=BYTES, value=JSON).process(Ringing, name="ringing", value=JSON).to("out")
    with Driver(app, start=START_US) as driver:
        bell = Bell(driver, clock)
        for key, at_s in {LATE_IN_GROUP: 3_600, EARLY_IN_GROUP: 60, FIRST: 120, LAST: 180, CANCELLED: 100}.items():
            bell.set(key, at_s)
        driver.elasticity(factors[1])
        bell.set(FIRST, 240)
        bell.set(CANCELLED, None)
        assert bell.rung(59) == []
        assert bell.rung(60) == [EARLY_IN_GROUP]
        bell.set(EARLY_IN_GROUP, 300)
        driver.elasticity(factors[2])
        assert bell.rung(179) == []
        assert bell.rung(180) == [LAST]
        assert bell.rung(240) == [FIRST]
        assert bell.rung(300) == [EARLY_IN_GROUP]
        assert bell.rung(3_599) == []
        assert bell.rung(3_600) == [LATE_IN_GROUP]
        assert bell.rung(9_000) == []


def windows(factor: int) -> hr.App:
    app = hr.App("idle", elasticity_factor=factor)
    rows = app.stream("a", key=TEXT, value=JSON).merge(app.stream("b", key=TEXT, value=JSON))
    hours = rows.group_by_key().windowed_by(hr.Tumbling("1 hour", grace="0 seconds")).count(store="hours")
    hours.suppress(hr.until_window_closes()).to_stream().to("closed", value=hr.Long())
    return app


@cache
def closed(factors: tuple[int, ...]) -> tuple[list[tuple[str, int, int]], int]:
    """What is given as final in each phase, and how many records were late. In each phase one input is idle for a while, and
    then comes back: behind the other, with records for windows that have closed, too. Between the two the factor changes: what
    has closed is known by the mark of the task alone then, as the input that is back takes the watermark back with it."""
    given: list[tuple[str, int, int]] = []
    with Driver(windows(factors[0]), start=START_US) as driver:
        hour = 0
        for number, factor in enumerate((*factors[1:], factors[-1])):
            going, idle = ("a", "b") if number % 2 else ("b", "a")
            for at in range(hour, hour + 3):
                for key in range(16):
                    for stream in (going, idle):
                        driver.send(stream, f"k{key}", key, at=START_US + at * HOUR_US + key)
            driver.run()
            driver.send(going, "k0", 0, at=START_US + (hour + 5) * HOUR_US)
            driver.run()
            driver.advance("31 seconds")  # `idle` is now: windows close by `going` alone
            for second in (1, 2):
                driver.send(going, "k0", 0, at=START_US + (hour + 5) * HOUR_US + second)
                driver.run()
            driver.elasticity(factor)
            for at in (0, 2, 4):
                driver.send(idle, "k1", 1, at=START_US + (hour + at) * HOUR_US)
            driver.run()
            driver.send(idle, "k2", 2, at=START_US + (hour + 5) * HOUR_US)
            driver.run()
            given += sorted((r.key.key, (r.key.start_us - START_US) // HOUR_US, r.value) for r in driver.read("closed"))
            hour += 6
        return given, driver.counters.get("late_records", 0)


@pytest.mark.parametrize("factors", [(1, 8, 2, 1), (4, 1, 16, 2), (2, 4, 8, 1)])
def test_windows_of_an_input_that_is_idle_and_comes_back_close_once_whatever_the_factor(factors: tuple[int, ...]) -> None:
    expected, late = closed((1,) * len(factors))
    given, given_late = closed(factors)
    assert len(expected) > 16 * 3 * 3
    assert len({(key, hour) for key, hour, _ in given}) == len(given), "a window was given twice"
    assert given == expected and given_late == late == 3 * len(factors)
