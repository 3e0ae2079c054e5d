"""Putting dead letters back: the records and what is known of the letters, all of it or nothing, and each letter once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headrace.codec.job_records import DEAD_LETTERS
from headrace.errors import FencedError, StreamNotFoundError
from headrace.record import Record

DONE = b"retried"


@pytest.fixture
def application(system: Any) -> str:
    """One that has run, with a stream of three partitions."""
    system.create_stream("flights", 3)
    system.metadata_store("delays").request("other", b"x")  # where its metadata is exists from then on
    return "delays"


def read(system: Any) -> list[tuple[Any, ...]]:
    return [(one.partition, one.key, one.value, one.timestamp_us, one.headers) for one in system.consume("flights")]


def marks(system: Any) -> dict[str, bytes]:
    found: dict[str, bytes] = system.metadata_store("delays").all(DEAD_LETTERS)
    return found


def test_records_come_as_they_are_into_their_partitions_with_the_marks(system: Any, application: str) -> None:
    records = [Record(b"k", b"v", 5_000, (("h", b"1"), ("none", None)), 2), Record(None, None, 7_000, (), 0)]
    system.put_back(application, {"flights": records}, {"0:7": DONE, "1:3": DONE})
    assert sorted(read(system), key=str) == [(0, None, None, 7_000, ()), (2, b"k", b"v", 5_000, (("h", b"1"), ("none", None)))]
    assert marks(system) == {"0:7": DONE, "1:3": DONE}
    system.put_back(application, {}, {"2:2": b"discarded", "0:7": None})
    assert marks(system) == {"1:3": DONE, "2:2": b"discarded"} and len(read(system)) == 2


def test_a_letter_that_is_dealt_with_is_refused_and_nothing_of_its_batch_is_written(system: Any, application: str) -> None:
    system.put_back(application, {"flights": [Record(b"a", b"1", 0, (), 0)]}, {"0:1": DONE})
    with pytest.raises(FencedError, match="0:1"):
        system.put_back(application, {"flights": [Record(b"b", b"2", 0, (), 0)]}, {"0:2": DONE, "0:1": DONE})
    assert [key for _, key, *_ in read(system)] == [b"a"] and marks(system) == {"0:1": DONE}


def test_a_mark_of_another_stream_refuses_nothing_and_one_that_names_none_does(system: Any, application: str) -> None:
    system.put_back(application, {}, {"0:1": b"retried@old", "0:2": b"retried"})
    system.put_back(application, {}, {"0:1": b"discarded@new"})
    for mark in (b"retried@new", b"retried"):
        with pytest.raises(FencedError, match="0:1"):
            system.put_back(application, {}, {"0:1": mark})
    with pytest.raises(FencedError, match="0:2"):
        system.put_back(application, {}, {"0:2": b"retried@new"})
    assert marks(system) == {"0:1": b"discarded@new", "0:2": b"retried"}


def test_marks_of_two_streams_stay_apart_and_each_is_refused_a_second_time_in_the_form_of_older_versions_too(
    system: Any, application: str
) -> None:
    system.put_back(application, {}, {"old/0:1": DONE, "0:2": b"retried@old", "0:3": DONE})
    system.put_back(application, {}, {"new/0:1": DONE, "new/0:2": DONE})
    for key, letter in {"old/0:1": "0:1", "new/0:1": "0:1", "old/0:2": "0:2", "new/0:3": "0:3"}.items():
        with pytest.raises(FencedError, match=f"dead letter {letter} "):
            system.put_back(application, {}, {key: DONE})
    assert marks(system).keys() == {"old/0:1", "new/0:1", "0:2", "new/0:2", "0:3"}


def test_where_a_stream_is_missing_nothing_is_written(system: Any, application: str) -> None:
    there, missing = Record(b"a", b"1", 0, (), 0), Record(b"b", b"2", 0, (), 0)
    with pytest.raises(StreamNotFoundError):
        system.put_back(application, {"flights": [there], "nothing": [missing]}, {"0:1": DONE, "0:2": DONE})
    assert read(system) == [] and marks(system) == {}


def test_of_several_at_once_each_letter_is_dealt_with_once(system: Any, application: str) -> None:
    def put(number: int) -> bool:
        batch = {f"0:{letter}": DONE for letter in range(20)}
        records = [Record(b"%d" % letter, b"%d" % number, 0, (), 1) for letter in range(20)]
        try:
            system.put_back(application, {"flights": records}, batch)
        except FencedError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(put, range(4)))
    assert sum(done) == 1, done
    found = read(system)
    assert sorted(int(key) for _, key, *_ in found) == list(range(20)) and len({value for _, _, value, *_ in found}) == 1
