"""The public words for windows, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.dsl.windows import Hopping, Session, Tumbling
from headrace.errors import TopologyError
from headrace.model.windows import DAY_US, SessionWindows, Windows

HOUR_US = 3_600_000_000


def test_tumbling() -> None:
    assert Tumbling("1 hour") == Windows(HOUR_US, HOUR_US, None, 7 * DAY_US)
    assert Tumbling(timedelta(hours=1), grace="0 seconds", retention="1 day") == Windows(HOUR_US, HOUR_US, 0, DAY_US)


def test_hopping() -> None:
    assert Hopping("1 hour", "20 minutes", grace="5 min") == Windows(HOUR_US, HOUR_US // 3, HOUR_US // 12, HOUR_US // 12)
    assert Hopping("1 hour", "20 minutes", retention="5 min") == Windows(HOUR_US, HOUR_US // 3, None, HOUR_US // 12)
    assert Hopping("1 hour", advance="1 hour") == Tumbling("1 hour")


@pytest.mark.parametrize(("size", "advance"), [("1 day", "10 s"), ("10 s", "1 ms"), ("10 ms", "1 us")])
def test_as_many_windows_as_people_need_are_taken(size: str, advance: str) -> None:
    assert Hopping(size, advance).per_record <= 10_000


@pytest.mark.parametrize("size", ["1 day", "400 days", "3 hours", "7 s", "10001 us", "26000000 days"])
def test_the_advance_that_the_refusal_names_is_taken(size: str) -> None:
    with pytest.raises(TopologyError) as raised:
        Hopping(size, timedelta(microseconds=1))
    assert raised.value.hint
    advance = raised.value.hint.partition("advance by ")[2].removesuffix(" or more")
    assert Hopping(size, advance).per_record <= 10_000


def test_windows_that_are_no_words_of_a_user_have_the_same_bound() -> None:
    with pytest.raises(ValueError, match="10001 windows per record: expected at most 10000"):
        Windows(10_001, 1)
@pytest.mark.parametrize("kind", ["Tumbling", "Session"])
def test_a_retention_says_how_long_results_are_kept_and_a_grace_when_they_are_final(kind: str) -> None:
    make: Any = {"Tumbling": Tumbling, "Session": Session}[kind]
    closing = make("1 hour", grace="1 minute")
    kept = make("1 hour", grace="1 minute", retention="25 hours")
    assert kept.closes_us(0) == closing.closes_us(0) == closing.expires_us(0)
    assert kept.expires_us(0) - closing.expires_us(0) == 25 * HOUR_US - HOUR_US // 60
    assert make("1 hour").closes_us(0) == make("1 hour").expires_us(0)
    long = make("1 hour", grace="9 days")
    assert long.closes_us(0) == long.expires_us(0), "a window that takes records is kept, whatever the default is"


def test_sessions() -> None:
    assert Session("30 minutes") == SessionWindows(HOUR_US // 2, None, 7 * DAY_US)
    assert Session("1 hour", grace="5 min", retention="1 day") == SessionWindows(HOUR_US, HOUR_US // 12, DAY_US)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: Hopping("1 hour", "2 hours"), "the advance of 2 hours is above the size of 1 hour"),
        (lambda: Hopping("1 hour", "0 seconds"), "window advance '0 seconds': expected more than 0"),
        (lambda: Tumbling("0 ms"), "window size '0 ms': expected more than 0"),
        (lambda: Session("0 seconds"), "window gap '0 seconds': expected more than 0"),
        (lambda: Session("1 hour", grace="soon"), "Session grace 'soon'"),
        (lambda: Tumbling(3600), "window size 3600"),  # type: ignore[arg-type]
        (lambda: Tumbling("1 hour", grace="soon"), "Tumbling grace 'soon'"),
        (lambda: Hopping("1 hour", "1 min", retention="1 year"), "Hopping retention '1 year'"),
        (
            lambda: Hopping("1 day", timedelta(microseconds=1)),
            "Hopping: a size of 1 day with an advance of 1 µs puts each record into 86,400,000,000 windows, expected at most",
        ),
        (lambda: Hopping("10001 us", "1 us"), "10,001 windows, expected at most 10,000"),
        (lambda: Hopping("10000001 us", "1 ms"), "10,001 windows, expected at most 10,000"),
        (
            lambda: Tumbling("1 hour", grace="5 minutes", retention="1 minute"),
            "Tumbling: the retention of 1 minute is below the grace of 5 minutes",
        ),
        (
            lambda: Hopping("1 hour", "1 min", grace="8 days", retention="7 days"),
            "Hopping: the retention of 7 days is below the grace of 8 days",
        ),
        (
            lambda: Session("1 hour", grace="1 ms", retention="0 seconds"),
            "Session: the retention of 0 seconds is below the grace of 1 ms",
        ),
    ],
)
def test_what_makes_no_windows_is_refused(made: Callable[[], Any], told: str) -> None:
    with pytest.raises(TopologyError) as raised:
        made()
    assert told in str(raised.value)


def grouped(name: str = "windows") -> hr.KGrouped:
    return hr.App(name).stream("in", key=hr.String(), value=hr.Long()).group_by_key()


CLOSING = Tumbling("1 hour", grace="0 seconds")
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "no windows": (lambda: grouped().windowed_by("1 hour"), "hr.Session(gap)"),  # type: ignore[arg-type]
    "windows twice": (lambda: grouped().windowed_by(CLOSING).windowed_by(Session("1 hour")), "have windows already"),
    "sessions without a merger": (
        lambda: grouped().windowed_by(Session("1 hour")).aggregate(initial=0, function=lambda s, r: s, value=hr.Long()),
        "expected merger=",
    ),
    "a merger without sessions": (
        lambda: grouped().aggregate(initial=0, function=lambda s, r: s, merger=lambda a, b: a, value=hr.Long()),
        "only sessions merge",
    ),
    "a merger of named aggregates": (
        lambda: grouped().windowed_by(Session("1 hour")).aggregate(n=hr.count(), merger=lambda a, b: a),
        "named aggregates (n) and a function",
    ),
    "a merger of one argument": (
        lambda: grouped()
        .windowed_by(Session("1 hour"))
        .aggregate(initial=0, function=lambda s, r: s, merger=lambda a: a, value=hr.Long()),
        "merger",
    ),
    "suppress until something else": (
        lambda: grouped().windowed_by(CLOSING).count().suppress("closed"),  # type: ignore[arg-type]
        "hr.until_window_closes()",
    ),
    "suppress without windows": (
        lambda: grouped().count().suppress(hr.until_window_closes()),
        "expected a table of windows",
    ),
    "suppress without a grace": (
        lambda: grouped().windowed_by(Tumbling("1 hour")).count().suppress(hr.until_window_closes()),
        "its windows have no grace",
    ),
    "sessions that close without a grace": (
        lambda: grouped().windowed_by(Session("1 hour")).count().to_stream(emit="closed"),
        "its windows have no grace",
    ),
    "closed twice": (
        lambda: grouped().windowed_by(CLOSING).count().suppress(hr.until_window_closes()).to_stream(emit="closed"),
        "suppress once",
    ),
    "closed without windows": (lambda: grouped().count().to_stream(emit="closed"), "expected a table of windows"),
    "suppressed values without a serde": (
        lambda: grouped().windowed_by(CLOSING).count().map_values(lambda r: r.value).to_stream(emit="closed"),
        "does not say the serde of the values",
    ),
}


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_mistakes_with_windows_are_refused_with_a_way_out(mistake: str) -> None:
    made, told = MISTAKES[mistake]
    with pytest.raises(TopologyError) as raised:
        made()
    assert told in str(raised.value)
    assert raised.value.hint


def test_a_refused_closing_leaves_nothing_behind() -> None:
    app = hr.App("refused")
    table = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().count(store="s")
    before = app.topology().nodes
    with pytest.raises(TopologyError):
        table.to_stream(emit="closed")
    assert app.topology().nodes == before


def test_two_streams_of_closed_windows_of_one_table_need_names() -> None:
    table = grouped().windowed_by(CLOSING).count(store="s")
    table.to_stream(emit="closed")
    with pytest.raises(TopologyError, match=r'store="\.\.\."'):
        table.to_stream(emit="closed")
    table.suppress(hr.until_window_closes(), store="again").to_stream()
