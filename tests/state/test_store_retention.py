"""Local stores whose tasks have lived elsewhere for long are removed; those of tasks that are here, or in use, are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_place import Place

from headrace.adapters.lmdb import close_idle
from headrace.adapters.lmdb.former_stores import remove_unused_stores
from headrace.adapters.lmdb.ownership import owned
from headrace.core.affinity.retention import FoundStore, unused_stores
from headrace.driver.maintenance.store_retention import INTERVAL_S, StoreRetention
from headrace.model.tasks import TaskName

HOUR_US, NOW_US = 3_600_000_000, 1_800_000_000_000_000
DAY_US = 24 * HOUR_US
NAMES = [TaskName.parse(f"Partition_{number}") for number in range(4)]
_found = st.builds(FoundStore, st.text("ab", min_size=1), st.sampled_from(NAMES), st.integers(0, 200))


@given(st.lists(_found), st.sets(st.sampled_from(NAMES)), st.integers(0, 200), st.integers(0, 200))
def test_what_is_removed_is_old_and_of_no_task_that_is_here(
    found: list[FoundStore], tasks: set[TaskName], now_us: int, retention_us: int
) -> None:
    removed = unused_stores(found, tasks, now_us, retention_us)
    for store in found:
        is_old = now_us - store.used_us >= retention_us
        assert (store in removed) == (is_old and not any(task == store.task for task in tasks))


def store_at(place: Place, name: str) -> Path:
    """A store that was used just now."""
    place.local = place.root / "stores" / "app" / name
    place.round(None, {"a": {b"1": b"one"}})
    close_idle()
    return place.local


def used_ago(folder: Path, ago_us: int, is_old_form: bool = False) -> None:
    """Make it look as if it was used so long before `NOW_US`."""
    mark = folder / "mark.json"
    found = json.loads(mark.read_text())
    if is_old_form:
        del found["used_us"], found["identity"], found["building"]
        mark.write_text(json.dumps(found))
        at_s = (NOW_US - ago_us) / 1e6
        os.utime(mark, (at_s, at_s))
    else:
        mark.write_text(json.dumps(found | {"used_us": NOW_US - ago_us}))


def removed(place: Place, *tasks: str) -> set[str]:
    root = place.root / "stores" / "app"
    before = {path.name for path in root.iterdir()}
    count = remove_unused_stores(root, [TaskName.parse(task) for task in tasks], NOW_US, DAY_US)
    gone = before - {path.name for path in root.iterdir()}
    assert count == len(gone)
    return gone


def test_old_stores_of_tasks_that_are_not_here_are_removed(place: Place) -> None:
    for name in ("Partition_0", "Partition_1", "Partition_2", "by-key%2FPartition_1-0-2"):
        used_ago(store_at(place, name), DAY_US)
    used_ago(store_at(place, "Partition_3"), DAY_US - HOUR_US)
    assert removed(place, "Partition_0") == {"Partition_1", "Partition_2", "by-key%2FPartition_1-0-2"}
    assert removed(place, "Partition_0") == set()


@pytest.mark.parametrize("is_old_form", [False, True])
def test_when_it_was_used_is_what_its_status_says(place: Place, is_old_form: bool) -> None:
    used_ago(store_at(place, "Partition_0"), DAY_US - HOUR_US, is_old_form)
    used_ago(store_at(place, "Partition_1"), DAY_US + HOUR_US, is_old_form)
    assert removed(place) == {"Partition_1"}


def test_the_status_says_when_it_was_used_last(place: Place) -> None:
    before_us = time.time_ns() // 1000
    head = place.round(None, {"a": {b"1": b"one"}})
    first_us = json.loads((place.local / "mark.json").read_text())["used_us"]
    assert before_us <= first_us <= time.time_ns() // 1000
    place.read(head)
    assert json.loads((place.local / "mark.json").read_text())["used_us"] > first_us


def test_one_that_is_in_use_is_never_touched(place: Place) -> None:
    folder = store_at(place, "Partition_0")
    used_ago(folder, 2 * DAY_US)
    code = "import sys, fcntl\nfile = open(sys.argv[1])\nfcntl.flock(file, fcntl.LOCK_EX)\nprint(flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder / "owner")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout is not None
        user.stdout.readline()
        assert removed(place) == set()
        user.kill()
    assert removed(place) == {"Partition_0"}


def test_one_that_is_used_at_that_moment_stays(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at its status and the lock."""
    from headrace.adapters.lmdb import former_stores

    folder = store_at(place, "Partition_0")
    used_ago(folder, 2 * DAY_US)
    right = former_stores.owned_now

    def late(place_: Path) -> object:
        used_ago(folder, 0)
        return right(place_)

    monkeypatch.setattr(former_stores, "owned_now", late)
    assert removed(place) == set()


def test_what_is_no_store_of_this_application_stays(place: Place) -> None:
    used_ago(store_at(place, "Partition_0"), 2 * DAY_US)
    other = place.root / "stores" / "another" / "Partition_0"
    other.parent.mkdir(parents=True)
    place.local.rename(other)
    folder = place.root / "stores" / "app" / "Partition_9"  # of a user, with a task's name and without an owner
    folder.mkdir()
    os.utime(folder, (1, 1))
    assert removed(place) == set()
    assert other.exists()


def test_siblings_and_what_is_half_made_are_removed_too(place: Place) -> None:
    folder = store_at(place, "Partition_0")
    with owned(folder), owned(folder, wait_s=0.0) as (sibling, _):
        assert sibling.name == "Partition_0~1"
    os.utime(sibling, (1, 1))
    os.utime(folder, (1, 1))
    (folder / "mark.json").unlink()
    os.utime(folder, (1, 1))
    assert removed(place, "Partition_1") == {"Partition_0", "Partition_0~1"}


def test_an_application_without_stores_has_none_to_remove(tmp_path: Path) -> None:
    assert remove_unused_stores(tmp_path / "none", [], NOW_US, DAY_US) == 0


def test_it_is_due_at_a_start_and_every_hour(caplog: pytest.LogCaptureFixture) -> None:
    plans: list[object] = []
    retention = StoreRetention(plans.append, in_background=False)
    for at_s in (100.0, 101.0, 100.0 + INTERVAL_S - 1, 100.0 + INTERVAL_S, 101.0 + INTERVAL_S):
        retention.look(at_s, at_s)  # type: ignore[arg-type]
    assert plans == [100.0, 100.0 + INTERVAL_S]

    def fails(plan: object) -> None:
        raise OSError("the disk is gone")

    StoreRetention(fails, in_background=False).look(None, 0.0)  # type: ignore[arg-type]
    assert "the disk is gone" in caplog.text


def test_on_a_cluster_it_is_not_waited_for() -> None:
    import threading

    begun, may_end = threading.Event(), threading.Event()

    def slow(plan: object) -> None:
        begun.set()
        may_end.wait(30)

    look: Callable[..., None] = StoreRetention(slow, in_background=True).look
    look(None, 0.0)
    assert begun.wait(30)
    may_end.set()
