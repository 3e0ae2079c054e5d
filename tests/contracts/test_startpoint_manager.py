"""`StartpointManager` and `OffsetManager` over every system's metadata store (seed: SEP-18)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from headrace.client.startpoint_manager import ENTRIES_PER_REQUEST_MAX, OffsetManager, StartpointManager
from headrace.codec.documents import encode
from headrace.environment import this_user
from headrace.errors import ConfigError, StartpointError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.commits import DriverLease
from headrace.model.expansion import SetSSPTaskMapping
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.startpoint import (
    PositionType,
    Resolution,
    Startpoint,
    StartpointEntry,
    StartpointKey,
    StartpointRecord,
    StartpointStatus,
    StatePolicy,
)
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName

HOLDER = DriverLease("run-1", "another-host", 17, "1@1", "boot", 0)
EARLIEST, LATEST = Startpoint(PositionType.EARLIEST), Startpoint(PositionType.LATEST)
AT_7 = Startpoint(PositionType.SPECIFIC_OFFSET, 7)
TASKS = tuple(TaskName(PartitionGroup(number)) for number in range(3))
NOW_US = 1_800_000_000_000_000


def ssp(partition: int) -> SSP:
    return SSP("log", "views", partition)


@pytest.fixture
def manager(metadata_store: Any) -> StartpointManager:
    times = iter(range(1_000, 1_000_000, 10))
    return StartpointManager(metadata_store, written_by="ann@desk", clock_us=lambda: next(times))


@pytest.fixture
def epoch(job_store: Any) -> int:
    return int(job_store.acquire(HOLDER, 0))


def on_record(entry: StartpointEntry, status: StartpointStatus) -> dict[str, bytes]:
    """What a driver writes that has taken it up."""
    resolutions = (
        ()
        if status in (StartpointStatus.SUPERSEDED, StartpointStatus.DELETED)
        else (Resolution(TASKS[0], entry.key.ssp, 7, 20),)
    )
    return {entry.id: encode(StartpointRecord(entry, resolutions, NOW_US, status, NOW_US))}


class TestWriting:
    def test_what_is_written_is_read_back_with_who_and_when(self, manager: StartpointManager, metadata_store: Any) -> None:
        id_ = manager.write_startpoint(ssp(0), AT_7)
        found = manager.read_startpoint(ssp(0))
        assert found == StartpointEntry(id_, StartpointKey(ssp(0)), AT_7, "ann@desk", 1_000)
        assert manager.read_startpoint(ssp(1)) is None
        assert StartpointManager(metadata_store).read_all_startpoints() == {StartpointKey(ssp(0)): found}

    def test_it_is_kept_as_json_of_a_version_under_a_name_of_its_own(
        self, manager: StartpointManager, metadata_store: Any
    ) -> None:
        id_ = manager.write_startpoint(ssp(0), AT_7, StatePolicy.REWIND)
        (stored,) = metadata_store.requests("startpoints").values()
        text = json.loads(stored)
        assert text["wire"] == 1
        assert text["set"] == [
            {
                "id": id_,
                "ssp": "log.views.0",
                "task": None,
                "position_type": "SPECIFIC_OFFSET",
                "position": 7,
                "written_by": "ann@desk",
                "written_at_us": 1_000,
                "state": "rewind",
            }
        ]
        assert metadata_store.all("startpoints") == {}  # only a driver writes values

    def test_those_of_one_command_are_listed_by_partition_and_task(self, manager: StartpointManager) -> None:
        keys = [StartpointKey(ssp(number), task) for number in range(12) for task in (None, *TASKS)]
        later = [StartpointEntry(f"{99 - at:012}", key, LATEST, "ann@desk", 2_000) for at, key in enumerate(keys)]
        earlier = [StartpointEntry(f"{49 - at:012}", key, EARLIEST, "ann@desk", 1_000) for at, key in enumerate(keys)]
        manager.write_startpoints(later)
        manager.write_startpoints(earlier)
        assert [known.entry for known in manager.records().values()] == [*earlier, *later]

    def test_a_second_one_overwrites_those_of_no_other_key(self, manager: StartpointManager) -> None:
        for_both = StartpointKey(ssp(0))
        for_one = StartpointKey(ssp(0), TASKS[0])
        manager.write_startpoint(for_both, EARLIEST)
        manager.write_startpoint(for_one, AT_7)
        manager.write_startpoint(ssp(1), EARLIEST)
        manager.write_startpoint(ssp(1), LATEST)
        found = manager.read_all_startpoints()
        assert {key: entry.startpoint for key, entry in found.items()} == {
            for_both: EARLIEST,
            for_one: AT_7,
            StartpointKey(ssp(1)): LATEST,
        }

    def test_a_clock_that_stands_still_or_goes_back_does_not_decide_which_was_later(self, metadata_store: Any) -> None:
        times = iter([50, 50, 40])
        manager = StartpointManager(metadata_store, clock_us=lambda: next(times))
        for startpoint in (EARLIEST, LATEST, AT_7):
            manager.write_startpoint(ssp(0), startpoint)
        found = manager.read_startpoint(ssp(0))
        assert found is not None and (found.startpoint, found.written_at_us) == (AT_7, 52)
        assert found.written_by == this_user()

    def test_an_entry_is_written_as_it_is(self, manager: StartpointManager) -> None:
        entry = StartpointEntry("from-a-file", StartpointKey(ssp(0)), AT_7, "eve@host", 17, StatePolicy.REWIND)
        assert manager.write_startpoint(ssp(0), entry) == "from-a-file"
        assert manager.read_startpoint(ssp(0)) == entry
        with pytest.raises(StartpointError, match="not for"):
            manager.write_startpoint(ssp(1), entry)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("log.views.0", AT_7), r"ssp='log\.views\.0': expected a SystemStreamPartition, found str"),
            ((SSP("log", "views", 0), "latest"), "startpoint='latest': expected a Startpoint, found str"),
            ((SSP("log", "views", 0), 7), "startpoint=7: expected a Startpoint, found int"),
            ((SSP("log", "views", 0), AT_7, "drop"), "state 'drop': expected 'keep' or 'rewind'"),
        ],
    )
    def test_what_is_no_startpoint_is_refused_before_anything_is_written(
        self, arguments: tuple[Any, ...], said: str, manager: StartpointManager, metadata_store: Any
    ) -> None:
        with pytest.raises((StartpointError, ConfigError), match=said):
            manager.write_startpoint(*arguments)
        with pytest.raises((StartpointError, ConfigError), match=said):
            manager.write_startpoints({arguments[0]: arguments[1]}, *arguments[2:])
        with pytest.raises(StartpointError, match="expected a StartpointEntry, found"):
            manager.write_startpoints([AT_7])  # type: ignore[list-item]
        assert metadata_store.requests("startpoints") == {}

    def test_a_state_may_be_said_as_text(self, manager: StartpointManager) -> None:
        manager.write_startpoint(ssp(0), AT_7, "rewind")
        found = manager.read_startpoint(ssp(0))
        assert found is not None and found.state is StatePolicy.REWIND

    def test_many_are_one_request_as_of_one_time(self, manager: StartpointManager, metadata_store: Any) -> None:
        ids = manager.write_startpoints({ssp(partition): EARLIEST for partition in range(20)})
        assert len(metadata_store.requests("startpoints")) == 1
        found = manager.read_all_startpoints()
        assert [found[StartpointKey(ssp(partition))].id for partition in range(20)] == list(ids)
        assert {entry.written_at_us for entry in found.values()} == {1_000}

    def test_more_than_fit_into_one_request_are_several(self, manager: StartpointManager, metadata_store: Any) -> None:
        entries = [manager.entry_of(ssp(number), EARLIEST) for number in range(2 * ENTRIES_PER_REQUEST_MAX + 1)]
        manager.write_startpoints(entries)
        assert len(metadata_store.requests("startpoints")) == 3
        assert list(manager.read_all_startpoints().values()) == entries

    def test_a_batch_is_written_when_it_ends(self, manager: StartpointManager, metadata_store: Any) -> None:
        with manager.batch():
            first = manager.write_startpoint(ssp(0), EARLIEST)
            manager.write_startpoints({ssp(1): LATEST})
            assert manager.read_all_startpoints() == {}
            with pytest.raises(StartpointError, match="open already"), manager.batch():
                pass
        assert len(metadata_store.requests("startpoints")) == 1
        found = manager.read_startpoint(ssp(0))
        assert found is not None and found.id == first

    def test_of_a_batch_that_raises_nothing_is_written(self, manager: StartpointManager, metadata_store: Any) -> None:
        def fails() -> None:
            with manager.batch():
                manager.write_startpoint(ssp(0), EARLIEST)
                raise KeyError

        with pytest.raises(KeyError):
            fails()
        assert metadata_store.requests("startpoints") == {}
        manager.write_startpoint(ssp(0), LATEST)  # and the batch is over
        assert len(metadata_store.requests("startpoints")) == 1


class TestReading:
    def test_of_one_for_all_and_one_for_a_task_the_later_counts(self, manager: StartpointManager) -> None:
        mine, other = StartpointKey(ssp(0), TASKS[0]), StartpointKey(ssp(0), TASKS[1])
        manager.write_startpoint(mine, EARLIEST)
        manager.write_startpoint(ssp(0), LATEST)
        assert self._read(manager, mine, other, ssp(0)) == [LATEST, LATEST, LATEST]
        manager.write_startpoint(mine, AT_7)
        assert self._read(manager, mine, other, ssp(0)) == [AT_7, LATEST, LATEST]

    def test_at_a_tie_the_tasks_own_counts(self, manager: StartpointManager) -> None:
        mine = StartpointKey(ssp(0), TASKS[0])
        manager.write_startpoints({mine: AT_7, StartpointKey(ssp(0)): LATEST})
        assert self._read(manager, mine, ssp(0)) == [AT_7, LATEST]

    def test_one_of_a_task_that_is_gone_counts_for_those_that_read_the_ssp(
        self, manager: StartpointManager, job_store: Any, epoch: int
    ) -> None:
        mapping = SetSSPTaskMapping(ssp(0), (TASKS[1],))
        job_store.write_metadata(epoch, "ssp-assignment", {str(ssp(0)): encode(mapping)})
        manager.write_startpoint(StartpointKey(ssp(0), TASKS[0]), AT_7)
        assert self._read(manager, StartpointKey(ssp(0), TASKS[1]), ssp(0)) == [AT_7, AT_7]

    def test_one_that_is_pending_still_counts_and_an_applied_one_does_not(
        self, manager: StartpointManager, job_store: Any, metadata_store: Any, epoch: int
    ) -> None:
        entry = manager.entry_of(ssp(0), AT_7)
        job_store.write_metadata(epoch, "startpoints", on_record(entry, StartpointStatus.PENDING))
        assert manager.read_startpoint(ssp(0)) == entry
        older = replace(entry, id="older", written_at_us=entry.written_at_us - 1)
        manager.write_startpoint(ssp(0), older)
        assert manager.read_all_startpoints() == {entry.key: entry}
        job_store.write_metadata(epoch, "startpoints", on_record(entry, StartpointStatus.APPLIED))
        assert manager.read_startpoint(ssp(0)) == older

    def test_a_request_that_is_on_record_already_is_seen_once(
        self, manager: StartpointManager, job_store: Any, epoch: int
    ) -> None:
        entry = manager.entry_of(ssp(0), AT_7)
        manager.write_startpoint(ssp(0), entry)
        job_store.write_metadata(
            epoch, "startpoints", on_record(entry, StartpointStatus.APPLIED)
        )  # and the request was not removed
        assert manager.read_startpoint(ssp(0)) is None
        (known,) = manager.records().values()
        assert known.status is StartpointStatus.APPLIED

    def test_it_can_be_removed_when_it_is_read(self, manager: StartpointManager) -> None:
        id_ = manager.write_startpoint(ssp(0), AT_7)
        found = manager.read_startpoint(ssp(0), remove_upon_read=True)
        assert found is not None and found.id == id_
        assert manager.read_startpoint(ssp(0), remove_upon_read=True) is None
        assert manager.read_all_startpoints() == {}

    @staticmethod
    def _read(manager: StartpointManager, *keys: StartpointKey | SSP) -> list[Startpoint | None]:
        return [found and found.startpoint for found in map(manager.read_startpoint, keys)]


class TestDeleting:
    def test_by_id_and_by_key(self, manager: StartpointManager) -> None:
        first, second = manager.write_startpoint(ssp(0), EARLIEST), manager.write_startpoint(ssp(0), LATEST)
        of_task = manager.write_startpoint(StartpointKey(ssp(0), TASKS[0]), AT_7)
        assert manager.delete_startpoint(second) == (second,)
        found = manager.read_startpoint(ssp(0))
        assert found is not None and found.id == first
        assert manager.delete_startpoint(ssp(0)) == (first,)
        assert manager.delete_startpoint(ssp(0)) == ()
        assert [entry.id for entry in manager.read_all_startpoints().values()] == [of_task]

    def test_of_one_that_is_not_known_the_error_names_those_that_are(self, manager: StartpointManager) -> None:
        id_ = manager.write_startpoint(ssp(0), EARLIEST)
        with pytest.raises(StartpointError, match="no startpoint 'nonesuch'") as raised:
            manager.delete_startpoint("nonesuch")
        assert id_ in str(raised.value)

    def test_one_that_is_done_with_says_what_became_of_it(self, manager: StartpointManager, job_store: Any, epoch: int) -> None:
        entry, kept = manager.entry_of(ssp(0), AT_7), manager.write_startpoint(ssp(1), AT_7)
        job_store.write_metadata(epoch, "startpoints", on_record(entry, StartpointStatus.APPLIED))
        with pytest.raises(StartpointError, match=r"log\.views\.0 was applied at 2027-01-15T08:00:00Z"):
            manager.delete_startpoints([kept, entry.id])
        assert manager.records()[kept].status is None  # all of them, or none
        assert manager.delete_startpoint(ssp(0)) == ()

    def test_what_became_of_each_is_told_oldest_first(self, manager: StartpointManager, job_store: Any, epoch: int) -> None:
        states = [StartpointStatus.APPLIED, StartpointStatus.PENDING, StartpointStatus.SUPERSEDED, StartpointStatus.PENDING]
        entries = [manager.entry_of(ssp(number), AT_7) for number in range(4)]
        waiting, deleted = manager.write_startpoint(ssp(4), AT_7), manager.write_startpoint(ssp(5), AT_7)
        for entry, status in reversed(list(zip(entries, states, strict=True))):
            job_store.write_metadata(epoch, "startpoints", on_record(entry, status))
        manager.delete_startpoints([deleted, entries[3].id])
        found = manager.records()
        assert list(found) == [*(entry.id for entry in entries), waiting, deleted]
        assert [(known.status, known.deletion_requested) for known in found.values()] == [
            *((status, False) for status in states[:3]),
            (StartpointStatus.PENDING, True),
            (None, False),
            (StartpointStatus.DELETED, True),
        ]
        assert found[entries[1].id].record is not None and found[waiting].record is None


class TestElsewhere:
    def test_requests_go_to_the_other_store_and_both_are_read(self, system: Any, job_store: Any, epoch: int) -> None:
        own, elsewhere = system.metadata_store("delays"), system.metadata_store("elsewhere")
        manager = StartpointManager(own, elsewhere)
        there = manager.write_startpoint(ssp(0), AT_7)
        here = StartpointManager(own).write_startpoint(ssp(1), LATEST)  # by somebody who does not know of the other one
        assert len(elsewhere.requests("startpoints")) == len(own.requests("startpoints")) == 1
        assert {entry.id for entry in manager.read_all_startpoints().values()} == {there, here}
        entry = manager.records()[there].entry
        job_store.write_metadata(epoch, "startpoints", on_record(entry, StartpointStatus.APPLIED))
        assert manager.read_startpoint(ssp(0)) is None
        manager.delete_startpoint(here)
        assert manager.read_all_startpoints() == {}
        assert len(own.requests("startpoints")) == 1


class TestOffsetManager:
    def test_it_composes_startpoints_and_checkpoints(
        self, system: Any, manager: StartpointManager, job_store: Any, epoch: int
    ) -> None:
        system.create_stream("views", 1)  # some systems keep positions of streams that exist only
        offsets = OffsetManager(manager, job_store)
        task = TaskModel(TASKS[0], (ssp(0),))
        sub = SubTopologyModel(None, (ContainerModel(0, (task,)),))
        model = JobModel("delays", 1, (sub,), {"views": 1})
        job_store.commit_job_model(epoch, model, [Checkpoint(TASKS[0], RoundId(epoch, None, 0), 1, {ssp(0): 42})])
        assert offsets.starting_offset_from_checkpoint(TASKS[0], ssp(0)) == 42
        assert offsets.starting_offset_from_checkpoint(TASKS[0], ssp(1)) is None
        assert offsets.starting_offset_from_checkpoint(TASKS[1], ssp(0)) is None
        with pytest.raises(StartpointError, match=r"expected a hr\.TaskName, found str"):
            offsets.starting_offset_from_checkpoint(str(TASKS[0]), ssp(0))
        assert offsets.get_startpoint(ssp(0)) is None
        id_ = offsets.set_startpoint(StartpointKey(ssp(0), TASKS[0]), AT_7)
        assert offsets.get_startpoint(StartpointKey(ssp(0), TASKS[0])) == AT_7
        assert manager.records()[id_].status is None
        assert offsets.starting_offset_from_checkpoint(TASKS[0], ssp(0)) == 42
        with pytest.deprecated_call(match="starting_offset_from_checkpoint"):
            assert offsets.starting_offset(TASKS[0], ssp(0)) == 42
