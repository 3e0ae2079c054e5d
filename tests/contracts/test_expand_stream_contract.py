"""What `expand_stream` does on every system: the old partitions stay as they are, and nobody goes by the old count for long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.kafka import records as kafka_records
from headrace.adapters.log import records as log_records
from headrace.core.keys.hashing import partition_of
from headrace.errors import ConfigError, HeadraceError, IncompatibleChangeError, StreamNotFoundError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.commits import DriverLease
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName
from headrace.record import Record

KEYS = [b"key-%d" % number for number in range(40)]


def opened_again(system: Any) -> Any:
    """Another handle of the same system, as another process has one."""
    url = f"log:{system.root}" if system.name == "log" else f"kafka://{system.connection.servers}"
    return hr.open_system(url)


def places(system: Any, value: bytes) -> dict[bytes, int]:
    """Key to the partition of its record with this value."""
    return {record.key: record.partition for record in system.consume("flights") if record.value == value}


def by_count(count: int) -> dict[bytes, int]:
    return {key: partition_of(key, count) for key in KEYS}


def test_old_partitions_keep_all_and_new_ones_are_empty(system: Any) -> None:
    created = system.create_stream("flights", 2)
    system.produce("flights", [(key, b"old") for key in KEYS])
    before, records = system.end_offsets("flights"), list(system.consume("flights"))
    expanded = system.expand_stream("flights", 6)
    assert (expanded.name, expanded.partitions, expanded.id, expanded.internal_of) == ("flights", 6, created.id, None)
    assert system.describe_stream("flights") == expanded
    assert system.streams() == [expanded]
    new = dict.fromkeys(range(2, 6), 0)
    assert system.end_offsets("flights") == before | new
    assert system.high_watermarks("flights") == before | new
    assert system.beginning_offsets("flights") == dict.fromkeys(range(6), 0)
    assert system.offsets_for_time("flights", 0) == {0: 0, 1: 0} | new
    assert list(system.consume("flights")) == records
    assert list(system.consume("flights", partitions=[5])) == []


def test_keys_go_by_the_new_count_at_once(system: Any) -> None:
    """The producer of the handle has written by the old count, and keeps what it knows of the stream."""
    system.create_stream("flights", 2)
    system.produce("flights", [(key, b"old") for key in KEYS])
    system.expand_stream("flights", 8)
    system.produce("flights", [(key, b"new") for key in KEYS])
    assert places(system, b"old") == by_count(2)
    assert places(system, b"new") == by_count(8)


def test_other_handles_that_were_open_see_it_at_once(system: Any) -> None:
    system.create_stream("flights", 2)
    with opened_again(system) as other:
        other.produce("flights", [(key, b"old") for key in KEYS])
        ends = other.end_offsets("flights")
        system.expand_stream("flights", 4)
        assert other.end_offsets("flights") == other.high_watermarks("flights") == ends | {2: 0, 3: 0}
        assert other.beginning_offsets("flights") == dict.fromkeys(range(4), 0)
        assert [stream.partitions for stream in other.streams()] == [4]
        other.produce("flights", [(key, b"new") for key in KEYS])
        other.produce("flights", [Record(b"asked", b"asked", partition=3)])
        assert places(other, b"new") == by_count(4)
        assert places(other, b"asked") == {b"asked": 3}
        assert other.expand_stream("flights", 5).partitions == 5
    assert system.describe_stream("flights").partitions == 5


def test_a_stream_grows_again_and_again(system: Any) -> None:
    system.create_stream("flights", 1)
    for count in (2, 4, 12):
        assert system.expand_stream("flights", count).partitions == count
        system.produce("flights", [(key, b"%d" % count) for key in KEYS])
    assert [places(system, b"%d" % count) for count in (2, 4, 12)] == [by_count(count) for count in (2, 4, 12)]


def test_a_stream_of_an_application_stays_its_own(system: Any) -> None:
    system.create_stream("by-carrier", 2, internal_of="delays")
    assert system.expand_stream("by-carrier", 4).internal_of == "delays"
    assert [(stream.internal_of, stream.partitions) for stream in system.streams()] == [("delays", 4)]


@pytest.mark.parametrize(
    ("name", "partitions", "error", "text"),
    [
        ("flihgts", 8, StreamNotFoundError, r"'flihgts' does not exist\n.*'flights'"),
        ("flights", 4, IncompatibleChangeError, "'flights' has 4 partitions, and cannot be expanded to 4"),
        ("flights", 2, IncompatibleChangeError, "'flights' has 4 partitions, and cannot be expanded to 2"),
        ("flights", 0, ConfigError, "0 partitions: expected a whole number"),
        ("flights", True, ConfigError, "True partitions: expected a whole number"),
        ("flights", "8", ConfigError, "'8' partitions: expected a whole number"),
    ],
)
def test_what_is_no_expansion_is_refused(
    system: Any, name: str, partitions: Any, error: type[HeadraceError], text: str
) -> None:
    created = system.create_stream("flights", 4)
    with pytest.raises(error, match=text):
        system.expand_stream(name, partitions)
    assert system.streams() == [created]


def test_applications_are_those_that_have_run(system: Any) -> None:
    system.create_stream("flights", 1)
    system.create_stream("by-carrier-metadata", 1)  # a user's own
    system.create_stream("by-carrier-checkpoints", 1)
    assert system.applications() == [] and not system.has_run("by-carrier")
    for application in ("views", "delays"):
        store = system.job_store(application)
        epoch = store.acquire(DriverLease("run-1", "another-host", 17, "1@1", "boot", 0), 0)
        task = TaskModel(TaskName(PartitionGroup(0)), (SSP(system.name, "flights", 0),))
        model = JobModel(application, 1, (SubTopologyModel(None, (ContainerModel(0, (task,)),)),), {"flights": 1})
        start = Checkpoint(task.name, RoundId(epoch, None, 0), 1, {task.ssps[0]: 0})
        store.commit_job_model(epoch, model, [start])
    assert system.applications() == ["delays", "views"]
    with opened_again(system) as other:
        assert other.applications() == ["delays", "views"]
        assert [other.has_run(name) for name in ("delays", "views", "flights", "by-carrier")] == [True, True, False, False]
        assert other.job_store("views").job_model().partition_counts == {"flights": 1}


def test_a_call_that_goes_on_for_long_comes_to_know(system: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in hand when the stream grows goes by the old count, what comes after it by the new one."""
    for module in (log_records, kafka_records):
        monkeypatch.setattr(module, "COMMIT_RECORDS", len(KEYS))
    system.create_stream("flights", 2)

    def records() -> Iterator[tuple[bytes, bytes]]:
        yield from ((key, b"old") for key in KEYS[:-1])
        with opened_again(system) as other:
            other.expand_stream("flights", 8)
        yield KEYS[-1], b"old"
        yield from ((key, b"new") for key in KEYS)

    assert system.produce("flights", records()) == 2 * len(KEYS)
    assert places(system, b"old") == by_count(2)
    assert places(system, b"new") == by_count(8)
