"""State files that no round has committed: whose they are decides whether they are deleted (protocol.md 20)."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from headrace.core.group.orphans import orphans
from headrace.driver.maintenance.state_garbage import StateGarbage
from headrace.errors import FencedError
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind, epoch_of_file, state_file_name
from headrace.model.tasks import TaskName
from headrace.state_files.files import FilePlace, StateFiles

TASK = TaskName.parse("Partition_0")


def written(files: StateFiles, epoch: int, version: int = 1) -> StateFile:
    return files.write_batches(FilePlace("app/Partition_0", epoch), StateFileKind.DELTA, version, [])


def checkpoint(*named: StateFile) -> Checkpoint:
    return Checkpoint(TASK, RoundId(1, None, 1), 1, {}, Head(len(named), named))


def test_a_file_has_the_grant_under_which_it_was_written_in_its_name(tmp_path: Path) -> None:
    assert epoch_of_file(written(StateFiles(str(tmp_path)), 4711).name) == 4711


@pytest.mark.parametrize("grants", [(), (7,), (7, 9)])
def test_an_orphan_is_named_by_nothing_and_of_a_grant_that_is_not_in_force(grants: tuple[int, ...]) -> None:
    every = [state_file_name("app/t", version, epoch, "0a") for version, epoch in product(range(3), (7, 8, 9))]
    every.append("app/t/3-0b0b.arrow")  # of an older version of Headrace, which may be of any grant
    named = {name for name in every if name.startswith("app/t/1-")}
    deleted = set(orphans(every, named, grants))
    for name in every:
        may_come = bool(grants) and ("-0b0b" in name or any(f"-{grant}-" in name for grant in grants))
        assert (name in deleted) == (name not in named and not may_come), name


def test_what_a_processor_has_written_and_not_committed_stays_while_its_grant_is_in_force(tmp_path: Path) -> None:
    files = StateFiles(str(tmp_path))
    committed, killed, working = written(files, 3), written(files, 4, 2), written(files, 5, 2)
    garbage = StateGarbage(files, "app")
    garbage.committed(None, [checkpoint(committed)])
    assert garbage.collect_orphans(lambda: None, lambda: {5}) == 1
    assert set(files.list("app")) == {committed.name, working.name}
    garbage.committed(None, [checkpoint(committed, working)])  # it commits: its head names no missing file
    assert garbage.collect_orphans(lambda: None, lambda: {6}) == 0
    assert set(files.list("app")) == {committed.name, working.name}
    assert killed.name not in files.list("app")


def test_what_newer_checkpoints_do_not_name_is_deleted_but_what_others_do_or_a_version(tmp_path: Path) -> None:
    files = StateFiles(str(tmp_path))
    current, kept, shared, gone = (written(files, 5, number) for number in range(1, 5))
    garbage = StateGarbage(files, "app")
    garbage.committed(None, [checkpoint(current)])
    garbage.committed("by", [checkpoint(shared)])
    garbage.hold([checkpoint(kept)])
    garbage.delete_replaced({one.name for one in (current, kept, shared, gone)})
    assert set(files.list("app")) == {current.name, kept.name, shared.name}


def test_a_leader_that_was_replaced_deletes_nothing(tmp_path: Path) -> None:
    files = StateFiles(str(tmp_path))
    left = written(files, 4)

    def replaced() -> None:
        raise FencedError("another one leads")

    with pytest.raises(FencedError):
        StateGarbage(files, "app").collect_orphans(replaced, lambda: {5})
    assert files.list("app") == [left.name]
