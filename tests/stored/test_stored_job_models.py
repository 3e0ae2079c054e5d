"""Job models as they are stored: whole tasks and a factor, from which the virtual tasks come back. The forms that are read are
written here by hand, of the parts of names: no code of what is tested."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.codec.documents import decode, encode
from headrace.errors import StorageError
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import EverySspGroup, Group, KeyBucket, NamedGroup, PartitionGroup, SspGroup, TaskName

FACTORS = st.sampled_from((1, 2, 4, 8, 16))
GROUPS: st.SearchStrategy[Group] = st.one_of(
    st.builds(PartitionGroup, st.integers(0, 12)),
    st.builds(SspGroup, st.just("k"), st.sampled_from(("a", "b.c")), st.integers(0, 3)),
    st.builds(EverySspGroup, st.integers(0, 2)),
    st.builds(NamedGroup, st.sampled_from(("europe", "asia"))),
)
READ = st.sets(st.builds(SSP, st.just("k"), st.sampled_from(("a", "b.c")), st.integers(0, 3)), min_size=1, max_size=3)
BROADCAST = (SSP("k", "rates", 0), SSP("k", "zones", 0), SSP("k", "zones", 1))


def virtual_tasks(name: TaskName, ssps: Iterable[SSP], to_all: Iterable[SSP], factor: int) -> list[TaskModel]:
    if factor == 1 or not ssps:
        return [TaskModel(name, tuple(sorted([*ssps, *to_all])))]
    return [
        TaskModel(
            TaskName(name.group, name.sub_topology, KeyBucket(index, factor)),
            tuple(sorted([*ssps, *to_all])),
            frozenset(ssp.stream for ssp in to_all),
        )
        for index in range(factor)
    ]


@st.composite
def sub_topologies(draw: st.DrawFn, name: str | None, factor: int) -> SubTopologyModel:
    groups = draw(st.lists(GROUPS, min_size=1, max_size=5, unique=True))
    to_all = draw(st.sampled_from((BROADCAST[:0], BROADCAST[:1], BROADCAST)))
    alone = bool(to_all) and draw(st.booleans())  # one task has nothing to share out
    tasks = [
        task
        for nth, group in enumerate(sorted(groups, key=str))
        for task in virtual_tasks(TaskName(group, name), () if alone and nth == 0 else draw(READ), to_all, factor)
    ]
    lanes = range(draw(st.integers(1, 6)))
    how = draw(st.sampled_from(("together", "by slice", "anyhow", "one by one in any order")))
    random = draw(st.randoms(use_true_random=False))
    by_lane: dict[int, list[TaskModel]] = {lane: [] for lane in lanes}
    for nth, task in enumerate(tasks):
        index = 0 if task.name.bucket is None else task.name.bucket.index
        anyhow = random.randrange(len(lanes))
        by_lane[{"together": nth * len(lanes) // len(tasks), "by slice": index % len(lanes)}.get(how, anyhow)].append(task)
    if how == "one by one in any order":
        for mine in by_lane.values():
            random.shuffle(mine)
    containers = tuple(ContainerModel(lane, tuple(mine)) for lane, mine in by_lane.items() if mine)
    return SubTopologyModel(name, containers, factor)


@st.composite
def models(draw: st.DrawFn, common: bool = False) -> JobModel:
    names = draw(st.sampled_from(((None,), (None, "by-day"), ("by-carrier", "by-day"))))
    one = draw(FACTORS)
    subs = tuple(draw(sub_topologies(name, one if common else draw(FACTORS))) for name in names)
    return JobModel("app", draw(st.integers(1, 9)), subs, {"a": 4}, {"s": "by-day|long"}, {"a": "id"})


def one_by_one(model: JobModel, factor: int) -> dict[str, Any]:
    """The document in which every task is stored by itself, and one factor for the job."""
    return {
        "wire": 1,
        "application": model.application,
        "version": model.version,
        "elasticity_factor": factor,
        "partition_counts": dict(model.partition_counts),
        "stores": dict(model.stores),
        "stream_ids": dict(model.stream_ids),
        "sub_topologies": [
            {
                "name": sub.name,
                "containers": [
                    {
                        "lane": one.lane,
                        "processor_id": None,
                        "location_id": None,
                        "tasks": [{"name": str(task.name), "ssps": [text_of(ssp) for ssp in task.ssps]} for task in one.tasks],
                    }
                    for one in sub.containers
                ],
            }
            for sub in model.sub_topologies
        ],
        "left": [],
        "partitioned_by_users": [],
        "partitioned_otherwise": [],
    }


def text_of(ssp: SSP) -> str:
    bucket = "" if ssp.key_bucket is None else f"/{ssp.key_bucket}"
    return f"{ssp.system}.{ssp.stream}.{ssp.partition}{bucket}"


@settings(deadline=None)
@given(models())
def test_every_model_comes_back_however_its_tasks_are_shared_out(model: JobModel) -> None:
    assert decode(JobModel, encode(model), "job model") == model


@settings(deadline=None)
@given(models(common=True))
def test_a_model_that_an_older_version_stored_task_by_task_is_read(model: JobModel) -> None:
    factor = model.sub_topologies[0].elasticity_factor
    assert decode(JobModel, json.dumps(one_by_one(model, factor)), "job model") == model


@settings(deadline=None)
@given(models())
def test_equal_models_are_stored_in_equal_bytes(model: JobModel) -> None:
    data = encode(model)
    again = decode(JobModel, data, "job model")
    assert encode(replace(again, stores=dict(reversed(again.stores.items())))) == data


@settings(deadline=None)
@given(models())
def test_without_a_factor_the_bytes_are_those_of_every_version(model: JobModel) -> None:
    plain = replace(model, sub_topologies=tuple(sub for sub in model.sub_topologies if sub.elasticity_factor == 1))
    assert encode(plain) == json.dumps(one_by_one(plain, 1), separators=(",", ":")).encode()


def model_of(factor: int, lanes: Sequence[Sequence[tuple[int, int]]], to_all: bool = True) -> JobModel:
    """Of one stream `s`, in lanes by (partition, bucket)."""
    partitions = {partition for lane in lanes for partition, _ in lane}
    made = {p: virtual_tasks(TaskName(PartitionGroup(p)), [SSP("k", "s", p)], BROADCAST[:to_all], factor) for p in partitions}
    containers = (ContainerModel(nth, tuple(made[p][b] for p, b in lane)) for nth, lane in enumerate(lanes))
    return JobModel("app", 1, (SubTopologyModel(None, tuple(containers), factor),))


def stored_tasks(model: JobModel) -> list[list[tuple[str, Any]]]:
    (sub,) = json.loads(encode(model))["sub_topologies"]
    return [[(task["name"], task.get("buckets")) for task in one["tasks"]] for one in sub["containers"]]


def test_siblings_are_one_entry_and_slices_and_other_parts_are_short() -> None:
    whole = [(partition, bucket) for partition in (0, 1) for bucket in range(4)]
    assert stored_tasks(model_of(4, [whole])) == [[("Partition_0", None), ("Partition_1", None)]]
    slices = [[(0, bucket) for bucket in range(s, 16, 4)] for s in range(4)]
    assert stored_tasks(model_of(16, slices)) == [[("Partition_0", [[s, 4]])] for s in range(4)]
    odd = model_of(4, [[(0, 0), (0, 1), (0, 2)], [(0, 3)]])
    assert stored_tasks(odd) == [[("Partition_0", [[0, 2], [1, 4]])], [("Partition_0", [[3, 4]])]]


def test_the_form_of_a_factor_is_readable() -> None:
    assert encode(model_of(2, [[(0, 0), (0, 1)]])).decode() == (
        '{"wire":1,"application":"app","version":1,"elasticity_factor":1,"partition_counts":{},"stores":{},"stream_ids":{},'
        '"sub_topologies":[{"name":null,"containers":[{"lane":0,"processor_id":null,"location_id":null,"tasks":['
        '{"name":"Partition_0","ssps":["k.rates.0","k.s.0"]}]}],"elasticity_factor":2,"broadcast":["rates"]}],'
        '"left":[],"partitioned_by_users":[],"partitioned_otherwise":[]}'
    )


def test_ten_thousand_partitions_are_as_large_under_factor_16_as_under_none() -> None:
    def size(factor: int) -> int:
        everything = [(partition, bucket) for partition in range(10_000) for bucket in range(factor)]
        return len(encode(model_of(factor, [everything], to_all=False)))

    assert size(16) < size(1) + 100 < 600_000


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"elasticity_factor":4,', '"elasticity_factor":6,'),
        ('"elasticity_factor":4,', '"elasticity_factor":0,'),
        ('"buckets":[[0,2]]', '"buckets":[[2,2]]'),
        ('"buckets":[[0,2]]', '"buckets":[[-2,4]]'),
        ('"buckets":[[0,2]]', '"buckets":[[0,8]]'),
        ('"buckets":[[0,2]]', '"buckets":[[0,0]]'),
        ('"buckets":[[0,2]]', '"buckets":[0]'),
        ('"k.s.0"', '"k.s.0/1"'),
        ('"broadcast":["rates"]', '"broadcast":["rates","s"]'),
        ('"elasticity_factor":4,"broadcast":["rates"]', '"broadcast":["rates"]'),
    ],
)
def test_what_makes_no_tasks_is_refused(old: str, new: str) -> None:
    text = encode(model_of(4, [[(0, 0), (0, 2)], [(0, 1), (0, 3)]])).decode()
    assert old in text
    with pytest.raises(StorageError, match="stored job model: cannot be read"):
        decode(JobModel, text.replace(old, new), "job model")


@given(st.integers(0, 10), st.data())
def test_any_buckets_are_the_fewest_pairs(bits: int, data: st.DataObject) -> None:
    factor = 1 << max(1, bits % 6)
    indexes = sorted(data.draw(st.sets(st.integers(0, factor - 1), min_size=1)))
    model = model_of(factor, [[(0, index) for index in indexes]])
    assert decode(JobModel, encode(model), "job model") == model
    ((_, pairs),) = stored_tasks(model)[0]
    found = [(s, k) for s, k in pairs] if pairs is not None else [(0, 1)]
    assert sorted(b for b in range(factor) for s, k in found if b % k == s) == indexes
    assert not any(((s + k // 2) % k, k) in found for s, k in found if k > 1), "two halves are one"


def test_the_order_of_what_is_stored_does_not_matter_to_what_is_read() -> None:
    model = model_of(4, [[(0, 0), (0, 1), (0, 2)]])
    document = json.loads(encode(model))
    task = document["sub_topologies"][0]["containers"][0]["tasks"][0]
    Random(1).shuffle(task["buckets"])
    assert decode(JobModel, json.dumps(document), "job model") == model
