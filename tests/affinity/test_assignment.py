"""Which processor has which tasks: against the best assignment of all, and through lives of groups."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from functools import partial
from operator import ge

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from affinity.judge import (
    at_home,
    best,
    best_of_all,
    by_unit,
    has_every_task_once,
    is_balanced,
    is_balanced_in_all,
    is_balanced_within_units,
    is_level_by_units,
    least_moves,
    level_ones,
    most_that_stay,
    owners_of,
    stayed,
    unevenness,
    unit_of,
    value_of,
)
from headrace.core.affinity.lived import Left
from headrace.core.affinity.members import Member, TaskHistory, TasksToAssign, assigned, assigned_together, moved_tasks
from headrace.core.job_plan.containers import inputs_of
from headrace.core.job_plan.elasticity import virtual_tasks_of
from headrace.model.job_model import ContainerModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

Containers = tuple[ContainerModel, ...]
LOCATIONS = ("here", "there", "away")


def whole(count: int) -> list[TaskModel]:
    return [TaskModel(TaskName.parse(f"Partition_{number}"), (SSP("k", "in", number),)) for number in range(count)]


def virtual(count: int, factor: int) -> list[TaskModel]:
    return [each for task in whole(count) for each in virtual_tasks_of(task, factor)]


def members(**locations: str | None) -> list[Member]:
    return [Member(*one) for one in locations.items()]


def shown(containers: Containers) -> dict[str, list[str]]:
    return {str(one.processor_id): [str(task.name) for task in one.tasks] for one in containers}


NAMES = st.sampled_from(["p1", "p2", "p3", "p4"])
GROUPS = st.dictionaries(NAMES, st.sampled_from([*LOCATIONS, None]), min_size=1, max_size=4)


@settings(max_examples=300)
@given(
    count=st.integers(1, 8),
    now=GROUPS,
    before=st.dictionaries(st.integers(0, 7), NAMES),
    places=st.fixed_dictionaries({name: st.sampled_from([*LOCATIONS, None]) for name in ("p1", "p2", "p3", "p4")}),
    last=st.dictionaries(st.integers(0, 7), st.sampled_from(LOCATIONS)),
    is_moved=st.booleans(),
)
def test_none_is_better(
    count: int,
    now: dict[str, str | None],
    before: dict[int, str],
    places: dict[str, str | None],
    last: dict[int, str],
    is_moved: bool,
) -> None:
    """`is_moved`: processors are not where they were, and tasks have not run where they were to run."""
    if not is_moved:
        places = places | now
        last = {number: place for number, place in last.items() if before.get(number) not in now}
    tasks = whole(count)
    names = [str(task.name) for task in tasks]
    owned = {names[number]: processor for number, processor in before.items() if number < count}
    containers = tuple(
        ContainerModel(lane, tuple(task for task in tasks if owned.get(str(task.name)) == name), name, places[name])
        for lane, name in enumerate(sorted(set(owned.values())))
    )
    lived = {names[number]: place for number, place in last.items() if number < count}
    homes = {task: place for task, name in owned.items() if (place := places[name]) is not None} | lived
    history = TaskHistory(containers, {TaskName.parse(task): place for task, place in lived.items()})
    found = owners_of(assigned(tasks, members(**now), history))
    assert has_every_task_once(found, names, now)
    assert is_balanced(found, now)
    most_stay, most_at_home = best(names, now, owned, homes)
    assert stayed(found, owned) == most_stay
    assert at_home(found, homes, now) == most_at_home


PLACES = {"p1": "here", "p2": "here", "p3": "there", "p4": "away"}
UNITS = st.dictionaries(NAMES, st.integers(1, 3), min_size=1, max_size=3).filter(lambda units: sum(units.values()) <= 4)


def slots_of(units: Mapping[str, int]) -> dict[str, str | None]:
    """The slots of processes, or of locations, with where they are."""
    return {f"{name}#{number}": PLACES[name] for name, slots in sorted(units.items()) for number in range(slots)}


@settings(max_examples=150, deadline=None)
@given(
    count=st.integers(1, 5),
    units=st.lists(UNITS, min_size=2, max_size=4),
    stores=st.dictionaries(st.integers(0, 4), st.sets(st.sampled_from(LOCATIONS), min_size=1)),
    runs=st.lists(st.booleans(), min_size=4, max_size=4),
)
@example(  # of two that cannot both stay one has a store where they are, and another one elsewhere
    count=2,
    units=[{"p1": 1}, {"p4": 1}, {"p1": 1, "p3": 1, "p4": 2}],
    stores={0: {"there", "away", "here"}},
    runs=[True, False, False, False],
)
def test_of_units_with_several_slots_no_assignment_is_better(
    count: int, units: list[dict[str, int]], stores: dict[int, set[str]], runs: list[bool]
) -> None:
    """Whatever units came before, with more slots or fewer; and what came of it stays as it is. Most tasks stay in their unit;
    and none could stay in its slot, or be where it has run, or where it may have a store, unless another is not. `runs`:
    whether tasks run before the next plan."""
    tasks, containers, ran = whole(count), Containers(), dict[str, str]()
    names = [str(task.name) for task in tasks]
    former = {names[number]: places for number, places in stores.items() if number < count}
    for now, is_run in zip(units, runs, strict=False):
        slots, before = slots_of(now), owners_of(containers)
        last = {TaskName.parse(task): place for task, place in ran.items()}
        left = {TaskName.parse(task): {place: Left(True, 5) for place in sorted(own)} for task, own in former.items()}
        places = {str(task.name): str(one.location_id) for one in containers for task in one.tasks}
        homes = places | ran
        had = {task: own - {homes.get(task, "")} for task, own in former.items() if before}
        containers = assigned(tasks, members(**slots), TaskHistory(containers, last, {}, left))
        owners = owners_of(containers)
        assert has_every_task_once(owners, names, slots)
        assert is_balanced(owners, slots) and is_level_by_units(owners, slots)
        worth = partial(value_of, processors=slots, before=before, homes=homes, stores=had)
        own, others = worth(owners), set(map(worth, level_ones(names, slots)))
        assert own[0] == max(others)[0]
        assert not any(other != own and all(map(ge, other, own)) for other in others)
        lasting = TaskHistory(containers, last, {}, left)
        assert owners_of(assigned(tasks, members(**slots), lasting)) == owners
        ran = {task: str(slots[slot]) for task, slot in owners.items()} if is_run else ran


@settings(max_examples=100, deadline=None)
@given(
    counts=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    units=st.lists(UNITS, min_size=2, max_size=4),
    runs=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_of_all_sub_topologies_together_no_assignment_is_better(
    counts: list[int], units: list[dict[str, int]], runs: list[bool]
) -> None:
    """They are as level as the shares of each allow; then as many tasks stay as can, and as many are where they have run."""
    subs, rans = [whole(count) for count in counts], [dict[str, str]() for _ in counts]
    containers: list[Containers] = [() for _ in counts]
    for now, is_run in zip(units, runs, strict=False):
        slots = slots_of(now)
        histories = [
            TaskHistory(before, {TaskName.parse(task): place for task, place in ran.items()})
            for before, ran in zip(containers, rans, strict=True)
        ]
        group = members(**slots)
        made = assigned_together([TasksToAssign(own, group, past) for own, past in zip(subs, histories, strict=True)])
        choices, found, totals = [], (0, 0, 0, 0), Counter[str]()
        for tasks, before, ran, after in zip(subs, containers, rans, made, strict=True):
            owners, names = owners_of(after), [str(task.name) for task in tasks]
            assert has_every_task_once(owners, names, slots)
            assert is_balanced(owners, slots) and is_level_by_units(owners, slots)
            homes = {str(task.name): str(one.location_id) for one in before for task in one.tasks} | ran
            worth = partial(value_of, processors=slots, before=owners_of(before), homes=homes, stores={})
            choices.append((level_ones(names, slots), worth))
            own = worth(owners)
            found = found[0] + own[0], found[1] + own[1], found[2] + own[2], found[3] + own[3]
            totals.update(by_unit(owners).values())
            assert is_balanced_within_units(owners, slots)
        least, best_worth = best_of_all(choices, slots)
        assert unevenness(totals, Counter(map(unit_of, slots))) == least
        assert (found[0], found[2]) == (best_worth[0], best_worth[2]) or len(slots) > len(now), (found, best_worth)
        assert found[0] == best_worth[0]
        containers = list(made)
        for ran, after in zip(rans, made, strict=True):
            ran.update({task: str(slots[slot]) for task, slot in owners_of(after).items()} if is_run else {})


@given(st.data())
def test_the_order_in_which_things_are_given_does_not_matter(data: st.DataObject) -> None:
    tasks, group = virtual(3, 4), members(p1="here", p2="there", p3="here", p4="away")
    history, few = TaskHistory(assigned(tasks, group[:3]), state_bytes={tasks[0].name: 5}), whole(2)
    other = TaskHistory(assigned(few, group[:2]))
    found = assigned_together([TasksToAssign(tasks, group, history), TasksToAssign(few, group, other)])
    shuffled = data.draw(st.permutations(tasks)), data.draw(st.permutations(group))
    containers = tuple(data.draw(st.permutations(history.containers)))
    again = TaskHistory(containers, state_bytes=history.state_bytes)
    others = TasksToAssign(data.draw(st.permutations(few)), data.draw(st.permutations(group)), other)
    assert assigned_together([TasksToAssign(*shuffled, again), others]) == found


@given(count=st.integers(1, 40), factor=st.sampled_from([1, 2, 8]), group=GROUPS)
def test_what_need_not_move_stays(count: int, factor: int, group: Mapping[str, str | None]) -> None:
    tasks = virtual(count, factor)
    before = assigned(tasks, members(**group))
    assert assigned(tasks, members(**group), TaskHistory(before)) == before


@given(count=st.integers(1, 5), factors=st.lists(st.sampled_from([1, 2, 4, 16]), min_size=2, max_size=4), group=GROUPS)
def test_virtual_tasks_follow_those_that_had_their_keys(count: int, factors: list[int], group: dict[str, str | None]) -> None:
    """Whole partitions stay where they were, as long as there are enough of them; slices are read as slices."""
    history, first = TaskHistory(), dict[str, str]()
    for factor in factors:
        containers = assigned(virtual(count, factor), members(**group), history)
        for container in containers:
            assert inputs_of(container)  # which checks that what it reads of a partition is a slice
        if count >= len(group):
            partitions = {str(task.name.whole): str(one.processor_id) for one in containers for task in one.tasks}
            assert partitions == (first or partitions)
            first = partitions
        history = TaskHistory(containers)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    tasks=st.integers(1, 200),
    events=st.lists(st.sampled_from(["join", "leave", "crash", "return", "all locations but one", "back"]), max_size=30),
)
def test_a_life_of_a_group(seed: int, tasks: int, events: list[str]) -> None:
    """Members join and leave, whole locations go and come back: at each plan as few tasks move as have to, lanes are kept, and
    once all are back all tasks that can be are where they were."""
    draw, all_tasks = random.Random(seed), whole(tasks)
    names = [str(task.name) for task in all_tasks]
    group: dict[str, str | None] = {"p0": "host0", "p1": "host1"}
    gone: dict[str, str | None] = {}
    containers = assigned(all_tasks, members(**group))
    for number, event in enumerate(events):
        match event:
            case "join":
                group[f"q{number}"] = f"host{draw.randrange(6)}"
            case "leave" | "crash" if len(group) > 1:
                name = draw.choice(sorted(group))
                gone[name] = group.pop(name)
            case "return" if gone:
                name = draw.choice(sorted(gone))
                group[name if draw.random() < 0.5 else f"{name}-again{number}"] = gone.pop(name)
            case "all locations but one":
                kept = draw.choice(sorted(map(str, group.values())))
                gone |= {name: place for name, place in group.items() if place != kept}
                group = {name: place for name, place in group.items() if place == kept}
            case "back":
                group, gone = {**group, **gone}, {}
        before = owners_of(containers)
        after = assigned(all_tasks, members(**group), TaskHistory(containers))
        found = owners_of(after)
        assert has_every_task_once(found, names, group) and is_balanced(found, group)
        assert tasks - stayed(found, before) == least_moves(before, group, tasks) == len(moved_tasks(containers, after))
        lanes = {one.processor_id: one.lane for one in containers}
        assert all(lanes[one.processor_id] == one.lane for one in after if one.processor_id in lanes)
        assert len({one.lane for one in after}) == len(after)
        containers = after


@given(
    tasks=st.integers(4, 300),
    hosts=st.integers(2, 5),
    per_host=st.integers(1, 3),
    same_ids=st.booleans(),
)
def test_all_go_and_come_back(tasks: int, hosts: int, per_host: int, same_ids: bool) -> None:
    """A restart of everything: each task is back on its host, also where no processor has its id again."""
    group = [Member(f"p{host}-{slot}", f"host{host}") for host in range(hosts) for slot in range(per_host)]
    before = assigned(whole(tasks), group)
    back = group if same_ids else [Member(f"new-{one.id}", one.location_id) for one in group]
    after = assigned(whole(tasks), back, TaskHistory(before))
    place = {str(task.name): one.location_id for one in before for task in one.tasks}
    assert {str(task.name): one.location_id for one in after for task in one.tasks} == place
    assert not same_ids or after == before


def test_a_location_that_is_back_gets_its_own_tasks_by_where_they_ran_last() -> None:
    """The plan meanwhile has given them to others, which never ran them."""
    group, tasks = members(a="h1", b="h2", c="h3"), whole(9)
    first = assigned(tasks, group)
    ran = {task.name: str(one.location_id) for one in first for task in one.tasks}
    meanwhile = assigned(tasks, group[:2], TaskHistory(first, ran))
    assert shown(assigned(tasks, group, TaskHistory(meanwhile, ran))) == shown(first)


def test_who_must_leave_has_the_least_to_restore() -> None:
    tasks = whole(4)
    sizes = {task.name: size for task, size in zip(tasks, (7, 1, 9, 3), strict=True)}
    before = assigned(tasks, members(a="h1"))
    after = assigned(tasks, members(a="h1", b="h2"), TaskHistory(before, state_bytes=sizes))
    assert shown(after) == {"a": ["Partition_0", "Partition_2"], "b": ["Partition_1", "Partition_3"]}


def lived(owners: list[dict[int, str]], places: Mapping[str, str | None]) -> list[Containers]:
    """The containers of several sub-topologies, of each of which these had those tasks."""
    found = []
    for owned in owners:
        tasks = dict(enumerate(whole(8)))
        names = sorted(set(owned.values()))
        mine = {name: tuple(tasks[number] for number in sorted(owned) if owned[number] == name) for name in names}
        found.append(tuple(ContainerModel(lane, mine[name], name, places.get(name)) for lane, name in enumerate(mine)))
    return found


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) <= 12),
    now=GROUPS,
    before=st.lists(st.dictionaries(st.integers(0, 7), NAMES), min_size=5, max_size=5),
)
def test_all_sub_topologies_together_are_balanced_and_no_choice_keeps_more(
    sizes: list[int], now: dict[str, str | None], before: list[dict[int, str]]
) -> None:
    """And what came of it stays as it is."""
    owned = [{number: name for number, name in one.items() if number < size} for one, size in zip(before, sizes, strict=False)]
    group = members(**now)
    subs = [TasksToAssign(whole(size), group, TaskHistory(had)) for size, had in zip(sizes, lived(owned, now), strict=True)]
    made = assigned_together(subs)
    found = [owners_of(one) for one in made]
    names = [[str(task.name) for task in sub.tasks] for sub in subs]
    for owners, own in zip(found, names, strict=True):
        assert has_every_task_once(owners, own, now) and is_balanced(owners, now)
    assert is_balanced_in_all(found, now)
    had = [{f"Partition_{number}": name for number, name in one.items()} for one in owned]
    stay = sum(stayed(owners, one) for owners, one in zip(found, had, strict=True))
    assert stay == most_that_stay(list(zip(names, had, strict=True)), now)
    again = [TasksToAssign(sub.tasks, group, TaskHistory(one)) for sub, one in zip(subs, made, strict=True)]
    assert assigned_together(again) == made


@pytest.mark.parametrize("count", [1, 2, 5])
def test_sub_topologies_of_one_task_do_not_stay_on_one_processor(count: int) -> None:
    """All are with a, and b joins: then it gets half of them, and no more moves than that."""
    alone, both = members(a="h1"), members(a="h1", b="h2")
    before = assigned_together([TasksToAssign(whole(1), alone)] * count)
    after = assigned_together([TasksToAssign(whole(1), both, TaskHistory(one)) for one in before])
    owners = [next(iter(owners_of(one).values())) for one in after]
    assert owners.count("b") == count // 2


@settings(max_examples=150, deadline=None)
@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    slots=st.integers(2, 4),
    groups=st.lists(st.sets(NAMES, min_size=1), min_size=2, max_size=4),
)
def test_processes_of_several_slots_have_equal_shares_and_so_have_their_slots(
    counts: list[int], slots: int, groups: list[set[str]]
) -> None:
    """Four processes of four cores share four tasks, and not the four slots of the first one."""
    subs = [whole(count) for count in counts]
    containers: list[Containers] = [() for _ in subs]
    for group in groups:
        own = [Member(name if number == 0 else f"{name}#{number}", name) for name in sorted(group) for number in range(slots)]
        now = assigned_together(
            [TasksToAssign(tasks, own, TaskHistory(before)) for tasks, before in zip(subs, containers, strict=True)]
        )
        places: dict[str, str | None] = {one.id: None for one in own}
        of_processes = []
        for tasks, before, after in zip(subs, containers, now, strict=True):
            owners, had = owners_of(after), owners_of(before)
            assert has_every_task_once(owners, [str(task.name) for task in tasks], places)
            assert is_balanced(owners, places)
            by_process, former = ({task: id_.split("#")[0] for task, id_ in one.items()} for one in (owners, had))
            assert is_balanced(by_process, dict.fromkeys(group))
            if len(subs) == 1:
                assert stayed(by_process, former) == most_that_stay([(sorted(owners), former)], dict.fromkeys(sorted(group)))
            for name in group:
                mine = {task: id_ for task, id_ in owners.items() if id_.split("#")[0] == name}
                assert is_balanced(mine, {id_: None for id_ in places if id_.split("#")[0] == name})
            of_processes.append(by_process)
        assert is_balanced_in_all(of_processes, dict.fromkeys(group))
        containers = list(now)


def test_virtual_tasks_are_shared_out_among_the_slots_of_all_processes() -> None:
    """Eight, among three processes of three slots: not by partition, of which there are four."""
    own = [Member(id_) for id_ in ("a", "a#1", "a#2", "b", "b#1", "b#2", "c", "c#1", "c#2")]
    counts = {one.processor_id: len(one.tasks) for one in assigned(virtual(4, 2), own)}
    assert set(counts.values()) == {1}
    assert sorted(sum(1 for id_ in counts if str(id_)[0] == name) for name in "abc") == [2, 3, 3]


def test_a_task_is_handed_on_over_another_processor_where_that_moves_less() -> None:
    """Two tasks of one sub-topology are with a and b, two more of others with a: c joins, and one move is enough."""
    group = members(a="h1", b="h2", c="h3")
    owners = [{0: "a"}, {0: "a"}, {0: "b"}]
    subs = [TasksToAssign(whole(1), group, TaskHistory(one)) for one in lived(owners, {})]
    found = [next(iter(owners_of(one).values())) for one in assigned_together(subs)]
    assert sorted(found) == ["a", "b", "c"] and found[2] == "b"


def test_of_several_sub_topologies_the_one_with_the_least_state_gives_its_task() -> None:
    sizes = (9, 2, 7)
    (task,) = whole(1)
    before = lived([{0: "a"}] * 3, {"a": "h1"})
    subs = [
        TasksToAssign([task], members(a="h1", b="h2"), TaskHistory(one, state_bytes={task.name: size}))
        for one, size in zip(before, sizes, strict=True)
    ]
    assert [next(iter(owners_of(one).values())) for one in assigned_together(subs)] == ["a", "b", "a"]


def test_sub_topologies_with_other_processors_are_as_level_as_they_can_be() -> None:
    """On a cluster a sub-topology may have fewer containers than others: then it leaves its processors less of these."""
    few, all_ = members(a="h1", b="h2"), members(a="h1", b="h2", c="h3", d="h3")
    found = assigned_together([TasksToAssign(whole(2), few), TasksToAssign(whole(2), all_)])
    assert shown(found[1]).keys() == {"c", "d"}


def test_many_sub_topologies_of_a_large_group_are_levelled_in_a_moment() -> None:
    group = [Member(f"p{number:03}", f"host{number // 4}") for number in range(100)]
    before = assigned_together([TasksToAssign(whole(30), group)] * 20)
    joined = [*group, *(Member(f"q{number}", f"new{number}") for number in range(20))]
    after = assigned_together([TasksToAssign(whole(30), joined, TaskHistory(one)) for one in before])
    assert is_balanced_in_all([owners_of(one) for one in after], {one.id: None for one in joined})
    assert sum(len(moved_tasks(*pair)) for pair in zip(before, after, strict=True)) == 20 * 5


def test_a_large_job_is_assigned_in_a_moment() -> None:
    tasks = virtual(2_000, 8)
    group = [Member(f"p{number:03}", f"host{number // 4}") for number in range(200)]
    before = assigned(tasks, group)
    after = assigned(tasks, group[:-4], TaskHistory(before))
    assert len(moved_tasks(before, after)) == 4 * 10 * 8


@pytest.mark.parametrize("wrong", [[], [Member("a"), Member("a", "h1")]])
def test_processors_are_there_and_have_ids_of_their_own(wrong: list[Member]) -> None:
    with pytest.raises(AssertionError):
        assigned(whole(1), wrong)
