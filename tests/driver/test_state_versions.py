"""Cuts are taken between two rounds, and what is on record of them never names what is not there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.log.job_store import LogJobStore
from headrace.codec.documents import encode
from headrace.codec.job_records import STATE_CUTS, STATE_VERSIONS, cuts_of
from headrace.core.group.pauses import PauseOf
from headrace.core.group.state import Registration
from headrace.core.rewind.consistent_cuts import ConsistentCut
from headrace.core.rewind.replays import Replay
from headrace.core.rewind.rewinds import Rewind
from headrace.core.rewind.startpoint_rules import TaskPartition
from headrace.core.rewind.state_history import RetentionPolicy, StateVersion, abandoned_version, rewound
from headrace.driver.group.group_pauses import GroupPauses
from headrace.driver.maintenance.state_garbage import StateGarbage, files_of
from headrace.driver.maintenance.state_versions import KeptTasks, Past, StateVersions, versions_of
from headrace.errors import UnavailableError
from headrace.group.layout import GroupName
from headrace.group.processor_group import ProcessorGroup
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind
from headrace.model.commits import DriverLease
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName
from headrace.state_files.files import StateFiles
from support.zookeepers import MemoryPlace

TASKS = [TaskName(PartitionGroup(partition)) for partition in range(2)]
BEHIND = TaskName(PartitionGroup(0), "a")
WRITTEN = SSP("log", "a", 0)
S = 1_000_000
Asked = Callable[[], Mapping[SSP, int]]


def no_hook() -> None:
    """Nothing happens while the system is asked."""


class Job:
    """A source of two tasks, which write 10 records per round to a stream, and behind it a task with state; no rounds run but
    those that a test tells of. All states are one file."""

    def __init__(self, folder: Path, system: Any) -> None:
        self._folder, self.system = folder, system
        self.store = system.job_store("kept")
        self.us, self.number, self.end = 1_000 * S, 0, 0
        self.hook, self.asked = no_hook, 0
        self.current = {task: self._checkpoint(task, 0, 0) for task in [*TASKS, BEHIND]}

    def plan(
        self,
        most: int = 100,
        span_s: int | None = None,
        interval_s: int = 0,
        rewinds: Sequence[Rewind] = (),
        by_cuts: bool = True,
        counting_again: Mapping[TaskPartition, Replay] | None = None,
        pause: Callable[[], int | None] | None = None,
    ) -> StateVersions:
        """A driver starts, and has a plan."""
        self.us += 1
        self.epoch = self.store.acquire(DriverLease(f"run-{self.us}", "another-host", 17, "1@1", "boot", 0), self.us)
        self.store.release(self.epoch)
        self.garbage = StateGarbage(StateFiles(str(self._folder)), "kept")
        for name in (None, "a"):
            self.garbage.committed(name, self._of(name))
        metadata = self.system.metadata_store("kept")
        keeping = RetentionPolicy(most, None if span_s is None else span_s * S, interval_s * S)
        subs = {None: KeptTasks(TASKS, self._ends if by_cuts else None, pause), "a": KeptTasks([BEHIND])}
        self.versions = StateVersions(
            self.store,
            self.epoch,
            self.garbage,
            subs,
            Past(versions_of(metadata), cuts_of(metadata), rewinds, counting_again or {}),
            keeping,
            lambda: self.us,
        )
        self.versions.begin()
        self.garbage.collect_orphans(lambda: None)
        return self.versions

    def _of(self, name: str | None) -> list[Checkpoint]:
        return [one for task, one in self.current.items() if task.sub_topology == name]

    def _ends(self) -> Mapping[SSP, int]:
        self.asked += 1
        hook, self.hook = self.hook, no_hook
        found = {WRITTEN: self.end}
        hook()
        return found

    def _checkpoint(self, task: TaskName, number: int, position: int) -> Checkpoint:
        file = StateFile(f"kept/{task}-{number}".replace("/a/", "/a-"), StateFileKind.SNAPSHOT, 1, 1, "c", number)
        (self._folder / file.name).parent.mkdir(parents=True, exist_ok=True)
        (self._folder / file.name).touch()
        place = {SSP("log", task.sub_topology or "in", task.group.partition): position}  # type: ignore[union-attr]
        return Checkpoint(task, RoundId(1, task.sub_topology, number), 1, place, Head(number, (file,)))

    def round(self, tasks: Sequence[TaskName] = TASKS, commits: bool = True) -> None:
        """A round, in which each of these tasks reads 10 records, and writes as many."""
        name = tasks[0].sub_topology
        self.versions.began(name)
        self.us += S
        if commits:
            self.commit(tasks)
            self.garbage.committed(name, self._of(name))
            self.versions.committed(name)

    def commit(self, tasks: Sequence[TaskName]) -> None:
        """What a round of these commits; none is reported."""
        self.number += 1
        for task in tasks:
            position = 10 + sum(self.current[task].positions.values())
            self.current[task] = self._checkpoint(task, self.number, position)
            self.end += 10 if task.sub_topology is None else 0

    @property
    def cuts(self) -> list[ConsistentCut]:
        return list(cuts_of(self.system.metadata_store("kept")))

    @property
    def kept(self) -> dict[TaskName, list[int]]:
        """Of the versions on record the rounds."""
        found = versions_of(self.system.metadata_store("kept"))
        return {task: [one.checkpoint.round_id.number for one in kept] for task, kept in found.items()}

    def judge(self) -> None:
        """What is on record names what is there: cuts their versions, versions their files; and cuts agree with themselves."""
        versions = versions_of(self.system.metadata_store("kept"))
        by_round = {(task, one.checkpoint.round_id): one.checkpoint for task, kept in versions.items() for one in kept}
        for cut in self.cuts:
            read = sum(sum(by_round[task, round_id].positions.values()) for task, round_id in cut.rounds.items())
            assert (set(cut.rounds), cut.written) == (set(TASKS), {WRITTEN: read})
        there = set(StateFiles(str(self._folder)).list("kept"))
        assert files_of([*by_round.values(), *self.current.values()]) <= there

    def just_what_is_named_is_there(self) -> bool:
        named = files_of(self.versions.checkpoints()) | files_of(self.current.values())
        return named == set(StateFiles(str(self._folder)).list("kept"))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with hr.open_system(f"log:{tmp_path / 'log'}") as system:
        yield Job(tmp_path / "state", system)


def work(job: Job, rounds: int) -> None:
    for _ in range(rounds):
        job.round()
        job.versions.keep()


def rounds_of(cut: ConsistentCut) -> list[int]:
    return [cut.rounds[task].number for task in TASKS]


# --- when -----------------------------------------------------------------------------------------------------------


def test_between_rounds_and_stored_by_who_keeps(job: Job) -> None:
    versions = job.plan()
    for _ in range(3):
        job.round()
    job.round(TASKS[1:])
    assert job.cuts == [] and job.kept == {}, "rounds store nothing"
    versions.keep()
    assert [(rounds_of(cut), cut.written) for cut in job.cuts] == [
        ([0, 0], {WRITTEN: 0}),
        ([1, 1], {WRITTEN: 20}),
        ([2, 2], {WRITTEN: 40}),
        ([3, 3], {WRITTEN: 60}),
        ([3, 4], {WRITTEN: 70}),
    ]
    assert job.kept == {TASKS[0]: [0, 1, 2, 3], TASKS[1]: [0, 1, 2, 3, 4], BEHIND: [0]}
    job.judge()


def test_nothing_is_asked_where_none_is_due(job: Job) -> None:
    versions = job.plan(interval_s=60)
    versions.keep()
    for _ in range(59):
        job.round()
    assert job.asked == 1
    job.round()
    assert job.asked == 2
    versions.keep()
    assert [rounds_of(cut) for cut in job.cuts] == [[0, 0], [60, 60]]


def test_of_a_group_a_cut_is_of_what_was_read_once_all_rested(job: Job) -> None:
    """The leader hears in the background as well: what it has read a moment before the others came to rest is not of the pause
    that they rest for by the time that it asks."""
    place = MemoryPlace()
    leader, other = (ProcessorGroup(place.tree(), "/headrace", GroupName("kept"), place.clock) for _ in range(2))
    first, second = (
        group.register(Registration(id_, "host", 1, "code", "host", 1, "1@1", "boot"))
        for id_, group in (("a", leader), ("b", other))
    )
    pauses = GroupPauses(leader, leader.leading(first), first, dict)
    versions = job.plan(pause=lambda: pauses.pause_of(None))

    def hear(found: Sequence[Checkpoint]) -> None:
        job.us += S
        job.garbage.committed(None, found)
        versions.committed(None)
        versions.keep()

    pauses.cut(leader.state(), PauseOf(frozenset({"source"}), frozenset({second})), lambda: hear(job._of(None)), 0.0)
    requested = leader.state().pause
    assert requested is not None
    read = job._of(None)
    job.commit(TASKS)  # the last round of the other, which rests then
    assert other.rest(requested.number)
    hear(read)
    assert job.cuts == []
    pauses.look(leader.state(), 0.0)
    assert [(rounds_of(cut), cut.written) for cut in job.cuts] == [([1, 1], {WRITTEN: 20})]
    job.judge()


def test_one_that_is_idle_is_cut_when_it_is_due_and_not_asked_again(job: Job) -> None:
    versions = job.plan(interval_s=60)
    job.round()
    job.us += 58 * S
    versions.keep()
    assert [rounds_of(cut) for cut in job.cuts] == [[0, 0]]
    for _ in range(3):
        job.us += 60 * S
        versions.keep()
        assert [rounds_of(cut) for cut in job.cuts] == [[0, 0], [1, 1]]
    assert job.asked == 2


def test_one_that_is_idle_for_longer_than_cuts_are_kept_has_one_all_the_time(job: Job) -> None:
    versions = job.plan(span_s=600)
    job.round()
    for _ in range(50):
        versions.keep()
        assert rounds_of(job.cuts[-1]) == [1, 1]
        assert job.us - job.cuts[-1].kept_us <= 600 * S
        job.us += 59 * S
    job.judge()


def test_in_a_round_none_is_taken(job: Job) -> None:
    versions = job.plan(interval_s=60)
    job.round()
    job.us += 60 * S
    versions.began(None)
    versions.keep()
    assert job.asked == 1 and len(job.cuts) == 1


def test_one_that_failed_counts_as_running_until_the_next_is_committed(job: Job) -> None:
    versions = job.plan()
    job.round(commits=False)
    versions.keep()
    assert job.asked == 1
    job.round()
    versions.keep()
    assert [rounds_of(cut) for cut in job.cuts] == [[0, 0], [1, 1]]


@pytest.mark.parametrize("commits", [False, True])
def test_none_is_taken_where_a_round_begins_while_the_system_is_asked(job: Job, commits: bool) -> None:
    versions = job.plan(interval_s=60)
    job.round()
    job.us += 60 * S
    job.hook = lambda: job.round(commits=commits)
    asked = job.asked
    versions.keep()
    job.judge()
    assert job.asked == asked + 1 + commits, "the commit takes one by itself"
    assert [rounds_of(cut) for cut in job.cuts] == [[0, 0], [2, 2]][: 1 + commits]


def test_a_system_that_does_not_answer_fails_no_round_and_is_asked_at_the_next(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise UnavailableError("no answer")

    job.hook = fail
    versions = job.plan()
    job.hook = fail
    job.round()
    assert caplog.text.count("could not keep a version of sub-topology source, it is tried again: no answer") == 2
    versions.keep()
    assert [rounds_of(cut) for cut in job.cuts] == [[1, 1]], "as nothing runs"
    job.round()
    versions.keep()
    assert [rounds_of(cut) for cut in job.cuts] == [[1, 1], [2, 2]]


def test_a_commit_that_changes_no_task_is_no_other_cut(job: Job) -> None:
    versions = job.plan()
    job.round(TASKS[:1])
    versions.began(None)
    versions.committed(None)
    versions.keep()
    assert [rounds_of(cut) for cut in job.cuts] == [[0, 0], [1, 0]]


def test_cuts_of_one_moment_are_two_and_in_order(job: Job) -> None:
    versions = job.plan()
    for _ in range(3):
        job.round()
        job.us -= 5 * S  # the machine's clock is set back
    versions.keep()
    assert [rounds_of(cut) for cut in job.cuts] == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert job.cuts[1].kept_us - job.cuts[0].kept_us == S
    assert [cut.kept_us - job.cuts[1].kept_us for cut in job.cuts[1:]] == [0, 1, 2]


def test_as_long_as_a_rewind_may_be_undone_there_is_none(job: Job) -> None:
    job.plan()
    for _ in range(2):
        job.round()
    job.versions.keep()
    _, first, second = job.cuts
    past = versions_of(job.system.metadata_store("kept"))
    rewind = Rewind(job.us, {task: job.current[task].round_id for task in [*TASKS, BEHIND]}, {WRITTEN: (20, 40)})
    left = []
    for task in TASKS:
        there = next(one for one in past[task] if one.checkpoint.round_id == first.rounds[task])
        left.append(abandoned_version(past[task], job.current[task], there, job.us))
        job.current[task] = rewound(job.current[task], there)
    job.store.write_metadata(job.epoch, STATE_VERSIONS, {one.key: encode(one) for one in left})
    versions = job.plan(rewinds=[rewind])
    versions.keep()
    assert job.cuts[1:] == [first, second], "what was left stays"
    job.round([BEHIND])
    job.us += S
    versions.keep()
    third = job.cuts[-1]
    assert (rounds_of(third), third.written) == ([1, 1], {WRITTEN: 40}), "behind the stream somebody went on"
    job.round()
    versions.keep()
    assert [rounds_of(cut) for cut in job.cuts] == [[0, 0], [1, 1], [1, 1], [4, 4]]
    assert second not in job.cuts


# --- what stays -----------------------------------------------------------------------------------------------------


def test_versions_that_no_cut_is_of_go_with_their_files(job: Job) -> None:
    versions = job.plan(most=2)
    for _ in range(3):
        job.round()
        job.round(TASKS[:1])
        versions.keep()
        job.judge()
        assert len(job.cuts) == 2
        assert job.just_what_is_named_is_there()
    assert [rounds_of(cut) for cut in job.cuts] == [[5, 5], [6, 5]]
    assert {task: job.kept[task] for task in TASKS} == {TASKS[0]: [5, 6], TASKS[1]: [5]}


def test_where_none_are_kept_nothing_is_asked(job: Job) -> None:
    versions = job.plan(most=2)
    job.round()
    versions.keep()
    asked, versions = job.asked, job.plan(most=0)
    job.round()
    versions.keep()
    assert (job.asked, job.cuts, job.kept) == (asked, [], {})
    assert job.just_what_is_named_is_there()


def test_a_restart_carries_on(job: Job) -> None:
    for start in range(3):
        versions = job.plan(interval_s=60)
        job.round()
        job.us += 59 * S
        versions.keep()
        job.judge()
        assert [rounds_of(cut) for cut in job.cuts] == [[number, number] for number in range(start + 2)]
    versions = job.plan()
    versions.keep()
    assert len(job.cuts) == 4, "what it begins with is kept already"


def test_what_leads_to_no_state_any_more_has_no_cuts(job: Job) -> None:
    versions = job.plan()
    job.round()
    versions.keep()
    versions = job.plan(by_cuts=False)
    versions.keep()
    assert job.cuts == [] and job.kept[TASKS[0]] == [0, 1]


@pytest.mark.parametrize("number", [0, 9])
def test_versions_and_cuts_that_lack_each_other_go(job: Job, number: int) -> None:
    """Such as a driver leaves that ends between two writes, or one of a version that knows no cuts."""
    job.plan(most=0)
    lonely = StateVersion(job._checkpoint(TASKS[0], 7, 70), 5)
    cut = ConsistentCut(None, 7, {task: RoundId(1, None, number) for task in TASKS}, {WRITTEN: number})
    job.store.write_metadata(job.epoch, STATE_VERSIONS, {lonely.key: encode(lonely)})
    job.store.write_metadata(job.epoch, STATE_CUTS, {cut.key: encode(cut)})
    versions = job.plan(interval_s=60)
    job.us += 60 * S
    versions.keep()
    assert rounds_of(job.cuts[-1]) == [0, 0] and (number == 0 or len(job.cuts) == 1)
    job.judge()
    assert job.just_what_is_named_is_there()


def test_versions_of_both_kinds_hold_back_the_purging(job: Job) -> None:
    versions = job.plan()
    job.round()
    job.round([BEHIND])
    versions.keep()
    found = {(one.task, one.round_id.number) for one in versions.checkpoints()}
    assert found == {(TASKS[0], 0), (TASKS[0], 1), (TASKS[1], 0), (TASKS[1], 1), (BEHIND, 0), (BEHIND, 2)}


# --- what fails, and when -------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", range(1, 25))
def test_wherever_the_process_ends_all_that_is_named_is_there(
    job: Job, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    steps = [0]
    write, delete = LogJobStore.write_metadata, StateFiles.delete

    def passed() -> None:
        steps[0] += 1
        if steps[0] == step:
            raise Killed

    def written(self: Any, *given: Any) -> None:
        passed()
        write(self, *given)
        job.judge()
        passed()

    def deleted(self: Any, name: str) -> None:
        passed()
        delete(self, name)

    monkeypatch.setattr(LogJobStore, "write_metadata", written)
    monkeypatch.setattr(StateFiles, "delete", deleted)
    job.plan(most=2)
    with pytest.raises(Killed):
        work(job, 6)
    monkeypatch.undo()
    job.judge()
    versions = job.plan(most=2)
    versions.keep()
    job.judge()
    assert job.just_what_is_named_is_there()
    number = job.number
    assert rounds_of(job.cuts[-1]) == [number, number]


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("namespace", [STATE_VERSIONS, STATE_CUTS])
def test_a_write_that_fails_or_may_have_is_tried_again(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_written: bool, namespace: str
) -> None:
    write = LogJobStore.write_metadata

    def failing(self: Any, epoch: int, name: str, values: Any) -> None:
        if is_written or name != namespace:
            write(self, epoch, name, values)
        if name == namespace:
            raise UnavailableError("no answer")

    versions = job.plan(most=2)
    for _ in range(3):
        job.round()
        versions.keep()
    with monkeypatch.context() as patch:
        patch.setattr(LogJobStore, "write_metadata", failing)
        for _ in range(3):
            job.round()
            versions.keep()
            job.judge()
    assert "could not keep versions of the state: no answer" in caplog.text
    job.round()
    versions.keep()
    job.judge()
    assert [rounds_of(cut) for cut in job.cuts] == [[6, 6], [7, 7]]
    assert job.just_what_is_named_is_there()


def test_what_is_taken_while_others_are_stored_is_held_and_stored_next(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds go on in their own thread; one that takes a cut does not wait for the system to store."""
    write = LogJobStore.write_metadata
    versions = job.plan(most=3)
    job.round()

    def behind_a_round(self: Any, *given: Any) -> None:
        thread = threading.Thread(target=job.round)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
        write(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(LogJobStore, "write_metadata", behind_a_round)
        versions.keep()
    job.judge()
    assert [rounds_of(cut) for cut in job.cuts] == [[0, 0], [1, 1]]
    versions.keep()
    job.judge()
    assert [rounds_of(cut) for cut in job.cuts] == [[1, 1], [2, 2], [3, 3]]
    assert job.just_what_is_named_is_there()


@pytest.mark.parametrize("by_cuts", [True, False])
def test_while_a_task_reads_again_what_its_state_holds_already_no_version_of_it_is_kept(job: Job, by_cuts: bool) -> None:
    place = next(iter(job.current[TASKS[0]].positions))
    again = {(TASKS[0], place): Replay(1, 25)}
    versions = job.plan(by_cuts=by_cuts, counting_again=again)
    job.round()
    versions.keep()
    assert not job.cuts and not job.kept.get(TASKS[0]), "at 10, with a state that holds all up to 25"
    assert not job.asked, "nor is the system asked for a cut that cannot be, at each commit"
    assert bool(job.kept.get(TASKS[1])) != by_cuts, "a cut is of all tasks"
    job.round()
    job.round()
    versions.keep()
    assert job.kept[TASKS[0]] == [3]
    assert bool(job.cuts) == by_cuts
