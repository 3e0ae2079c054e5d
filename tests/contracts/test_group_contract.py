"""What a group does on every implementation of the tree, with the real server and in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace.coordination import Create, Delete, Tree, Write
from headrace.core.affinity.groupers import LocalityInfo
from headrace.core.affinity.locations import LocationId
from headrace.core.group.membership import leader_of
from headrace.core.group.state import (
    BarrierState,
    GroupRun,
    ModelOrigin,
    ModelVersions,
    PauseRequest,
    Registration,
)
from headrace.errors import FencedError, StorageError, UnavailableError
from headrace.group.layout import GroupName
from headrace.group.processor_group import ProcessorGroup
from headrace.model.tasks import TaskName
from support.zookeepers import wait_until

ORIGIN = ModelOrigin("code-1", "run-1")
ROOT = "/headrace/delays-1-delays-1-1"  # as the seed has it
HOSTILE = ["a/b", "..", ".", "größe", "\U0001f600", "a b", "%2F", "a\x00b", "-", "x" * 300]
SHORT_S = 1.2


def registration(processor_id: str, code: str = "code-1") -> Registration:
    return Registration(processor_id, "host-1", 2, code, "host-1", 17, "1@1", "boot")


@pytest.fixture
def groups(zookeeper: Any) -> Callable[..., tuple[ProcessorGroup, Tree]]:
    def opened(timeout_s: float = 10.0) -> tuple[ProcessorGroup, Tree]:
        tree = zookeeper.tree(timeout_s)
        return ProcessorGroup(tree, "/headrace", GroupName("delays"), zookeeper.clock), tree

    return opened


@pytest.fixture
def pair(groups: Any) -> tuple[ProcessorGroup, Tree, ProcessorGroup, Tree]:
    """A leader, and another."""
    (first, tree), (second, other) = groups(), groups()
    first.register(registration("a"))
    second.register(registration("b"))
    return first, tree, second, other


def leading(group: ProcessorGroup) -> Any:
    assert group.sequence is not None
    return group.leading(group.sequence)


def ids(group: ProcessorGroup) -> list[str | None]:
    return [one.processor_id for one in group.state().members]


def registered(group: ProcessorGroup, processor_id: str) -> int:
    """Again, after a session has ended: it may take a moment to have another."""

    def tried() -> int | None:
        try:
            return group.register(registration(processor_id)) + 1
        except UnavailableError:
            return None

    return wait_until(tried, "a registration") - 1  # a number may be 0


# --- registrations --------------------------------------------------------------------------------------------------


def test_processors_are_there_in_the_order_of_their_registrations(groups: Any) -> None:
    opened = [groups()[0] for _ in range(3)]
    numbers = [group.register(registration(id_)) for group, id_ in zip(opened, "cab", strict=True)]
    assert numbers == sorted(numbers) and [group.sequence for group in opened] == numbers
    for group in opened:
        state = group.state()
        assert [(one.sequence, one.registration) for one in state.members] == [
            (number, registration(id_)) for number, id_ in zip(numbers, "cab", strict=True)
        ]
        assert state.versions == ModelVersions() and state.run is state.barrier is state.origin is None
    opened[0].close()
    assert ids(opened[1]) == ["a", "b"]
    assert leader_of(opened[2].state().members).sequence == numbers[1]  # type: ignore[union-attr]


def test_a_registration_is_stored_as_the_design_has_it(groups: Any) -> None:
    group, tree = groups()
    number = group.register(registration("a"))
    node = tree.read(f"{ROOT}/processors/processor.{number:010d}")
    assert node is not None and node.owner == tree.session_id
    assert json.loads(node.data) == {
        "wire": 1, "processor_id": "a", "location_id": "host-1", "slots": 2, "code": "code-1", "host": "host-1", "pid": 17,
        "process_started": "1@1", "boot_id": "boot",
    }  # fmt: skip


def test_who_registers_again_is_behind_all_others_and_there_once(pair: Any) -> None:
    first, _, second, _ = pair
    before = first.sequence
    assert first.register(registration("a")) > second.sequence > before
    assert ids(second) == ["b", "a"]


def test_a_node_that_was_created_by_a_lost_answer_is_replaced(groups: Any) -> None:
    group, tree = groups()
    group.register(registration("x"))
    tree.commit([Create(f"{ROOT}/processors/processor.", b"{}", ephemeral=True, sequential=True)])
    group.register(registration("a"))
    assert ids(group) == ["a"]


def test_who_stops_in_order_leaves_a_mark_until_it_is_there_again(groups: Any) -> None:
    (first, _), (second, _) = groups(), groups()
    first.register(registration("a"))
    for id_ in HOSTILE:
        second.register(registration(id_))
        second.leave()
        second.leave()
        assert second.sequence is None and not second.lease.holds(0.0)
    assert first.state().awaited == frozenset(HOSTILE) and ids(first) == ["a"]
    second.register(registration("a/b"))
    assert first.state().awaited == frozenset(HOSTILE) - {"a/b"}
    leading(first).forget_awaited(["..", "not there"])
    assert first.state().awaited == frozenset(HOSTILE) - {"a/b", ".."}


def test_a_mark_says_whether_a_leader_has_made_it(groups: Any) -> None:
    (first, _), (second, _) = groups(), groups()
    first.register(registration("a"))
    for id_ in "bc":
        second.register(registration(id_))
        second.leave()
    leading(first).await_return(["c", "d", "/"])
    state = second.state()
    assert state.awaited == {"b", "c", "d", "/"} and state.marked == {"d", "/"}, "whose own mark is there keeps that"


def test_who_dies_leaves_none(zookeeper: Any, pair: Any) -> None:
    first, _, _second, other = pair
    zookeeper.expire(other)
    wait_until(lambda: ids(first) == ["a"], "the end of the session")
    assert first.state().awaited == frozenset()


@pytest.mark.parametrize("id_", HOSTILE)
def test_an_id_may_be_any_text(groups: Any, id_: str) -> None:
    group, _ = groups()
    group.register(registration(id_))
    assert ids(group) == [id_]


def test_a_dead_process_of_the_same_id_is_removed_and_no_other(groups: Any) -> None:
    opened = [groups()[0] for _ in range(3)]
    for group, id_ in zip(opened, "aba", strict=True):
        group.register(registration(id_))
    members = opened[2].state().members
    with pytest.raises(AssertionError):
        opened[2].remove_duplicate(members[1])
    assert opened[2].remove_duplicate(members[0])
    assert not opened[2].remove_duplicate(members[0])
    assert ids(opened[1]) == ["b", "a"]
    assert not opened[0].confirm() and opened[0].sequence is None


# --- sessions and leases -------------------------------------------------------------------------------------------


def test_the_lease_begins_with_the_registration_and_is_extended_by_each_answer(zookeeper: Any, groups: Any) -> None:
    group, _ = groups()
    assert group.lease.ends_s is None and not group.confirm()
    group.register(registration("a"))
    assert group.lease.holds(zookeeper.clock())
    before = group.lease.ends_s
    zookeeper.pass_s(0.05)
    assert group.confirm() and group.lease.ends_s > before
    assert group.lease.ends_s <= zookeeper.clock() + 10.0 * 2 / 3


def test_who_has_lost_its_session_learns_it_and_writes_nothing_and_may_register_again(zookeeper: Any, pair: Any) -> None:
    first, tree, second, _ = pair
    before, number, session = first.state(), first.sequence, tree.session_id
    zookeeper.expire(tree)
    wait_until(lambda: _raised(first.confirm) is None and tree.session_id != session, "an answer under another session")
    assert not first.confirm() and first.sequence is None and not first.lease.holds(zookeeper.clock())
    for write in (
        lambda: first.leading(number).write_run(GroupRun("r", False, number)),
        lambda: first.leading(number).propose(1, b"model", ORIGIN),
        lambda: first.locality.write_processor_locality(locality(Partition_0="host-1")),
        lambda: first.rest(1),
        lambda: first.join_barrier(1),
    ):
        with pytest.raises(FencedError):
            write()
    after = second.state()
    assert (after.run, after.versions, after.highest_version) == (before.run, before.versions, before.highest_version)
    assert registered(first, "a") > second.sequence
    assert ids(second) == ["b", "a"] and first.lease.holds(zookeeper.clock())


def test_the_lease_of_who_is_cut_off_ends_before_others_see_it_missing(zookeeper: Any, groups: Any) -> None:
    (first, _), (second, other) = groups(), groups(SHORT_S)
    first.register(registration("a"))
    second.register(registration("b"))
    assert second.confirm()
    ends_s = second.lease.ends_s
    zookeeper.cut(other)
    with pytest.raises(UnavailableError):
        second.confirm()
    assert second.lease.ends_s == ends_s, "no answer extends it"
    zookeeper.pass_s(SHORT_S * 2 / 3)
    wait_until(lambda: ids(first) == ["a"] or zookeeper.pass_s(0.02), "the end of the session")
    assert zookeeper.clock() > ends_s and not second.lease.holds(zookeeper.clock())
    zookeeper.heal(other)
    registered(second, "b")
    assert ids(first) == ["a", "b"]


def test_a_server_that_is_away_for_less_than_the_timeout_changes_nothing(zookeeper: Any, groups: Any) -> None:
    group, _tree = groups(20.0)
    number = group.register(registration("a"))
    zookeeper.stop()
    assert _raised(group.confirm) is UnavailableError
    zookeeper.restart()
    assert wait_until(lambda: _raised(group.confirm) is None, "an answer") and group.confirm()
    assert group.sequence == number and [one.sequence for one in group.state().members] == [number]


def test_a_server_that_is_away_for_longer_ends_the_lease(zookeeper: Any, groups: Any) -> None:
    group, _ = groups(SHORT_S)
    group.register(registration("a"))
    zookeeper.stop()
    zookeeper.pass_s(SHORT_S)
    assert not group.lease.holds(zookeeper.clock())
    assert _raised(group.confirm) is UnavailableError
    zookeeper.restart()
    registered(group, "a")
    assert ids(group) == ["a"] and group.lease.holds(zookeeper.clock())


def test_a_server_that_comes_back_empty_gives_a_group_again(zookeeper: Any, pair: Any) -> None:
    first, _, second, _ = pair
    assert leading(first).propose(8, b"model", ORIGIN) and leading(first).publish(8)
    first.state()
    zookeeper.stop()
    zookeeper.restart(empty=True)
    wait_until(lambda: _raised(first.confirm) is None and not first.confirm(), "the end of the session")
    registered(first, "a")
    registered(second, "b")
    state = second.state()
    assert ids(first) == ["a", "b"] and state.versions == ModelVersions()
    assert first.state().highest_version == 8, "what it has seen is not used again"
    assert leading(first).restore(8, b"model", ORIGIN)
    state = second.state()
    assert state.versions == ModelVersions(8, 8) and second.job_model(8) == b"model" and state.origin == ORIGIN


# --- proposals ------------------------------------------------------------------------------------------------------


def test_a_proposal_is_written_joined_and_published(pair: Any) -> None:
    first, tree, second, _ = pair
    assert leading(first).propose(1, b"model", ORIGIN)
    state = second.state()
    assert state.versions == ModelVersions(1, 0) and state.highest_version == 1
    assert state.barrier.state is BarrierState.NEW and not state.barrier.joined
    assert second.job_model(1) == b"model"
    assert second.join_barrier(1) and second.join_barrier(1) and first.join_barrier(1)
    assert first.state().barrier.joined == {first.sequence, second.sequence}
    assert leading(first).publish(1) and leading(first).publish(1)
    state = second.state()
    assert state.versions == ModelVersions(1, 1) and state.barrier.state is BarrierState.DONE and state.origin == ORIGIN
    assert json.loads(tree.read(f"{ROOT}/jobModelVersion").data) == {"wire": 1, "proposed": 1, "active": 1}
    assert tree.read(f"{ROOT}/barriers/1/state").data == b"DONE"


def test_an_abandoned_proposal_is_final_and_its_number_is_not_used_again(pair: Any) -> None:
    first, _, second, _ = pair
    assert leading(first).propose(1, b"one", ORIGIN) and leading(first).publish(1)
    assert not leading(first).abandon(1), "what is done is final"
    assert leading(first).propose(2, b"two", ORIGIN) and second.join_barrier(2)
    assert leading(first).abandon(2) and leading(first).abandon(2)
    state = second.state()
    assert state.versions == ModelVersions(2, 1) and state.barrier.state is BarrierState.TIMED_OUT
    assert not first.join_barrier(2), "it is final"
    assert not leading(first).publish(2)
    for used in (1, 2):
        assert not leading(first).propose(used, b"other", ORIGIN)
    assert second.job_model(2) == b"two" and second.state().versions == ModelVersions(2, 1)
    assert leading(first).propose(3, b"one", ORIGIN)


def test_who_died_has_not_joined(zookeeper: Any, pair: Any) -> None:
    first, _, second, other = pair
    assert leading(first).propose(1, b"one", ORIGIN) and second.join_barrier(1)
    zookeeper.expire(other)
    wait_until(lambda: ids(first) == ["a"], "the end of the session")
    assert first.state().barrier.joined == frozenset()


def test_who_does_not_lead_writes_nothing(pair: Any) -> None:
    first, _, second, _ = pair
    before = first.state()
    for write in (
        lambda: leading(second).propose(1, b"one", ORIGIN),
        lambda: leading(second).write_run(GroupRun("r", False, second.sequence)),
        lambda: leading(second).abandon(1),
        lambda: leading(second).restore(1, b"one", ORIGIN),
        lambda: second.leading(first.sequence).propose(1, b"one", ORIGIN),
    ):
        with pytest.raises(FencedError):
            write()
    assert first.state() == before


def test_a_leader_that_was_deposed_between_its_writes_is_fenced(zookeeper: Any, pair: Any) -> None:
    """Scenario 9: it was stopped before it published; its successor publishes another number; it wakes."""
    first, tree, second, _ = pair
    old = leading(first)
    assert old.propose(8, b"eight", ORIGIN)
    zookeeper.expire(tree)
    wait_until(lambda: ids(second) == ["b"], "the end of the session")
    assert leading(second).abandon(8) and leading(second).propose(9, b"nine", ORIGIN) and leading(second).publish(9)
    wait_until(lambda: _raised(lambda: old.propose(10, b"ten", ORIGIN)) is FencedError, "the first to be connected again")
    for write in (lambda: old.publish(9) and old.propose(10, b"ten", ORIGIN), lambda: old.abandon(10)):
        with pytest.raises(FencedError):
            write()
    state = second.state()
    assert state.versions == ModelVersions(9, 9) and state.barrier.state is BarrierState.DONE and state.highest_version == 9


def test_a_large_job_model_comes_in_chunks(pair: Any) -> None:
    first, tree, second, _ = pair
    model = bytes(range(256)) * 10_000  # 2,560,000 bytes
    assert leading(first).propose(1, model, ORIGIN)
    assert second.job_model(1) == model
    assert tree.children(f"{ROOT}/jobModels/1") == ("0000", "0001", "0002", "meta")
    sizes = [len(tree.read(f"{ROOT}/jobModels/1/{number:04d}").data) for number in range(3)]
    assert sizes == [900_000, 900_000, 760_000]
    meta = json.loads(tree.read(f"{ROOT}/jobModels/1/meta").data)
    assert (meta["count"], meta["length"]) == (3, 2_560_000)


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (lambda tree, at: [Write(f"{at}/0001", b"x" * 900_000, 0)], "1/0001"),
        (lambda tree, at: [Write(f"{at}/0001", tree.read(f"{at}/0001").data[:-1], 0)], "1/0001"),
        (lambda tree, at: [Delete(f"{at}/0002")], "1/0002"),
        (lambda tree, at: [Delete(f"{at}/meta")], "1/meta"),
        (lambda tree, at: [Write(f"{at}/meta", b"{}", 0)], "1/meta"),
        (lambda tree, at: [Write(f"{at}/meta", tree.read(f"{at}/meta").data.replace(b"2560000", b"2560001"), 0)], "1/meta"),
        (lambda tree, at: [Delete(f"{at}/{name}") for name in tree.children(at)], "1/meta"),
    ],
)
def test_a_job_model_that_is_torn_or_altered_is_an_error_that_names_it(pair: Any, harm: Any, named: str) -> None:
    first, tree, second, _ = pair
    assert leading(first).propose(1, bytes(range(256)) * 10_000, ORIGIN)
    for operation in harm(tree, f"{ROOT}/jobModels/1"):
        tree.commit([operation])
    with pytest.raises(StorageError, match=f"jobModels/{named}"):
        second.job_model(1)


def test_the_rest_of_a_leader_that_died_while_it_wrote_does_no_harm(pair: Any) -> None:
    first, tree, second, _ = pair
    assert leading(first).propose(1, b"one", ORIGIN) and leading(first).publish(1)
    tree.commit([Create(f"{ROOT}/jobModels/2"), Create(f"{ROOT}/jobModels/2/0000", b"torn")])
    tree.commit([Create(f"{ROOT}/barriers/4"), Create(f"{ROOT}/jobModels/note"), Create(f"{ROOT}/jobModels/007")])
    state = second.state()
    assert state.versions == ModelVersions(1, 1) and state.highest_version == 4
    assert not leading(first).propose(2, b"two", ORIGIN) and second.state().versions == ModelVersions(1, 1)
    assert not leading(first).propose(4, b"four", ORIGIN), "its barrier is there"
    assert leading(first).propose(5, b"five", ORIGIN) and second.job_model(5) == b"five"
    assert leading(first).restore(2, b"two", ORIGIN) and second.job_model(2) == b"two"


def test_a_barrier_that_is_missing_is_seen_and_may_be_abandoned(pair: Any) -> None:
    first, tree, second, _ = pair
    assert leading(first).propose(1, b"one", ORIGIN)
    tree.commit([Delete(f"{ROOT}/barriers/1/{name}") for name in ("state", "participants")] + [Delete(f"{ROOT}/barriers/1")])
    assert second.state().barrier is None and not second.join_barrier(1) and not leading(first).publish(1)
    assert leading(first).abandon(1) and second.state().barrier.state is BarrierState.TIMED_OUT


def test_the_newest_versions_are_kept_and_what_is_in_force(pair: Any) -> None:
    first, tree, second, _ = pair
    assert leading(first).propose(1, b"one", ORIGIN) and leading(first).publish(1)
    for version in range(2, 15):
        assert leading(first).propose(version, b"x" * 1_000_000, ORIGIN) and second.join_barrier(version)
        assert leading(first).abandon(version)
    assert leading(first).delete_old() == (2, 3, 4)
    assert leading(first).delete_old() == ()
    kept = {"1", *map(str, range(5, 15))}
    assert set(tree.children(f"{ROOT}/jobModels")) == set(tree.children(f"{ROOT}/barriers")) == kept
    assert second.job_model(1) == b"one" and second.state().highest_version == 14


# --- what else there is ---------------------------------------------------------------------------------------------


def test_a_run_is_written_whole(pair: Any) -> None:
    first, tree, second, _ = pair
    run = GroupRun("run-ü", True, first.sequence, targets={f"kafka.größe/{n}": n for n in range(3)})
    assert leading(first).write_run(run) and leading(first).write_run(run)
    assert second.state().run == run
    ended = GroupRun("run-ü", True, first.sequence, "ended")
    assert leading(first).write_run(ended) and second.state().run == ended
    stored = json.loads(tree.read(f"{ROOT}/run").data)
    assert {key: stored[key] for key in ("id", "bounded", "state", "targets")} == {
        "id": "run-ü", "bounded": True, "state": "ended", "targets": {}
    }  # fmt: skip


@pytest.mark.parametrize("path", ["jobModelVersion", "run", "barriers/1/state"])
def test_a_document_that_cannot_be_read_is_an_error_that_names_it(pair: Any, path: str) -> None:
    first, tree, second, _ = pair
    assert leading(first).propose(1, b"one", ORIGIN)
    node = tree.read(f"{ROOT}/{path}")
    tree.commit([Write(f"{ROOT}/{path}", b'{"wire":1,', node.version)])
    with pytest.raises(StorageError, match=path):
        second.state()


def test_what_is_no_registration_is_no_processor_and_what_cannot_be_read_has_no_id(groups: Any) -> None:
    (group, tree), (_, other) = groups(), groups()
    group.register(registration("a"))
    place = f"{ROOT}/processors"
    tree.commit([Create(f"{place}/note"), Create(f"{place}/processor.x"), Create(f"{place}/processor.0000000000x")])
    tree.commit([Create(f"{place}/processor.", b"{}", sequential=True)])  # of nobody: it would never end
    (newer,) = other.commit([Create(f"{place}/processor.", b'{"wire":2,"id":"b"}', ephemeral=True, sequential=True)])
    members = group.state().members
    assert [one.processor_id for one in members] == ["a", None]
    assert members[1].sequence == int(newer[-10:])


@pytest.mark.parametrize("who", ["leader", "successor"])
def test_who_has_to_act_is_woken(pair: Any, groups: Any, who: str) -> None:
    first, _tree, second, _other = pair
    third, _ = groups()
    watching, cause = (first, lambda: third.register(registration("c"))) if who == "leader" else (second, first.close)
    watching.state()
    while watching.wait_for_change(0.2):
        watching.state()
    cause()
    assert watching.wait_for_change(10.0)
    assert ids(watching) == (["a", "b", "c"] if who == "leader" else ["b"])


def test_members_hear_of_a_proposal_and_its_end(pair: Any) -> None:
    first, _, second, _ = pair
    for act in (
        lambda: leading(first).propose(1, b"one", ORIGIN),
        lambda: leading(first).abandon(1),
        lambda: leading(first).write_run(GroupRun("r", False, first.sequence)),
    ):
        second.state()
        while second.wait_for_change(0.2):
            second.state()
        act()
        assert second.wait_for_change(10.0)


def test_a_leader_hears_who_joins_a_barrier(pair: Any) -> None:
    first, _, second, _ = pair
    leading(first).propose(1, b"one", ORIGIN)
    first.state()
    while first.wait_for_change(0.2):
        first.state()
    second.join_barrier(1)
    assert first.wait_for_change(10.0) and first.state().barrier.joined == {second.sequence}


# --- locality -------------------------------------------------------------------------------------------------------


def locality(**places: str) -> LocalityInfo:
    return LocalityInfo({TaskName.parse(task): LocationId(place) for task, place in places.items()})


def test_where_tasks_have_run_is_kept_and_written_on_change_only(pair: Any) -> None:
    first, tree, second, _ = pair
    assert first.locality.read_processor_locality() == locality()
    assert first.locality.write_processor_locality(locality(Partition_0="host-1", Partition_1="host-2"))
    assert second.locality.write_processor_locality(locality(Partition_2="host-3"))
    before = tree.read(f"{ROOT}/localityData/Partition_0")
    assert not first.locality.write_processor_locality(locality(Partition_0="host-1"))
    assert tree.read(f"{ROOT}/localityData/Partition_0") == before
    assert first.locality.write_processor_locality(locality(Partition_0="rack-7/node:2", Partition_1="host-2"))
    wanted = locality(Partition_0="rack-7/node:2", Partition_1="host-2", Partition_2="host-3")
    found = second.locality.read_processor_locality()
    assert found.get_locality() == wanted.get_locality()
    (moved,) = found.former
    assert {place: left.is_home for place, left in found.former[moved].items()} == {"host-1": True}
    second.locality.forget_former([moved], second.sequence)
    assert second.locality.read_processor_locality() == wanted
    assert not first.locality.write_processor_locality(locality())


def test_tasks_may_have_hostile_names_and_those_that_are_no_more_are_removed(pair: Any) -> None:
    first, tree, second, _ = pair
    names = list(map(TaskName.parse, ["by-größe/Partition_0", "a b/Partition_1", "a.b_-c", "\U0001f600/Partition_0"]))
    info = LocalityInfo({name: LocationId("host-1") for name in names})
    assert first.locality.write_processor_locality(info)
    tree.commit([Create(f"{ROOT}/localityData/{name}", b"host-1") for name in ("%FF", "%FE%20")])
    tree.commit([Create(f"{ROOT}/localityData/Partition_4", b"\xff\xff"), Create(f"{ROOT}/localityData/Partition_5", b"a b")])
    assert second.locality.read_processor_locality() == info
    assert first.locality.remove_all_but(names[:1], first.sequence) == 7
    assert second.locality.read_processor_locality() == LocalityInfo({names[0]: LocationId("host-1")})
    with pytest.raises(FencedError):
        second.locality.remove_all_but([], first.sequence)


def test_many_tasks_are_written_in_several_commits(pair: Any) -> None:
    first, _, second, _ = pair
    many = LocalityInfo({TaskName.parse(f"Partition_{n}"): LocationId("host-1") for n in range(1000)})
    assert first.locality.write_processor_locality(many)
    assert second.locality.read_processor_locality() == many


def _raised(call: Callable[[], Any]) -> type[Exception] | None:
    try:
        call()
    except (UnavailableError, FencedError) as error:
        return type(error)
    return None


# --- pauses ---------------------------------------------------------------------------------------------------------


def test_a_pause_is_asked_for_by_the_leader_and_reported_by_each_that_rests(pair: Any) -> None:
    first, _, second, _ = pair
    assert second.state().pause is None
    asked = PauseRequest(1, first.sequence, ("source", "by-key"), {"kafka.words#0": 10})
    assert leading(first).ask_pause(asked)
    assert first.state().pause == second.state().pause == asked
    assert second.rest(1) and second.rest(1), "again it does nothing"
    assert first.state().rests == {second.sequence: 1} and second.state().rests == {}
    assert first.rest(1) and second.rest(2)
    assert dict(first.rests()) == {first.sequence: 1, second.sequence: 2}
    assert second.rest(None) and second.rest(None)
    assert dict(first.rests()) == {first.sequence: 1}
    assert leading(first).ask_pause(None) and first.state().pause is None
    with pytest.raises(FencedError):
        leading(second).ask_pause(asked)


def test_what_one_reports_of_a_pause_is_gone_with_its_session_and_a_leader_is_woken_by_it(pair: Any) -> None:
    first, _, second, other = pair
    leading(first).ask_pause(PauseRequest(1, first.sequence, ("source",)))
    first.state()
    while first.wait_for_change(SHORT_S):
        first.state()
    second.rest(1)
    assert first.wait_for_change(10.0)
    assert first.state().rests == {second.sequence: 1}
    other.close()
    wait_until(lambda: not first.state().rests, "the end of the session")


def test_a_report_that_no_processor_writes_is_left_out(pair: Any) -> None:
    first, tree, second, _ = pair
    leading(first).ask_pause(PauseRequest(1, first.sequence, ("source",)))
    second.rest(1)
    for name, data in (("x", b"1"), ("99", b"\xff"), ("98", b"-1")):
        tree.commit([Create(f"{ROOT}/resting/{name}", data)])
    assert first.state().rests == {second.sequence: 1}


def test_a_group_is_forgotten_where_nobody_is_in_it(groups: Any) -> None:
    (first, tree), (second, other) = groups(), groups()
    assert not first.is_there() and first.forget(), "there is nothing yet"
    first.register(registration("a"))
    second.register(registration("b"))
    assert leading(first).propose(1, b"x" * 2_000_000, ORIGIN)
    assert (second.processors(), second.forget(), tree.read(f"{ROOT}/jobModels/1/meta") is None) == (2, False, False)
    first.leave()
    second.leave()
    assert (second.processors(), second.is_there()) == (0, True)
    assert second.forget() and not second.is_there() and other.read("/headrace") is not None
    assert second.forget(), "again, it does nothing"
    assert first.register(registration("a")) >= 0 and first.state().members[0].registration.processor_id == "a"


def test_who_registers_while_a_group_is_forgotten_can_lead_it(groups: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (old, tree), (late, _) = groups(), groups()
    old.register(registration("a"))
    old.leave()
    listed = tree.children

    def children(path: str, **options: Any) -> tuple[str, ...]:
        found: tuple[str, ...] = listed(path, **options)
        if path == ROOT and late.sequence is None:
            late.register(registration("b"))
        return found

    monkeypatch.setattr(tree, "children", children)
    assert not old.forget()
    assert late.confirm() and leading(late).propose(1, b"model", ORIGIN)


def test_those_whose_nodes_were_deleted_by_hand_know_each_other_when_they_have_registered_again(pair: Any) -> None:
    """Numbers begin again, and the sessions are those of before."""
    first, tree, second, _ = pair
    assert ids(first) == ids(second) == ["a", "b"]

    def delete(path: str) -> None:
        for name in tree.children(path):
            delete(f"{path}/{name}")
        tree.commit([Delete(path)])

    delete(ROOT)
    for group, id_ in ((second, "b"), (first, "a")):
        assert not group.confirm()
        group.register(registration(id_))
    assert (second.sequence, first.sequence) == (0, 1)
    assert ids(first) == ids(second) == ["b", "a"]
