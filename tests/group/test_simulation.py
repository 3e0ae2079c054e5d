"""Groups through joins, leaves, crashes, lost sessions and late messages: they converge, and no step breaks what must hold."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from group.simulated import TIMEOUT_S, Processor, World
from headrace.coordination import TreeConflictError
from headrace.core.group.proposals import BarrierOutcome
from headrace.core.group.state import GroupState, ModelVersions
from headrace.group.registration import OwnNode

FEW, MANY = range(25), range(25, 150)
QUIET_S = 100.0


@pytest.fixture
def world() -> World:
    return World()


def started(world: World, ids: str = "abc") -> list[Processor]:
    made = [world.add(id_) for id_ in ids]
    world.pass_s(20)
    world.check_converged()
    return made


def test_processors_that_start_together_get_one_plan(world: World) -> None:
    started(world, "abcd")
    assert list(world.proposed) == [1]


def test_an_abandoned_proposal_lets_released_tasks_resume(world: World) -> None:
    """Scenario 10: v1, v2 proposed, released, abandoned as who was to get tasks has died; what would be v3 equals v1."""
    first, second, _ = started(world)
    before = world.kafka.plan
    joining = world.add("d")
    while not (len(world.proposed) == 2 and not second.works_on()):
        world.pass_s(0.5)
    joining.die()
    world.server.expire(joining.tree.session_id or 0)
    world.pass_s(15)
    assert list(world.proposed) == [1, 2] and world.kafka.version == 1 and world.kafka.plan == before
    assert first.group.state().versions.proposed == 2
    world.check_converged()


def test_a_proposal_of_a_leader_that_died_is_abandoned_by_the_next(world: World) -> None:
    first, second, _ = started(world)
    world.add("d")
    while len(world.proposed) < 2:
        world.pass_s(0.5)
    assert first.awaited is not None
    first.die()
    world.pass_s(0.5)
    assert not second.works_on(), "it has released"
    world.pass_s(TIMEOUT_S + 10)
    assert world.kafka.version == 3 and 2 in world.proposed, "the next number"
    world.check_converged()


def test_a_leader_that_is_stopped_after_the_commit_is_followed_by_one_that_publishes(world: World) -> None:
    """Scenario 8; and 9 when it wakes: its late write is refused."""
    first, *_ = started(world)
    world.add("d")
    while world.kafka.version < 2:
        world.pass_s(0.5 / 4)
    assert first.late is not None, "it has committed, and not published"
    first.is_paused = True
    second = world.processors[1]
    while second.group.state().versions.active < 2:
        world.pass_s(0.5)
    assert second.group.state().versions == ModelVersions(2, 2), "the same version, once"
    world.pass_s(10)
    assert world.kafka.version == 3, "without the first"
    first.is_paused = False
    assert first.late is not None, "it has yet to publish"
    world.pass_s(1)
    assert second.group.state().versions == ModelVersions(3, 3), "it has changed nothing"
    world.pass_s(20)
    world.check_converged()


def test_ten_processors_restarted_one_after_the_other_need_no_other_version(world: World) -> None:
    """Scenario 11."""
    world.tasks = 20
    started(world, "abcdefghij")
    before, versions = world.kafka.plan, list(world.proposed)
    for processor in list(world.processors):
        processor.stop()
        world.pass_s(2)
        world.add(processor.id)
        world.pass_s(2)
    world.pass_s(10)
    assert world.kafka.plan == before and list(world.proposed) == versions
    world.check_converged()


def test_one_that_stopped_in_order_is_waited_for_and_then_replaced(world: World) -> None:
    _, second, _ = started(world)
    before = world.kafka.plan
    second.stop()
    world.pass_s(28)
    assert world.kafka.plan == before
    world.pass_s(12)
    assert "b" not in world.kafka.plan
    world.check_converged()


def test_one_that_died_is_replaced_after_its_session(world: World) -> None:
    _, second, _ = started(world)
    second.die()
    world.pass_s(TIMEOUT_S + 5)
    assert "b" not in world.kafka.plan
    world.check_converged()


def test_those_that_do_not_change_work_through_it(world: World) -> None:
    """Scenario 7, as far as the decisions are concerned: one task moves to the one that joins, and two do not hear of it."""
    world.tasks = 7
    first, second, third = started(world)
    before, seen = world.kafka.plan, dict.fromkeys("abc", False)
    fourth = world.add("d")

    def look() -> None:
        for one in (first, second, third):
            seen[one.id] |= one.works_on() < set(before[one.id])

    world.pass_s(15, look)
    world.check_converged()
    changed = {id_ for id_ in before if world.kafka.plan[id_] != before[id_]}
    assert fourth.works_on() and len(changed) == 1
    assert {id_ for id_, has_paused in seen.items() if has_paused} <= changed, "the others worked all the while"


def test_a_server_that_comes_back_empty_gives_the_same_plan(world: World) -> None:
    """Scenario 14."""
    started(world)
    before = world.kafka.plan
    world.server.is_down = True
    world.pass_s(2 * TIMEOUT_S)
    assert not any(one.works_on() for one in world.processors), "the leases have ended"
    world.empty()
    world.pass_s(20)
    assert world.kafka.plan == before and world.kafka.version == 1
    world.check_converged()


def test_other_code_waits_for_the_last_of_the_old(world: World) -> None:
    """Scenario 32: they join, the old ones leave one by one, also the leader."""
    old = started(world, "ab")
    world.add("x", "other code")
    world.add("y", "other code")
    world.pass_s(15)
    assert set(world.kafka.plan) == {"a", "b"} and not world.processors[2].works_on()
    old[0].die()
    world.pass_s(TIMEOUT_S + 10)
    assert set(world.kafka.plan) == {"b"}
    old[1].die()
    world.pass_s(TIMEOUT_S + 10)
    assert set(world.kafka.plan) == {"x", "y"}
    world.check_converged()


def disturbed(world: World, chance: random.Random) -> None:
    """One thing happens."""
    living = world.running()
    one = chance.choice(living) if living else None
    free = [id_ for id_ in "abcdef" if id_ not in {other.id for other in living}]

    def join() -> None:
        # an id whose process has died may come back while its session is still there: then it is a duplicate, for a while
        if free and not world.server.is_down:
            world.add(chance.choice(free))

    def server_away() -> None:
        world.say("the server is away, or back")
        if world.server.is_down:
            world.empty() if chance.random() < 0.2 else world.server.restart()
        else:
            world.server.is_down = True

    happens: list[tuple[float, Callable[[], object]]] = [(3, join), (0.7, server_away)]
    if one is not None:

        def pause() -> None:
            world.say(f"{one.name} is stopped, or wakes")
            one.is_paused = not one.is_paused

        def cut() -> None:
            world.say(f"{one.name} is cut off, or not any more")
            one.tree.is_cut = not one.tree.is_cut

        happens += [(2, pause), (2, cut), (1, one.die), (1, one.stop)]
    weights, actions = zip(*happens, strict=True)
    chance.choices(actions, weights)[0]()


def converges(seed: int) -> None:
    world, chance = World(tasks=7), random.Random(seed)
    for id_ in "abc"[: chance.randint(1, 3)]:
        world.add(id_)
    for _ in range(25):
        world.pass_s(chance.choice([0.5, 1.0, 2.0, 4.0, 8.0, 12.0]))
        disturbed(world, chance)
        world.check()
    world.say("all heals")
    if world.server.is_down:
        world.server.restart()
    for one in world.running():
        one.is_paused = one.tree.is_cut = False
    if not world.running():
        world.add("a")
    world.pass_s(QUIET_S)
    world.check_converged()


@pytest.mark.parametrize("seed", FEW)
def test_a_group_converges(seed: int) -> None:
    converges(seed)


@pytest.mark.search
@pytest.mark.timeout(1200)
def test_many_groups_converge() -> None:
    for seed in MANY:
        converges(seed)


# --- what each safeguard is for -------------------------------------------------------------------------------------


def by_proposal_alone(versions: Any, barrier: Any, active: Any, proposed: Any, holds_lease: bool) -> bool:
    """As `may_work`, but that who has released for a proposal does not resume when that is abandoned."""
    return holds_lease and active is not None and (versions.proposed <= versions.active or active == proposed)


def whatever_is_proposed(versions: Any, barrier: Any, active: Any, proposed: Any, holds_lease: bool) -> bool:
    """As `may_work`, but that nobody releases for a proposal."""
    return holds_lease and active is not None


def nobody_is_waited_for(*_: Any) -> tuple[BarrierOutcome, frozenset[int]]:
    return BarrierOutcome.RELEASED, frozenset()


def committed_by_anybody(self: OwnNode, operations: Any, by: int | None = None) -> bool:
    """As `OwnNode.commit`, but that the own node need not be there."""
    try:
        self._tree.commit(operations)
    except TreeConflictError:
        return False
    return True


def after_the_committed_one(state: GroupState, committed: int) -> int:
    return 1 + committed


# Per safeguard of the coordination: what stands in its place when it is taken out, and a word of what breaks then. What keeps
# two from *committing* is Kafka's, see `commit_model.test_group`.
TAKEN_OUT: dict[str, tuple[str, Any, str]] = {
    "a lease ends before the session": ("headrace.core.group.lease.Lease.holds", lambda *_: True, "work on task"),
    "who loses tasks releases them first": ("group.simulated.may_work", whatever_is_proposed, "work on task"),
    "a leader waits until they are released": ("group.simulated.barrier_outcome", nobody_is_waited_for, "work on task"),
    "who has released resumes after an abandoned proposal": ("group.simulated.may_work", by_proposal_alone, ""),
    "a proposal of a leader before is ended": ("group.simulated.is_left_over", lambda *_: False, ""),
    "a number is used once": ("group.simulated.next_version", after_the_committed_one, "twice"),
}

# Alone it is not needed here: each write names the version of the node that was read, so that a deposed leader's is refused by
# what its successor has written; and no plan is committed but by the holder of the application. It covers what a leader writes
# that nobody has written since, such as the run.
COVERED = {"a leader's writes depend on its own node": ("headrace.group.registration.OwnNode.commit", committed_by_anybody)}


@pytest.mark.parametrize("safeguard", TAKEN_OUT)
def test_without_a_safeguard_a_schedule_breaks_what_must_hold(safeguard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, instead, what = TAKEN_OUT[safeguard]
    monkeypatch.setattr(place, instead)

    def all_converge() -> None:
        for seed in (*FEW, *MANY):
            converges(seed)

    with pytest.raises(AssertionError, match=what or None):
        all_converge()


@pytest.mark.parametrize("safeguard", COVERED)
def test_a_safeguard_that_another_one_covers(safeguard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*COVERED[safeguard])
    for seed in FEW[:8]:
        converges(seed)
