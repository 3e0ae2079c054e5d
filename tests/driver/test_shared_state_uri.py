"""Two systems have an application of one name, and one `state_uri`: neither deletes the other's state (protocol.md 20)."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace import wiring
from headrace.cli.commands import application
from headrace.codec.job_records import STATE_ID
from headrace.driver.group.group_maintenance import GroupMaintenance
from headrace.driver.maintenance.state_garbage import StateGarbage, files_of
from headrace.driver.maintenance.state_notes import StateNotes
from headrace.errors import UnavailableError
from headrace.model.checkpoint import StateFileKind
from headrace.model.commits import DriverLease
from headrace.state_files.files import FilePlace, StateFiles
from headrace.wiring.worker.entry import run_container
from headrace.wiring.worker.worker_state import forget
from headrace.worker.inline_engine import InlineEngine

WORDS = ("a", "b", "a")
SHARED = "also has state files of another application 'words'"


class Words:
    """An application that counts words on one log, with its state where all others of the folder have theirs."""

    def __init__(self, folder: Path, log: str) -> None:
        self.uri, self.system = str(folder / ".headrace" / "state"), f"log:{folder / log}"
        self.files = StateFiles(self.uri)
        with hr.open_system(self.system) as system:
            system.create_stream("in", 1)

    @property
    def app(self) -> hr.App:
        app = hr.App("words", system=self.system)
        app.stream("in", key=hr.String(), value=hr.String()).group_by_key().count(store="counts").to_stream().to("out")
        return app

    def run(self) -> dict[str, int]:
        """Count `WORDS` once more; the counts."""
        with hr.open_system(self.system) as system:
            system.produce("in", [(word, word) for word in WORDS], key=hr.String(), value=hr.String())
        wiring.start(self.app, "caught-up", engine=InlineEngine(run_container)).wait(60)
        forget("words", self.uri)  # a worker process of its own would have ended
        view = self.app.state("counts")
        return {word: view.get(word) for word in sorted(set(WORDS))}

    def named(self) -> frozenset[str]:
        with hr.open_system(self.system) as system:
            return files_of(system.job_store("words").checkpoints().values())

    def there(self) -> set[str]:
        return set(self.files.list("words"))

    def notes(self) -> list[str]:
        return self.files.list(".states-of-words")

    def leave_orphan(self) -> str:
        """What a round has left that was killed."""
        return self.files.write_batches(FilePlace("words/Partition_0", 1), StateFileKind.DELTA, 99, []).name

    def as_of_an_older_version(self) -> None:
        """As if the application had run under a version without ids of states."""
        with hr.open_system(self.system) as system:
            store = system.job_store("words")
            epoch = store.acquire(DriverLease("run", "host", 1, "1", "boot", 0), 0)
            store.write_metadata(epoch, STATE_ID, {STATE_ID: None})
            store.release(epoch)
        for note in self.notes():
            self.files.delete(note)

    def reset(self) -> str:
        done = CliRunner().invoke(application, ["reset", "--application", "words", "--system", self.system, "--yes"])
        assert done.exit_code == 0, done.output
        return done.output


@pytest.fixture
def systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Words, Words]:
    monkeypatch.chdir(tmp_path)
    return Words(tmp_path, "first"), Words(tmp_path, "second")


def warnings_of(caplog: pytest.LogCaptureFixture) -> int:
    count = sum(SHARED in one.getMessage() for one in caplog.records if one.levelno == logging.WARNING)
    caplog.clear()
    return count


def test_jobs_of_one_name_keep_their_state(systems: tuple[Words, Words], caplog: pytest.LogCaptureFixture) -> None:
    first, second = systems
    assert first.run() == {"a": 2, "b": 1} and warnings_of(caplog) == 0
    for times in (1, 2, 3):
        assert second.run() == {"a": 2 * times, "b": times} and warnings_of(caplog) == 1
        assert first.run() == {"a": 2 * (times + 1), "b": times + 1} and warnings_of(caplog) == 1


def test_the_warning_says_what_to_do(systems: tuple[Words, Words], caplog: pytest.LogCaptureFixture) -> None:
    first, second = systems
    first.run()
    (note,) = first.notes()
    second.run()
    (said,) = [one.getMessage() for one in caplog.records if SHARED in one.getMessage()]
    assert said.startswith(f"state_uri {first.uri} ") and f"or delete {first.uri}/{note}," in said
    kept, orphan = second.named(), first.leave_orphan()
    first.files.delete(note)  # as it says
    caplog.clear()
    assert second.run() == {"a": 4, "b": 2} and warnings_of(caplog) == 0
    assert orphan not in second.there() and kept and second.there() == second.named()


def test_state_moves_to_a_folder_of_its_own(systems: tuple[Words, Words], tmp_path: Path) -> None:
    """As the warning says: what was copied is the application's own, though another's files are among it."""
    first, second = systems
    first.run()
    second.run()
    copy = StateFiles(str(tmp_path / "copy"))
    for name in second.there():
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((Path(second.uri) / name).read_bytes())
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HEADRACE_STATE_URI", copy.uri)
        second.uri, second.files = copy.uri, copy
        assert second.run() == {"a": 4, "b": 2}
        assert second.there() == second.named()
    assert first.run() == {"a": 4, "b": 2}


def test_a_reset_deletes_no_state_of_another_system(systems: tuple[Words, Words]) -> None:
    first, second = systems
    first.run()
    second.run()
    of_second = second.named()
    assert SHARED in second.reset().replace("\n", " ")
    assert of_second <= second.there() and first.named() <= first.there()
    assert first.run() == {"a": 4, "b": 2}
    assert first.there() == first.named(), "the second one's note is deleted, and its files are orphans from then on"
    assert second.run() == {"a": 4, "b": 2}, "from the beginning"


def test_a_reset_of_one_that_never_ran_finds_nothing(systems: tuple[Words, Words]) -> None:
    first, second = systems
    first.run()
    before = first.there()
    done = CliRunner().invoke(application, ["reset", "--application", "words", "--system", second.system, "--yes"])
    assert done.exit_code == 1 and "nothing is stored of application" in done.output
    assert first.there() == before and len(first.notes()) == 1


def test_what_killed_rounds_left_of_the_only_one_is_deleted(systems: tuple[Words, Words]) -> None:
    first, _ = systems
    first.run()
    orphan = first.leave_orphan()
    assert first.run() == {"a": 4, "b": 2}
    assert orphan not in first.there() and first.there() == first.named()


def test_a_start_leaves_a_file_that_cannot_be_deleted_to_the_next_one(
    systems: tuple[Words, Words], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = systems
    first.run()
    orphan, delete = first.leave_orphan(), StateFiles.delete

    def refused(self: StateFiles, name: str) -> None:
        if name == orphan:
            raise PermissionError(13, "Permission denied", name)
        delete(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(StateFiles, "delete", refused)
        assert first.run() == {"a": 4, "b": 2}
    assert orphan in first.there() and "could not be deleted, the next start tries again" in caplog.text
    assert first.run() == {"a": 6, "b": 3}
    assert orphan not in first.there()


def test_an_application_from_before_keeps_its_state_and_its_orphans_are_deleted(systems: tuple[Words, Words]) -> None:
    first, _ = systems
    first.run()
    first.as_of_an_older_version()
    orphan = first.leave_orphan()
    assert first.run() == {"a": 4, "b": 2}
    assert orphan not in first.there() and first.there() == first.named() and len(first.notes()) == 1


def test_a_reset_of_an_application_from_before_deletes_its_files(systems: tuple[Words, Words]) -> None:
    first, _ = systems
    first.run()
    first.as_of_an_older_version()
    first.reset()
    assert not first.there() and not first.notes()
    assert first.run() == {"a": 4, "b": 2}, "from the beginning"


def test_neither_deletes_where_one_from_before_was_first(systems: tuple[Words, Words]) -> None:
    first, second = systems
    first.run()
    first.as_of_an_older_version()
    for times in (1, 2):
        assert second.run() == {"a": 2 * times, "b": times}
    for times in (2, 3):
        assert first.run() == {"a": 2 * times, "b": times}
    assert second.run() == {"a": 6, "b": 3}


def test_a_job_without_state_leaves_no_note_and_deletes_nothing(systems: tuple[Words, Words]) -> None:
    first, second = systems
    first.run()
    first.as_of_an_older_version()
    before = first.there()
    app = hr.App("words", system=second.system)
    app.stream("in", key=hr.String(), value=hr.String()).to("out")
    wiring.start(app, "caught-up", engine=InlineEngine(run_container)).wait(60)
    assert first.there() == before and not first.notes()
    assert first.run() == {"a": 4, "b": 2}


def test_of_two_that_begin_at_once_neither_is_alone(systems: tuple[Words, Words]) -> None:
    notes, together = [], threading.Barrier(2)
    with hr.open_system(systems[0].system) as first, hr.open_system(systems[1].system) as second:
        for system in (first, second):
            store = system.job_store("words")
            epoch = store.acquire(DriverLease("run", "host", 1, "1", "boot", 0), 0)
            one = StateNotes(systems[0].files, "words", system.metadata_store("words"))
            notes.append((one, store, epoch))

        class Seen(StateFiles):
            def list(self, application: str) -> list[str]:
                found = super().list(application)
                if application == "words":
                    together.wait(10)  # each has seen no note
                return found

        threads = []
        for one, store, epoch in notes:
            one._files = Seen(systems[0].uri)
            threads.append(threading.Thread(target=one.leave, args=(store, epoch, frozenset)))
            threads[-1].start()
        for thread in threads:
            thread.join(20)
        assert not any(one.is_alone() for one, _, _ in notes)


def test_a_file_of_one_that_comes_after_the_list_stays(tmp_path: Path) -> None:
    """Whose the files are is asked after they were listed."""
    files, asked = StateFiles(str(tmp_path)), list[str]()

    def another_comes() -> bool:
        asked.append(files.write_batches(FilePlace("words/Partition_0", 1), StateFileKind.DELTA, 1, []).name)
        return len(asked) == 1

    orphan = files.write_batches(FilePlace("words/Partition_0", 1), StateFileKind.DELTA, 1, []).name
    assert StateGarbage(files, "words", is_alone=another_comes).collect_orphans(lambda: None) == 1
    assert files.list("words") == asked and orphan not in asked
    assert StateGarbage(files, "words", is_alone=another_comes).collect_orphans(lambda: None) == 0
    assert set(files.list("words")) == set(asked)


class Leading:
    """The maintenance of a leader, on the embedded log: without ZooKeeper, and no round runs."""

    def __init__(self, words: Words, system: Any, app: hr.App | None = None) -> None:
        self.store = system.job_store("words")
        self.epoch = self.store.acquire(DriverLease("run", "host", 1, "1", "boot", 0), 0)
        backend = SimpleNamespace(system=system, store=self.store)
        planner = SimpleNamespace(topology=(app or words.app).topology(), backend=backend)
        plans = SimpleNamespace(planner=planner, fence_others=lambda epoch: None)
        self.maintenance = GroupMaintenance(cast(Any, plans), words.files, cast(Any, None), 1, threading.Lock())

    def begin(self) -> None:
        self.maintenance.leave_note(self.epoch)
        self.maintenance.begin(self.epoch)


def test_a_leader_leaves_files_of_another_system_alone(
    systems: tuple[Words, Words], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = systems
    first.run()
    before = first.there()
    with hr.open_system(second.system) as system:
        Leading(second, system).begin()
    assert first.there() == before and warnings_of(caplog) == 1
    with hr.open_system(first.system) as system:  # the first one's leader does not delete the second's either
        of_second = first.leave_orphan()
        Leading(first, system).begin()
    assert of_second in first.there() and warnings_of(caplog) == 1


def test_a_leader_signs_for_the_state_that_its_note_names(systems: tuple[Words, Words]) -> None:
    first, second = systems
    signed = list[str]()
    for one in systems:
        with hr.open_system(one.system) as system:
            leading = Leading(one, system)
            leading.maintenance.sign(leading.epoch, signed.append)
            leading.begin()
    assert {f".states-of-words/{one}" for one in signed} == set(first.notes()) and len(set(signed)) == 2
    app = hr.App("words", system=second.system)
    app.stream("in", key=hr.String(), value=hr.String()).to("out")
    with hr.open_system(second.system) as system:
        leading = Leading(second, system, app)
        leading.maintenance.sign(leading.epoch, signed.append)
    assert len(signed) == 2, "one without state signs nothing"


def test_a_leader_that_is_alone_deletes_what_killed_rounds_left(systems: tuple[Words, Words]) -> None:
    first, _ = systems
    first.run()
    first.as_of_an_older_version()
    orphan = first.leave_orphan()
    with hr.open_system(first.system) as system:
        Leading(first, system).begin()
    assert orphan not in first.there() and first.there() == first.named()


def test_a_leader_waits_for_a_folder_that_does_not_answer(
    systems: tuple[Words, Words], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = systems

    def unreachable(self: StateFiles, application: str) -> list[str]:
        raise OSError("no answer")

    with hr.open_system(first.system) as system:
        leading = Leading(first, system)
        monkeypatch.setattr(StateFiles, "list", unreachable)
        with pytest.raises(UnavailableError, match=r"state_uri .* cannot be written: no answer"):
            leading.begin()
