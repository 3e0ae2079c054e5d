"""An ensemble of three servers: some are killed, hang or are behind while clients are at work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headrace.adapters.zookeeper.connection import connection_of
from headrace.adapters.zookeeper.tree import KazooTree
from headrace.coordination import Create, TreeConflictError, TreeNode, Write, boot_time_s
from headrace.core.group.state import Registration
from headrace.errors import UnavailableError
from headrace.group.layout import GroupName
from headrace.group.lease_keeper import LeaseKeeper
from headrace.group.processor_group import ProcessorGroup
from support.ensembles import Ensemble
from support.zookeepers import wait_until

pytestmark = [pytest.mark.chaos]
Opened = Callable[..., KazooTree]


@pytest.fixture
def opened(ensemble: Ensemble) -> Iterator[Opened]:
    """A tree on these servers, all if none is given."""
    trees = []

    def opened(*numbers: int, timeout_s: float = 20.0) -> KazooTree:
        servers = ",".join(f"127.0.0.1:{ensemble.ports[number]}" for number in numbers) or ensemble.address
        settings = {"session.timeout.ms": str(int(timeout_s * 1000)), "operation.timeout.ms": "2000"}
        made = KazooTree(connection_of(f"zookeeper://{servers}/headrace", settings))
        trees.append(made)
        made.open()
        return made

    yield opened
    for tree in trees:
        tree.close()


def registered(tree: KazooTree, processor_id: str) -> ProcessorGroup:
    group = ProcessorGroup(tree, "/headrace", GroupName("delays"), boot_time_s)
    group.register(Registration(processor_id, "host-1", 2, "code-1", "host-1", 17, "1@1", "boot"))
    return group


def server_of(tree: KazooTree, ensemble: Ensemble) -> int:
    """The one that it is connected to."""
    port = tree._client._connection._socket.getpeername()[1]
    return next(number for number, one in ensemble.ports.items() if one == port)


def read(tree: KazooTree, path: str) -> TreeNode | None:
    """As soon as there is an answer."""
    return wait_until(lambda: [tree.read(path)] if answers(tree) else [], f"an answer about {path}")[0]


def answers(tree: KazooTree) -> bool:
    try:
        tree.read("/")
    except UnavailableError:
        return False
    return True


@contextmanager
def counting(tree: KazooTree) -> Iterator[list[int]]:
    """Add one to a node all the time, each by what was read before: the numbers whose commit was confirmed."""
    tree.commit([Create("/count", b"0")])
    over, done = threading.Event(), list[int]()

    def count() -> None:
        while not over.wait(0.01):
            try:
                node = tree.read("/count")
                assert node is not None
                number = int(node.data) + 1
                tree.commit([Write("/count", str(number).encode(), node.version)])
                done.append(number)
            except (UnavailableError, TreeConflictError):
                continue

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()


def test_sessions_nodes_and_watches_outlive_the_leader_and_then_a_follower(ensemble: Ensemble, opened: Opened) -> None:
    trees = [opened() for _ in range(3)]
    for number, tree in enumerate(trees):
        tree.commit([Create(f"/e{number}", ephemeral=True)])
    sessions = [tree.session_id for tree in trees]
    with counting(trees[0]) as counted:
        for choose in (ensemble.leader, lambda: ensemble.followers()[0]):
            lost = choose()
            before = len(counted)
            ensemble.kill(lost)
            for number, tree in enumerate(trees):
                assert read(tree, f"/e{number}") is not None
            wait_until(lambda before=before: len(counted) > before + 5, "commits without the lost server")
            ensemble.restart(lost)
            ensemble.await_serving(lost)
    assert [tree.session_id for tree in trees] == sessions
    assert len(set(counted)) == len(counted) and counted == sorted(counted), "no commit that was confirmed is lost"
    assert int(read(trees[1], "/count").data) >= counted[-1]
    watching, writing = trees[1], trees[2]
    node = watching.read("/e1", watch=True)
    while watching.wait_for_change(0.2):
        pass
    writing.commit([Write("/e1", b"1", node.version)])
    assert watching.wait_for_change(10.0)


def test_a_lost_quorum_ends_all_leases_and_registrations_outlive_it(ensemble: Ensemble, opened: Opened) -> None:
    """For longer than the timeout of the sessions: a new leader gives them their whole timeout again."""
    timeout_s = 3.0
    trees = [opened(timeout_s=timeout_s) for _ in range(2)]
    groups = [registered(tree, id_) for tree, id_ in zip(trees, "ab", strict=True)]
    numbers = [group.sequence for group in groups]
    with LeaseKeeper(groups[0]), LeaseKeeper(groups[1]):
        for number in (ensemble.leader(), ensemble.followers()[0]):
            ensemble.kill(number)
        lost_s = boot_time_s()
        for group in groups:
            wait_until(lambda group=group: not group.lease.holds(boot_time_s()), "the end of the lease")
            assert group.lease.confirmed_s is None or group.lease.confirmed_s < lost_s
        time.sleep(timeout_s * 1.5)
        assert not any(group.lease.holds(boot_time_s()) for group in groups)
        with pytest.raises(UnavailableError):
            trees[0].read("/")
        ensemble.start()
        for group in groups:
            wait_until(lambda group=group: group.lease.holds(boot_time_s()), "the lease again")
    assert [group.sequence for group in groups] == numbers
    assert len(groups[0].state().members) == 2


def test_a_server_that_hangs_is_left_for_another_one(ensemble: Ensemble, opened: Opened) -> None:
    """As where a host lost its power: no connection is closed. Requests do not keep the dead connection alive."""
    tree = opened(timeout_s=30.0)
    group = registered(tree, "a")
    session, hangs = tree.session_id, server_of(tree, ensemble)
    ensemble.pause(hangs)
    with LeaseKeeper(group):
        wait_until(lambda: answers(tree) and server_of(tree, ensemble) != hangs, "an answer of another server", 20.0)
    assert tree.session_id == session and group.confirm()


@pytest.fixture
def behind(ensemble: Ensemble) -> int:
    """A follower; a test holds its link to the leader."""
    return ensemble.followers()[0]


def test_what_is_read_is_not_behind_what_was_committed(ensemble: Ensemble, opened: Opened, behind: int) -> None:
    writing = opened(ensemble.leader())
    writing.commit([Create("/n", b"old"), Create("/n/a")])
    reading = opened(behind)
    assert read(reading, "/n").data == b"old"
    ensemble.hold(behind)
    writing.commit([Write("/n", b"new", 0), Create("/n/b")])
    for call in (lambda: reading.read("/n").data == b"new", lambda: "b" in reading.children("/n")):
        try:
            assert call(), "it gave what was there before"
        except UnavailableError:
            continue  # rather no answer than an old one
    ensemble.start()
    assert read(reading, "/n").data == b"new" and "b" in reading.children("/n")


def test_who_is_at_a_server_that_is_behind_moves_to_one_that_is_not(ensemble: Ensemble, opened: Opened) -> None:
    reading, writing = opened(), opened()
    writing.commit([Create("/n", b"old")])
    while (behind := server_of(reading, ensemble)) == ensemble.leader():
        reading = opened()
    session = reading.session_id
    writing = opened(ensemble.leader())
    ensemble.hold(behind)
    writing.commit([Write("/n", b"new", 0)])
    assert read(reading, "/n").data == b"new"
    assert reading.session_id == session


def test_the_lease_ends_before_others_see_the_session_ended(ensemble: Ensemble, opened: Opened, behind: int) -> None:
    """Of a processor whose server hears nothing of the leader: the leader ends the session, and that server does not know."""
    others = opened(ensemble.leader())
    group = registered(opened(behind, timeout_s=1.2), "a")
    place = group.paths.processors
    with LeaseKeeper(group):
        wait_until(lambda: group.lease.holds(boot_time_s()), "the lease")
        ensemble.hold(behind)
        wait_until(lambda: not others.children(place), "the end of the session")
        assert not group.lease.holds(boot_time_s())
        ensemble.start()
