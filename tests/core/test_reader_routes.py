"""Each partition of a round has one reader, and each record comes to those containers that take it."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.rounds.reader_routes import Taken, routes_of
from headrace.model.tasks import KeyBucket

SPARK_TASKS = 5
# of each partition: its records, and how it is taken: by one Spark task, in slices, or whole by several
PLACES = st.lists(st.integers(0, SPARK_TASKS - 1), min_size=1, max_size=4)
PARTITIONS = st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(("slices", "whole")), PLACES), max_size=8)


def taken_of(partitions: list[tuple[int, str, list[int]]]) -> list[list[Taken]]:
    """A container of each place takes a slice of the partition, or all of it."""
    taken: list[list[Taken]] = [[] for _ in range(SPARK_TASKS)]
    for ssp, (records, kind, places) in enumerate(partitions):
        slices = 1
        while 2 * slices <= len(places):
            slices *= 2
        sliced = kind == "slices" and slices > 1
        for number, place in enumerate(places[:slices] if sliced else places):
            taken[place].append(Taken(ssp, records, KeyBucket(number, slices) if sliced else None))
    return taken


@given(PARTITIONS)
def test_a_partition_has_one_reader_which_takes_of_it(partitions: list[tuple[int, str, list[int]]]) -> None:
    taken = taken_of(partitions)
    routes = routes_of(taken)
    readers = Counter(ssp for mine in routes.reads for ssp in mine)
    assert readers == dict.fromkeys(range(len(partitions)), 1)
    for task, mine in enumerate(routes.reads):
        assert mine <= {one.ssp for one in taken[task]}


@given(PARTITIONS)
def test_a_record_comes_to_each_spark_task_that_takes_it_and_to_no_other(partitions: list[tuple[int, str, list[int]]]) -> None:
    taken = taken_of(partitions)
    routes = routes_of(taken)
    for reader, mine in enumerate(routes.reads):
        for ssp in mine:
            for low in range(4):
                targets = routes.targets.get(ssp)
                came = {reader} if targets is None else set(targets[low % len(targets)])
                wanted = {
                    task
                    for task, containers in enumerate(taken)
                    for one in containers
                    if one.ssp == ssp and (one.bucket is None or low % one.bucket.factor == one.bucket.index)
                }
                # what stays with its reader comes whole: its containers pick what is theirs
                assert came == wanted or (targets is None and wanted <= came)
                assert came <= set(routes.takers(reader))


@given(PARTITIONS)
def test_without_partitions_of_several_spark_tasks_nothing_is_routed(partitions: list[tuple[int, str, list[int]]]) -> None:
    routes = routes_of(taken_of([(records, kind, places[:1]) for records, kind, places in partitions]))
    assert routes.targets == {}
    assert [routes.takers(task) for task in range(SPARK_TASKS)] == [(task,) for task in range(SPARK_TASKS)]


def test_what_is_shared_is_read_where_least_is_read() -> None:
    halves = [[Taken(ssp, 100, KeyBucket(number, 2)) for ssp in range(2)] for number in range(2)]
    routes = routes_of(halves)
    assert sorted(map(len, routes.reads)) == [1, 1]
    assert routes_of([[*halves[0], Taken(7, 10_000)], halves[1]]).reads == (frozenset({7}), frozenset({0, 1}))


def test_nothing_goes_to_containers_that_do_not_take_part() -> None:
    """A lane that has read a range already is not in the round."""
    quarters = [Taken(0, 100, KeyBucket(number, 4)) for number in (0, 1, 3)]
    routes = routes_of([[one] for one in quarters])
    assert routes.targets == {0: ((0,), (1,), (), (2,))}
