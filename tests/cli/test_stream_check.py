"""`headrace stream check`: a key in two partitions where no hash puts it is reported, by a sample of the newest records."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.cli.app_loading import load_app
from headrace.cli.stream_check import PAIRS_MAX, TEXT_MAX, KeySample, text_of
from headrace.core.keys.hashing import partition_of
from support.world import caught_up

Run = Callable[..., Any]
KEYS = [f"k{number}" for number in range(40)]
APP = """
import headrace as hr

app = hr.App("views", system="log:./data")
app.stream("views", key=hr.String(), value=hr.Long()).group_by_key().count(store="n")
"""


def send(*records: hr.Record) -> None:
    with hr.open_system("log:./data") as system:
        system.produce("views", records, key=hr.String(), value=hr.Long())


def hashed(partitions: int) -> list[hr.Record]:
    return [hr.Record(key, 1, partition=partition_of(key.encode(), partitions)) for key in KEYS]


def run_the_app() -> None:
    Path("views.py").write_text(APP)
    caught_up(load_app("views.py"))


@pytest.fixture
def views(fresh: Run) -> Run:
    """Commands where a stream `views` of 4 partitions has keys in the partitions of their hash."""
    with hr.open_system("log:./data") as system:
        system.create_stream("views", 4)
    send(*hashed(4))
    return fresh


def test_keys_in_their_partitions_are_fine(views: Run) -> None:
    send(*(hr.Record(None, 1, partition=number) for number in range(4)))  # without a key they may be anywhere
    result = views("stream", "check", "views")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "views: 40 keys in 44 records, 0 in two partitions\n"


def test_a_key_in_two_partitions_is_reported_with_exit_code_1(views: Run) -> None:
    there = partition_of(b"k3", 4)
    elsewhere = (there + 1) % 4
    send(hr.Record("k3", 1, partition=elsewhere))
    low, high = sorted((there, elsewhere))
    result = views("stream", "check", "views", "--key", "string")
    assert result.exit_code == 1
    assert result.stdout == "views: 40 keys in 41 records, 1 in two partitions\n"
    warning, note = result.stderr.splitlines()
    assert warning.startswith(f"warning: stream 'views': key 'k3' is in partitions {low} and {high}; a producer that goes by")
    assert "number of partitions (4, or a multiple of it)" in warning
    assert 'partitioning="other"' in warning
    assert note.startswith("note: 4 is the smallest number of partitions that is on record")
    result = views("stream", "check", "views", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "stream": "views",
        "records": 41,
        "keys": 40,
        "smallest_partition_count": 4,
        "keys_in_two_partitions": [{"key": "k3", "partitions": [low, high]}],
    }


def test_only_the_newest_records_of_each_partition_are_read(views: Run) -> None:
    send(hr.Record("k3", 1, partition=(partition_of(b"k3", 4) + 1) % 4))
    send(*(hr.Record(None, 1, partition=number) for number in range(4) for _ in range(5)))
    result = views("stream", "check", "views", "--records", "5")
    assert (result.exit_code, result.stdout) == (0, "views: 0 keys in 20 records, 0 in two partitions\n")
    assert views("stream", "check", "views", "--records", "100").exit_code == 1


@pytest.mark.parametrize("named", [["views.py"], []])
def test_keys_that_moved_with_an_expansion_are_where_they_may_be(views: Run, named: list[str]) -> None:
    """What counts is the smallest number of partitions on record, of the application or of any of the system."""
    run_the_app()
    assert views("stream", "expand", "views", "--partitions", "8").exit_code == 0
    send(*hashed(8))
    assert views("stream", "check", "views", *named).exit_code == 0
    send(hr.Record("k3", 1, partition=(partition_of(b"k3", 8) + 1) % 8))
    result = views("stream", "check", "views", *named)
    assert result.exit_code == 1
    assert "number of partitions (4, or a multiple of it)" in result.stderr


def test_the_keys_are_shown_by_the_serde_of_the_application(fresh: Run) -> None:
    Path("counts.py").write_text(APP.replace("key=hr.String()", "key=hr.Long()").replace('"views"', '"numbers"'))
    with hr.open_system("log:./data") as system:
        system.create_stream("numbers", 2)
        records = [hr.Record(7, 1, partition=number) for number in range(2)]
        system.produce("numbers", records, key=hr.Long(), value=hr.Long())
    assert "key '7' is in partitions 0 and 1" in fresh("stream", "check", "numbers", "counts.py").stderr
    assert "key '0x0000000000000007' is in" in fresh("stream", "check", "numbers").stderr


def test_of_many_pairs_of_partitions_the_first_are_warned_of(fresh: Run) -> None:
    with hr.open_system("log:./data") as system:
        system.create_stream("views", 20)
    numbers = count()
    send(*(hr.Record(f"k{next(numbers)}", 1, partition=number) for number in range(20)))
    send(*(hr.Record(f"k{number}", 1, partition=(number + 1) % 20) for number in range(20)))
    result = fresh("stream", "check", "views")
    assert sum(line.startswith("warning: ") for line in result.stderr.splitlines()) == PAIRS_MAX
    assert "20 keys in 40 records, 20 in two partitions" in result.stdout


def test_a_stream_that_is_not_there_is_named(views: Run) -> None:
    result = views("stream", "check", "vews")
    assert result.exit_code == 1
    assert "'vews'" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_key_of_the_configuration_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(hr.NotSupportedError, match=r"check_partitioning = 'sample' \(App.*\n.*headrace stream check NAME"):
        hr.App("views", f"log:{tmp_path}", check_partitioning="sample")
    hr.App("views", f"log:{tmp_path}", check_partitioning="off")


@settings(max_examples=200, deadline=None)
@given(
    smallest=st.integers(1, 4), seen=st.lists(st.tuples(st.none() | st.binary(max_size=2), st.integers(0, 11)), max_size=30)
)
def test_what_is_found_is_what_a_look_at_everything_finds(smallest: int, seen: list[tuple[bytes | None, int]]) -> None:
    sample = KeySample(smallest)
    sample.add(seen)
    partitions: dict[bytes, set[int]] = {}
    for key, partition in seen:
        if key is not None:
            partitions.setdefault(key, set()).add(partition)
    assert sample.records == len(seen)
    assert sample.first.keys() == partitions.keys()
    assert sample.apart.keys() == {key for key, mine in partitions.items() if len({p % smallest for p in mine}) > 1}
    for key, (one, other) in sample.apart.items():
        assert {one, other} <= partitions[key]
        assert one % smallest != other % smallest
        assert one < other


class Failing(hr.String):
    def decode(self, data: bytes) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("serde", "key", "text"),
    [
        (hr.String(), "ü".encode(), "ü"),
        (hr.String(), b"\xff", "0xff"),
        (hr.Long(), hr.Long().encode(7), "7"),
        (hr.Json(), b'{"a":1}', "{'a': 1}"),
        (hr.Bytes(), b"plain", "plain"),
        (hr.Bytes(), b"a\n", "0x610a"),
        (Failing(), b"as it is", "as it is"),
        (hr.String(), b"x" * 61, "x" * 59 + "…"),
    ],
)
def test_keys_are_shown_as_people_read_them(serde: Any, key: bytes, text: str) -> None:
    assert text_of(serde, key) == text
    assert len(text) <= TEXT_MAX
