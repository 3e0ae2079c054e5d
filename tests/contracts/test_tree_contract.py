"""What every implementation of `headrace.coordination.Tree` must do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace.coordination import COMMIT_BYTES_MAX, NODE_BYTES_MAX, Check, Create, Delete, TreeConflictError, Write
from headrace.errors import NotSupportedError, UnavailableError
from support.zookeepers import wait_until

SHORT_S = 1.0


def refused(commit: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(TreeConflictError) as caught:
        commit()
    return caught.value.path, caught.value.reason


def held(tree: Any) -> bool:
    """Whether it answers with a session."""
    try:
        tree.read("/")
    except UnavailableError:
        return False
    return tree.session_id is not None


def test_a_node_is_created_read_written_and_deleted(zookeeper: Any) -> None:
    tree, other = zookeeper.tree(), zookeeper.tree()
    assert tree.read("/a") is None and tree.children("/a") == ()
    assert tree.commit([Create("/a", b"1"), Create("/a/b"), Create("/a/c")]) == ("/a", "/a/b", "/a/c")
    first = other.read("/a")
    assert (first.data, first.version, first.owner) == (b"1", 0, 0)
    assert tree.commit([Write("/a", b"2", first.version)]) == ()
    second = other.read("/a")
    assert (second.data, second.version, second.created) == (b"2", 1, first.created)
    assert other.children("/a") == ("b", "c")
    assert other.read_all(["/a/b", "/a/x", "/a"]) == (other.read("/a/b"), None, second)
    tree.commit([Delete("/a/b"), Delete("/a/c"), Delete("/a", 1)])
    assert other.read("/a") is None
    tree.commit([Create("/a", b"1")])
    assert other.read("/a").created != first.created, "another node of the same name"


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (Create("/a"), "exists"),
        (Create("/none/b"), "missing"),
        (Write("/none", b"", 0), "missing"),
        (Write("/a", b"", 1), "version"),
        (Delete("/none"), "missing"),
        (Delete("/a/b", 3), "version"),
        (Delete("/a"), "children"),
        (Check("/none", 0), "missing"),
        (Check("/a", 2), "version"),
    ],
)
def test_a_commit_is_done_whole_or_not_at_all(zookeeper: Any, operation: Any, reason: str) -> None:
    tree = zookeeper.tree()
    tree.commit([Create("/a", b"1"), Create("/a/b")])
    fine = [Write("/a", b"2", 0), Create("/c"), Create("/c/d", ephemeral=True), Delete("/c/d"), Write("/a/b", b"3", 0)]
    undone = [one for one in fine if not (isinstance(operation, Write) and operation.path == one.path)]
    if isinstance(operation, Check) and operation.path == "/a" or isinstance(operation, Write) and operation.path == "/a":
        undone = [one for one in undone if one.path != "/a"]
    assert refused(lambda: tree.commit([*undone, operation, Create("/e")])) == (operation.path, reason)
    assert tree.read_all(["/c", "/e"]) == (None, None)
    assert [(node.data, node.version) for node in tree.read_all(["/a", "/a/b"])] == [(b"1", 0), (b"", 0)]


def test_sequential_names_rise_also_where_the_last_was_deleted(zookeeper: Any) -> None:
    tree, other = zookeeper.tree(), zookeeper.tree()
    tree.commit([Create("/q")])
    (first,) = tree.commit([Create("/q/n.", b"x", ephemeral=True, sequential=True)])
    (second,) = other.commit([Create("/q/n.", sequential=True)])
    tree.commit([Delete(second)])
    (third,) = tree.commit([Create("/q/n.", sequential=True)])
    numbers = [path.removeprefix("/q/n.") for path in (first, second, third)]
    assert all(len(number) == 10 and number.isdigit() for number in numbers)
    assert sorted(set(numbers)) == numbers


def test_an_ephemeral_node_is_of_the_session_and_deleted_with_it(zookeeper: Any) -> None:
    tree, other = zookeeper.tree(), zookeeper.tree()
    tree.commit([Create("/e", ephemeral=True), Create("/p")])
    assert other.read("/e").owner == tree.session_id != other.session_id
    assert other.read("/p").owner == 0
    tree.close()
    tree.close()
    assert tree.session_id is None
    assert other.read("/e") is None and other.read("/p") is not None
    with pytest.raises(UnavailableError):
        tree.read("/p")


def test_a_session_that_has_ended_is_followed_by_another(zookeeper: Any) -> None:
    tree, other = zookeeper.tree(), zookeeper.tree()
    tree.commit([Create("/e", ephemeral=True)])
    before = tree.session_id
    zookeeper.expire(tree)
    wait_until(lambda: held(tree) and tree.session_id != before, "another session")
    assert other.read("/e") is None and tree.read("/e") is None
    assert refused(lambda: tree.commit([Create("/f")], before)) == ("/f", "session")
    assert tree.commit([Create("/f")], tree.session_id) == ("/f",)


def test_who_is_cut_off_gets_an_error_in_time_and_its_session_ends_by_its_timeout(zookeeper: Any) -> None:
    tree, other = zookeeper.tree(SHORT_S), zookeeper.tree()
    tree.commit([Create("/e", ephemeral=True)])
    before = tree.session_id
    zookeeper.cut(tree)
    for call in (lambda: tree.read("/e"), lambda: tree.children("/"), lambda: tree.commit([Create("/g")])):
        with pytest.raises(UnavailableError):
            call()
    zookeeper.pass_s(SHORT_S * 3)
    wait_until(lambda: other.read("/e") is None, "the end of its session")
    zookeeper.heal(tree)
    wait_until(lambda: held(tree) and tree.session_id != before, "another session")
    assert tree.read("/g") is None, "it was cut off when it created this"


def test_who_is_cut_off_for_a_moment_keeps_its_session(zookeeper: Any) -> None:
    tree = zookeeper.tree(20.0)
    tree.commit([Create("/e", ephemeral=True)])
    before = tree.session_id
    zookeeper.cut(tree)
    with pytest.raises(UnavailableError):
        tree.read("/e")
    assert tree.session_id == before
    zookeeper.heal(tree)
    wait_until(lambda: held(tree), "an answer")
    assert tree.session_id == before == tree.read("/e").owner


@pytest.mark.parametrize("change", ["write", "delete", "child", "child deleted", "cut"])
def test_a_change_of_what_is_watched_wakes_once(zookeeper: Any, change: str) -> None:
    tree, other = zookeeper.tree(), zookeeper.tree()
    other.commit([Create("/w"), Create("/w/a"), Create("/v")])
    tree.read("/w/a", watch=True)
    tree.children("/w", watch=True)
    tree.read("/v")
    while tree.wait_for_change(0.2):
        pass
    other.commit([Write("/v", b"", 0)])
    assert not tree.wait_for_change(0.2), "it is not watched"
    if change == "write":
        other.commit([Write("/w/a", b"1", 0)])
    elif change == "delete":
        other.commit([Delete("/w/a")])
    elif change == "child":
        other.commit([Create("/w/b")])
    elif change == "child deleted":
        other.commit([Delete("/w/a")])
    else:
        zookeeper.expire(tree)
        wait_until(lambda: held(tree), "an answer")
    assert tree.wait_for_change(10.0)
    while tree.wait_for_change(0.2):
        pass
    other.commit([Create("/w/c")] if change in ("write", "child") else [Write("/v", b"", 1)])
    if change != "write":
        assert not tree.wait_for_change(0.3), "a watch counts once"


def test_several_threads_may_commit(zookeeper: Any) -> None:
    tree = zookeeper.tree()
    tree.commit([Create("/t")])
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.extend(tree.commit([Create("/t/n", sequential=True)])[0] for _ in range(5)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(made)) == 20 and len(tree.children("/t")) == 20


def test_a_node_may_have_so_many_bytes_and_a_commit_that_has_more_is_refused(zookeeper: Any) -> None:
    tree = zookeeper.tree()
    tree.commit([Create("/large", b"x" * NODE_BYTES_MAX)])
    assert tree.read("/large").data == b"x" * NODE_BYTES_MAX
    with pytest.raises(NotSupportedError):
        tree.commit([Create("/larger", b"x" * (COMMIT_BYTES_MAX + 1))])
    assert tree.read("/larger") is None


def test_a_server_that_is_killed_comes_back_with_nodes_and_sessions(zookeeper: Any) -> None:
    tree = zookeeper.tree(20.0)
    tree.commit([Create("/kept", b"1"), Create("/e", ephemeral=True)])
    before = tree.session_id
    zookeeper.stop()
    with pytest.raises(UnavailableError):
        tree.read("/kept")
    zookeeper.restart()
    wait_until(lambda: held(tree), "an answer")
    assert tree.session_id == before and tree.read("/e").owner == before and tree.read("/kept").data == b"1"


def test_a_server_that_comes_back_empty_knows_no_session(zookeeper: Any) -> None:
    tree = zookeeper.tree(20.0)
    tree.commit([Create("/kept"), Create("/e", ephemeral=True)])
    before = tree.session_id
    zookeeper.stop()
    zookeeper.restart(empty=True)
    wait_until(lambda: held(tree) and tree.session_id != before, "another session")
    assert tree.read_all(["/kept", "/e"]) == (None, None)
