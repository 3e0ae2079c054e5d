"""Hosts of their own for the processors of a group, two on each: where tasks are, and come back to; and a state folder that is
not shared."""

from __future__ import annotations

from pathlib import Path

import pytest

from groups.group import PARTITIONS, Group
from groups.hosts import host_of

HOSTS = ("host-a", "host-b")
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(200), pytest.mark.group(hosts=HOSTS)]
ITS_OWN_STATE = pytest.mark.group(hosts=HOSTS, own=("stores", "state"))
IDS = ("host-a.1", "host-b.1", "host-a.2", "host-b.2")
HOME_SHARE_MIN = 0.99


@pytest.fixture
def hosted(group: Group) -> Group:
    """Two processors on each of two hosts, which have worked."""
    for id_ in IDS:
        group.start(id_)
    group.await_shares(*IDS)
    group.send(200)
    group.await_all()
    return group


def hosts_of_tasks(group: Group) -> dict[str, str]:
    """Where each task is by the job model in force."""
    return {task: host_of(id_) for id_, tasks in group.tasks_of().items() for task in tasks}


def rounds_since(group: Group, lines: int) -> list[tuple[str, str]]:
    """Task and host, of each task in each round behind the first so many lines of what was worked on."""
    found = []
    for line in work_lines(group)[lines:]:
        who, tasks, *_ = line.split(" ")
        found += [(task, host_of(who)) for task in tasks.split(",")]
    return found


def state_bytes(group: Group, first: int) -> int:
    """Of the files that checkpoints name, from this one of each on: 0 for all, -1 for the last."""
    heads = [one.head for one in group.system.job_store(group.name).checkpoints().values() if one.head is not None]
    return sum(file.bytes for head in heads for file in head.files[first:])


def work_lines(group: Group) -> list[str]:
    return Path(group.folder, "work.jsonl").read_text().splitlines()


def test_tasks_are_back_on_their_hosts_when_all_processors_were_killed(hosted: Group) -> None:
    """In reverse order, so that another one leads. Their stores are there: no more is restored than the last round of each task
    has written, which may not have been applied."""
    group, homes, version = hosted, hosts_of_tasks(hosted), hosted.version()
    assert {id_: len(tasks) for id_, tasks in group.tasks_of().items()} == dict.fromkeys(IDS, 2)
    shares = group.tasks_of()
    group.send(100)
    group.until(lambda: len(group.rows("numbered")) > 200)
    while 2 * state_bytes(group, -1) >= state_bytes(group, 0):  # what rounds have written is folded now and then
        group.send(10)
        group.await_all()
    for id_ in IDS:
        group.kill(id_)
    last, whole = state_bytes(group, -1), state_bytes(group, 0)
    assert 0 < last < whole / 2, "the bound tells an apply from a restore"
    lines = len(work_lines(group))
    for id_ in reversed(IDS):
        group.start(id_)
    for _ in range(5):
        group.send(40)
        group.await_all()
    rounds = rounds_since(group, lines)
    home = sum(host == homes[task] for task, host in rounds)
    assert {task for task, _ in rounds} == homes.keys() and home >= HOME_SHARE_MIN * len(rounds), (home, len(rounds))
    assert (group.version(), group.tasks_of()) == (version, shares)
    assert sum(map(group.restored_bytes, IDS)) <= last
    group.stop_all()
    assert group.check() >= 1000


@pytest.mark.soak
def test_the_tasks_of_one_that_is_lost_go_to_the_other_of_its_host(hosted: Group) -> None:
    """As far as shares are even, of each sub-topology and of all together: two of three processors get one of its two tasks,
    and one of these is the one at their location."""
    group, lost, heir = hosted, "host-a.2", "host-a.1"
    before = group.tasks_of()
    group.kill(lost)
    group.await_shares(*(id_ for id_ in IDS if id_ != lost))
    after = group.tasks_of()
    came = {id_: tasks - before[id_] for id_, tasks in after.items()}
    assert all(before[id_] <= tasks for id_, tasks in after.items())
    assert sorted(map(len, came.values())) == [0, 1, 1] and len(came[heir]) == 1
    group.send(100)
    group.await_all()
    group.start(lost)
    group.await_shares(*IDS)
    assert hosts_of_tasks(group) == {task: host_of(id_) for id_, tasks in before.items() for task in tasks}
    group.send(100)
    group.await_all()
    group.stop_all()
    assert group.check() >= 800


@pytest.mark.soak
@pytest.mark.parametrize("group", [PARTITIONS, 4 * PARTITIONS], indirect=True)
def test_a_host_that_is_lost_and_comes_back_has_its_tasks_again(hosted: Group) -> None:
    group, homes = hosted, hosts_of_tasks(hosted)
    lost = [id_ for id_ in IDS if host_of(id_) == "host-b"]
    for id_ in lost:
        group.kill(id_)
    group.await_shares("host-a.1", "host-a.2")
    group.send(100)
    group.await_all()
    for id_ in lost:
        group.start(id_)
    group.await_shares(*IDS)
    group.send(100)
    group.await_all()
    back = hosts_of_tasks(group)
    assert sum(host == homes[task] for task, host in back.items()) >= HOME_SHARE_MIN * len(homes), (homes, back)
    group.stop_all()
    assert group.check() >= 800


@ITS_OWN_STATE
def test_a_processor_whose_state_is_elsewhere_is_refused(group: Group) -> None:
    """Before it is given tasks, again and again; the others keep theirs."""
    group.start("host-a.1")
    group.await_shares("host-a.1")
    group.send(50)
    group.await_all()
    version = group.version()
    for _ in range(2):
        group.start("host-b.1")
        error = group.await_refusal("host-b.1")
        assert error["error"] == "StateError", error
        assert f"state_uri {group.folder}/state" in error["message"] and "on host host-b" in error["message"], error
        assert "set `state_uri` to a folder that all processors share" in error["message"], error
    group.start("host-a.2")
    group.await_shares("host-a.1", "host-a.2")
    assert group.version() == version + 1, "only the one that is in the right has changed something"
    group.send(50)
    group.await_all()
    group.stop_all()
    assert group.check() >= 200


@pytest.mark.soak
@ITS_OWN_STATE
def test_of_several_that_begin_at_once_those_with_another_state_folder_are_refused(group: Group) -> None:
    for id_ in ("host-a.1", "host-b.1"):
        group.start(id_)
    group.send(50)
    refused = group.await_one_end("host-a.1", "host-b.1")
    error = group.await_refusal(refused)
    assert error["error"] == "StateError" and f"on host {host_of(refused)}" in error["message"], error
    group.await_all()
    group.await_shares(*({"host-a.1", "host-b.1"} - {refused}))
    group.stop_all()
    assert group.check() >= 100
