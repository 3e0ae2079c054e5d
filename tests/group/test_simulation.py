"""Groups through joins, leaves, crashes, lost sessions and late messages: they converge, and no step breaks what must hold."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from group.simulated import RETURN_S, TIMEOUT_S, Processor, World
from headrace.core.group.state import ModelVersions

FEW, MANY = range(25), range(25, 150)
THOUSANDS = [range(first, first + 250) for first in range(150, 2650, 250)]
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
    assert world.proposed == [1]


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
    assert world.proposed == [1, 2] and world.kafka.version == 1 and world.kafka.plan == before
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


def test_ten_processors_restarted_one_after_the_other_need_no_other_version() -> None:
    """Scenario 11."""
    world = World(20)
    started(world, "abcdefghij")
    before, versions = world.kafka.plan, list(world.proposed)
    for processor in list(world.processors):
        processor.stop()
        world.pass_s(2)
        world.add(processor.id)
        world.pass_s(2)
    world.pass_s(10)
    assert world.kafka.plan == before and world.proposed == versions
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


def test_those_that_do_not_change_work_through_it() -> None:
    """Scenario 7, as far as the decisions are concerned: one task moves to the one that joins, and two do not hear of it."""
    world = World(3)
    first, second, third = started(world)
    before, seen = world.kafka.plan, dict.fromkeys("abc", False)
    fourth = world.add("d")

    def look() -> None:
        for one in (first, second, third):
            seen[one.id] |= one.works_on() < before[one.id]

    world.pass_s(15, look)
    world.check_converged()
    changed = {id_ for id_ in before if world.kafka.plan[id_] != before[id_]}
    assert fourth.works_on() and len(changed) == 1
    assert {id_ for id_, has_paused in seen.items() if has_paused} <= changed, "the others worked all the while"


@pytest.mark.parametrize("late", "abc")
def test_a_server_that_comes_back_empty_gives_the_same_plan(world: World, late: str) -> None:
    """Scenario 14; one finds the server some seconds after the others."""
    made = started(world)
    before = world.kafka.plan
    world.server.is_down = True
    world.pass_s(2 * TIMEOUT_S)
    assert not any(one.works_on() for one in world.processors), "the leases have ended"
    last = made["abc".index(late)]
    last.tree.is_cut = True
    world.empty()
    world.pass_s(10)
    assert {one.id for one in world.running() if one.works_on()} == set("abc") - {late}
    last.tree.is_cut = False
    world.pass_s(20)
    assert world.kafka.plan == before and world.kafka.version == 1
    world.check_converged()


def killed(world: World) -> None:
    for one in world.running():
        one.die()


def test_after_a_kill_of_all_each_works_on_its_own_tasks_as_it_comes(world: World) -> None:
    """Scenario 12: in reverse order, some seconds apart."""
    started(world, "abcd")
    before = world.kafka.plan
    killed(world)
    world.pass_s(TIMEOUT_S)
    for count, id_ in enumerate("dcba", 1):
        world.add(id_)
        world.pass_s(6)
        assert {one.id: one.works_on() for one in world.running()} == {id_: before[id_] for id_ in "dcba"[:count]}
    assert (world.kafka.plan, world.kafka.version) == (before, 1)
    world.check_converged()


def test_of_those_that_were_killed_one_that_does_not_come_back_is_waited_for_only_so_long(world: World) -> None:
    """Also where the first one that came is killed meanwhile: its tasks move at once, those of the other wait on."""
    started(world)
    before = world.kafka.plan
    killed(world)
    world.pass_s(TIMEOUT_S)
    first, _ = world.add("c"), world.add("b")
    world.pass_s(6)
    assert world.kafka.plan == before
    first.die()
    world.pass_s(TIMEOUT_S + 5)
    assert world.kafka.plan.keys() == {"a", "b"} and before["a"] <= world.kafka.plan["a"]
    world.pass_s(RETURN_S)
    assert world.kafka.plan.keys() == {"b"}
    world.check_converged()


def test_tasks_go_at_once_to_a_spare_that_has_seen_the_others_at_work() -> None:
    """None is at work when it leads, but the group was not down. Who came as they went cannot know that, and waits."""
    world = World(1)
    started(world, "abc")
    spare = world.add("d")
    world.pass_s(2 * TIMEOUT_S + 2)
    assert world.kafka.plan.keys() == set("abc"), "there are three tasks"
    for one in world.running():
        if one is not spare:
            one.die()
    world.pass_s(TIMEOUT_S + 5)
    assert world.kafka.plan.keys() == {"d"}
    world.check_converged()
    spare.die()
    world.add("e")
    world.pass_s(TIMEOUT_S + 5)
    assert world.kafka.plan.keys() == {"d", "e"}
    world.pass_s(RETURN_S)
    assert world.kafka.plan.keys() == {"e"}
    world.check_converged()


def test_a_spare_changes_nothing_when_it_comes_and_goes_nor_when_others_restart_beside_it() -> None:
    world = World(1)
    started(world, "abc")
    before, entries = world.kafka.plan, list(world.kafka.entries)
    world.add("d")
    world.pass_s(10)
    for id_ in "dbd":
        next(one for one in world.running() if one.id == id_).stop()
        world.pass_s(3)
        world.add(id_)
        world.pass_s(5)
    assert (world.kafka.plan, world.kafka.version, world.kafka.entries) == (before, 1, entries)
    world.check_converged()


@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_run_that_ends_keeps_tasks_where_they_are_within_itself_only(is_bounded: bool) -> None:
    """Who comes first in another run has what it had where runs have no end, and all of it where they have one."""
    world = World(4, is_bounded)
    first, second = started(world, "ab")
    before = world.kafka.plan
    first.stop()  # it led
    world.pass_s(5)
    world.add("a")
    world.pass_s(10)
    assert world.kafka.plan == before, "the run lasts as long as one of them is there"
    for way in (Processor.die, Processor.stop):
        for one in world.running():
            way(one)
        world.pass_s(TIMEOUT_S + 1)
        world.add(second.id)
        world.pass_s(10)
        assert world.running()[0].works_on() == (frozenset().union(*before.values()) if is_bounded else before[second.id])


def test_a_run_whose_first_leader_dies_before_it_has_planned_begins_with_the_next_plan() -> None:
    world = World(4, bounded=True)
    for one in started(world, "ab"):
        one.stop()
    world.pass_s(TIMEOUT_S + 1)
    first, second = world.add("a"), world.add("b")
    while second.run is None:
        world.pass_s(0.5)
    assert world.proposed == [1], "it has decided nothing yet"
    every = frozenset().union(*world.kafka.plan.values())
    first.die()
    world.pass_s(TIMEOUT_S + 10)
    assert second.works_on() == every, "of the run before nobody is waited for"


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


@pytest.mark.parametrize("is_empty", [True, False])
def test_other_code_stays_a_spare_though_it_is_the_first_to_be_back(world: World, is_empty: bool) -> None:
    """ZooKeeper was away for longer than the sessions last. What it shows, if it shows anything, is not what counts."""
    old, spare = started(world, "ab"), world.add("x", "other code")
    world.pass_s(15)
    before = world.kafka.plan
    world.server.is_down = True
    world.pass_s(2 * TIMEOUT_S)
    for one in old:
        one.tree.is_cut = True
    world.empty() if is_empty else world.server.restart()
    world.pass_s(10)
    assert spare.led_by is not None and not spare.works_on()
    for one in old:
        one.tree.is_cut = False
    world.pass_s(20)
    assert (world.kafka.plan, world.kafka.version) == (before, 1) and spare.led_by is None
    world.check_converged()


def test_other_code_takes_over_where_those_with_the_code_of_the_plan_do_not_return(world: World) -> None:
    old, spare = started(world, "ab"), world.add("x", "other code")
    world.pass_s(15)
    world.server.is_down = True
    world.pass_s(2 * TIMEOUT_S)
    for one in old:
        one.die()
    world.empty()
    world.pass_s(RETURN_S + 10)
    assert spare.works_on() == frozenset().union(*world.kafka.plan.values()) != frozenset()


def test_other_code_has_a_job_model_of_its_own_also_where_all_else_is_the_same(world: World) -> None:
    """Else the former code would be that in force, and one that comes with it would get all tasks."""
    for one in started(world, "ab"):
        one.stop()
    for id_ in "ab":
        world.add(id_, "other code")
    world.pass_s(20)
    world.check_converged()
    assert (world.kafka.version, world.code) == (2, "other code")
    before = world.kafka.plan
    world.add("c")
    world.pass_s(20)
    assert world.kafka.plan == before and world.kafka.version == 2


def the_leader_dies(world: World) -> None:
    world.running()[0].die()


def another_dies(world: World) -> None:
    world.running()[1].die()


def another_joins(world: World) -> None:
    world.add("d")


def another_restarts(world: World) -> None:
    second = world.running()[1]
    second.stop()
    world.add(second.id)


def one_that_is_to_get_tasks_dies(world: World) -> None:
    """The proposal comes to nothing."""
    joining = world.add("d")
    while len(world.proposed) < 2:
        world.pass_s(0.5)
    joining.die()
    world.server.expire(joining.tree.session_id or 0)


PROPOSED = (the_leader_dies, another_dies, another_joins, one_that_is_to_get_tasks_dies)


@pytest.mark.parametrize(
    ("silent", "happens"),
    [("Kafka", another_restarts), *((silent, happens) for silent in ("Kafka", "ZooKeeper") for happens in PROPOSED)],
)
def test_a_group_converges_whichever_call_of_its_leader_is_not_answered(
    silent: str, happens: Callable[[World], None]
) -> None:
    """Who dies does so in a transaction: as long as it is not fenced nothing else can be read."""
    reached = 0
    for number in range(16):
        world = World()
        made = started(world)
        if silent == "Kafka":
            world.kafka.unanswered_in = number
        else:
            for one in made:
                one.unanswered_in = number
        happens(world)
        world.pass_s(TIMEOUT_S + 20)
        world.check_converged()
        reached += world.kafka.unanswered_in is None and any(one.unanswered_in is None for one in made)
    assert 0 < reached < 16, "each of them was one that is not answered, once"


def disturbed(world: World, chance: random.Random, codes: Sequence[str]) -> None:
    """One thing happens. `codes`: of which one who joins has one."""
    living = world.running()
    one = chance.choice(living) if living else None
    free = [id_ for id_ in "abcdef" if id_ not in {other.id for other in living}]

    def join() -> None:
        # an id whose process has died may come back while its session is still there: then it is a duplicate, for a while
        if free and not world.server.is_down:
            world.add(chance.choice(free), codes[len(world.log) % len(codes)])

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
            one.pause()

        def unanswered() -> None:
            world.say("a leader's calls are not answered")
            world.kafka.unanswered_in = chance.randint(0, 8)
            for other in living:
                other.unanswered_in = chance.randint(0, 8)

        def cut() -> None:
            world.say(f"{one.name} is cut off, or not any more")
            one.tree.is_cut = not one.tree.is_cut

        happens += [(2, pause), (2, cut), (1, one.die), (1, one.stop), (2, unanswered)]
    weights, actions = zip(*happens, strict=True)
    chance.choices(actions, weights)[0]()


def converges(seed: int) -> None:
    """Of every third group some processors have other code."""
    codes = ("code", "other code") if seed % 3 == 0 else ("code",)
    world, chance = World(tasks=12), random.Random(seed)
    for id_ in "abc"[: chance.randint(1, 3)]:
        world.add(id_)
    for _ in range(25):
        world.pass_s(chance.choice([0.5, 1.0, 2.0, 4.0, 8.0, 12.0]))
        disturbed(world, chance, codes)
        world.check()
    world.say("all heals")
    if world.server.is_down:
        world.server.restart()
    for one in world.running():
        one.tree.is_cut = False
        if one.is_paused:
            one.pause()
    if not world.running():
        world.add("a")
    world.pass_s(QUIET_S)
    world.check_converged()


def comes_home(seed: int) -> None:
    """A group with or without spares: its processors are restarted one by one, or all go at once, by whatever way, and come
    back one after the other; then each has what it had, by the same job model."""
    chance = random.Random(seed)
    world, ids = World(chance.choice([1, 2, 5])), "abcde"[: chance.randint(2, 5)]
    for id_ in ids:
        world.add(id_)
        world.pass_s(chance.choice([0.0, 0.5, 5.0]))
    world.pass_s(20)
    world.check_converged()
    for _ in range(3):
        before, version = world.kafka.plan, world.kafka.version
        returning = chance.sample(ids, len(ids))
        match chance.choice(["all go", "ZooKeeper goes", "one after the other"]):
            case "one after the other":
                for id_ in returning:
                    next(one for one in world.running() if one.id == id_).stop()
                    world.pass_s(chance.choice([0.5, 2.0, 8.0]))
                    world.add(id_)
                    world.pass_s(chance.choice([0.5, 2.0, 8.0]))
            case "all go":
                for one in world.running():
                    one.stop() if chance.random() < 0.3 else one.die()
                world.pass_s(chance.choice([0.5, 4.0, TIMEOUT_S, 2 * TIMEOUT_S]))
                for id_ in returning:
                    world.add(id_)
                    world.pass_s(chance.uniform(0.0, 0.9 * RETURN_S / len(ids)))
            case _:
                world.server.is_down = True
                world.pass_s(2 * TIMEOUT_S)
                for one in world.running():
                    one.tree.is_cut = True
                world.empty()
                for id_ in returning:
                    next(one for one in world.running() if one.id == id_).tree.is_cut = False
                    world.pass_s(chance.uniform(0.0, 0.9 * RETURN_S / len(ids)))
        world.pass_s(20)
        assert (world.kafka.plan, world.kafka.version) == (before, version), "not home\n" + world.story()
        world.check_converged()


@pytest.mark.parametrize("seed", FEW)
def test_a_group_converges(seed: int) -> None:
    converges(seed)


@pytest.mark.parametrize("seed", FEW)
def test_a_group_comes_home(seed: int) -> None:
    comes_home(seed)


@pytest.mark.search
@pytest.mark.timeout(1200)
def test_many_groups_converge_and_come_home() -> None:
    for seed in MANY:
        converges(seed)
        comes_home(seed)


@pytest.mark.search
@pytest.mark.soak  # as by `-m search`: each run has a hundred
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seeds", THOUSANDS, ids=lambda seeds: f"from-{seeds.start}")
def test_thousands_of_groups_converge_and_come_home(seeds: range) -> None:
    for seed in seeds:
        converges(seed)
        comes_home(seed)
