"""Task names and SSPs as text: a value has one text, a text one value, and everything else is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.streams import SSP, SystemStream
from headrace.model.tasks import EverySspGroup, KeyBucket, NamedGroup, PartitionGroup, SspGroup, TaskName

names = st.from_regex(r"[A-Za-z0-9_]([A-Za-z0-9_-]|\.[A-Za-z0-9_-]){0,12}", fullmatch=True)
systems = st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True)
numbers = st.integers(0, 20) | st.integers(0, 10**6)
buckets = st.integers(1, 10).flatmap(
    lambda bits: st.builds(KeyBucket, st.integers(0, (1 << bits) - 1), st.just(1 << bits))
)
def named_or_none(name: str) -> NamedGroup | None:
    try:
        return NamedGroup(name)
    except ValueError:
        return None


free_names = st.from_regex(r"([A-Za-z0-9_.-]|partition_|AllSsps_|-1-4){1,9}", fullmatch=True)
groups = (
    st.builds(PartitionGroup, numbers)
    | free_names.map(named_or_none).filter(lambda group: group is not None)
    | st.builds(SspGroup, systems, names, numbers)
    | st.builds(EverySspGroup, numbers)
)
task_names = st.builds(TaskName, groups, st.none() | names, st.none() | buckets)
ssps = st.builds(SSP, systems, names, numbers, st.none() | numbers)


@given(task_names)
def test_a_task_name_round_trips(name: TaskName) -> None:
    assert TaskName.parse(str(name)) == name
    assert TaskName.parse(str(name.whole)) == name.whole
    assert name.whole.bucket is None


@given(ssps)
def test_an_ssp_round_trips(ssp: SSP) -> None:
    assert SSP.parse(str(ssp)) == ssp
    assert SSP.parse(str(ssp.whole)) == ssp.whole
    assert ssp.whole.bucket(5).whole == ssp.whole
    assert ssp.system_stream == SystemStream(ssp.system, ssp.stream)


@given(task_names, task_names)
def test_two_task_names_have_two_texts_and_one_order(one: TaskName, two: TaskName) -> None:
    assert (str(one) == str(two)) == (one == two) == (not one < two and not two < one)


@given(ssps, ssps)
def test_two_ssps_have_two_texts_and_one_order(one: SSP, two: SSP) -> None:
    assert (str(one) == str(two)) == (one == two) == (not one < two and not two < one)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (TaskName(PartitionGroup(3)), "Partition_3"),
        (TaskName(PartitionGroup(3), None, KeyBucket(1, 4)), "Partition_3-1-4"),
        (TaskName(SspGroup("kafka", "views", 3)), "SystemStreamPartition_[kafka,views,3]"),
        (
            TaskName(SspGroup("kafka", "views", 3), None, KeyBucket(1, 4)),
            "SystemStreamPartition_[kafka,views,3]-1-4",
        ),
        (TaskName(PartitionGroup(3), "by-carrier", KeyBucket(1, 4)), "by-carrier/Partition_3-1-4"),
        (TaskName(NamedGroup("europe")), "europe"),
        (TaskName(NamedGroup("europe.north-2"), "by-carrier", KeyBucket(1, 4)), "by-carrier/europe.north-2-1-4"),
        # A stream may be named like a task.
        (TaskName(PartitionGroup(0), "Partition_7-1-4"), "Partition_7-1-4/Partition_0"),
        (TaskName(SspGroup("k", "Partition_1-0-2", 0)), "SystemStreamPartition_[k,Partition_1-0-2,0]"),
    ],
)
def test_the_documented_format(name: TaskName, text: str) -> None:
    assert str(name) == text
    assert TaskName.parse(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Partition_",
        "Partition_-1",
        "Partition_03",
        "Partition_3-1",
        "Partition_3-4-4",
        "Partition_3-0-1",
        "Partition_3-0-3",
        "Partition_3-1-4-1-4",
        "Partition_3-01-4",
        "Partition_3 ",
        "Partition_3\n",
        "Partition_٣",
        "partition_3",
        "/Partition_3",
        "by-day/",
        "a/b/Partition_3",
        "SystemStreamPartition_[kafka,views]",
        "SystemStreamPartition_[kafka,views,3",
        "SystemStreamPartition_[kafka,,3]",
        "SystemStreamPartition_[a,b,c,3]",
        "AllSsps_",
        "europe-1-2-1-4",
        "-europe",
        ".",
        "..",
        "a..b",
        "europe ",
        "europe\n",
        "ЕС",
        "a b",
        "x" * 101,
    ],
)
def test_no_task_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no task name|^task of |^key bucket |^elasticity factor "):
        TaskName.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "k",
        "k.s",
        "k.s.",
        "k.s.x",
        "k.s.-1",
        "k.s.03",
        "k.s.3/",
        "k.s.3/x",
        "k.s.3/01",
        "k.s.3/1/2",
        "k.s.²",
        "k..3",
    ],
)
def test_no_ssp(text: str) -> None:
    with pytest.raises(ValueError, match="is no SSP"):
        SSP.parse(text)


def test_values_without_a_text_of_their_own_cannot_be_made() -> None:
    for make in (
        lambda: PartitionGroup(-1),
        lambda: NamedGroup("Partition_3"),
        lambda: NamedGroup("allssps_x"),
        lambda: NamedGroup("europe-1-4"),
        lambda: NamedGroup("a/b"),
        lambda: NamedGroup(""),
        lambda: NamedGroup("x" * 101),
        lambda: NamedGroup(3),  # type: ignore[arg-type]
        lambda: EverySspGroup(-1),
        lambda: SspGroup("k", "a,b", 0),
        lambda: SspGroup("k", "a/b", 0),
        lambda: SspGroup("", "a", 0),
        lambda: SspGroup("k", "a", -1),
        lambda: TaskName(PartitionGroup(0), ""),
        lambda: TaskName(PartitionGroup(0), "a/b"),
        lambda: KeyBucket(0, 1),
        lambda: KeyBucket(0, 6),
        lambda: KeyBucket(4, 4),
        lambda: KeyBucket(-1, 4),
        lambda: SSP("a.b", "s", 0),
        lambda: SSP("", "s", 0),
        lambda: SSP("k", "", 0),
        lambda: SSP("k", "a/b", 0),
        lambda: SSP("k", "s", -1),
        lambda: SSP("k", "s", 0, -1),
    ):
        with pytest.raises(ValueError, match=r"below 0|empty|expected"):
            make()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ((None,), r"group None of a task: expected a PartitionGroup, .* TaskName\.parse\('Partition_3'\)"),
        (("a/../..:b c",), r"group 'a/\.\./\.\.:b c' of a task: expected"),
        (("Partition_3",), r"group 'Partition_3' of a task: expected .* TaskName\.parse"),
        ((3,), "group 3 of a task: expected"),
        ((PartitionGroup,), "group <class .* of a task: expected"),
        ((PartitionGroup(0), None, 1), "key bucket 1 of a task: expected a KeyBucket, or None"),
        ((PartitionGroup(0), None, (0, 2)), r"key bucket \(0, 2\) of a task: expected a KeyBucket"),
        ((PartitionGroup(0), 5), "sub-topology 5 of a task: expected a text, or None"),
        ((PartitionGroup(0), b"a"), "sub-topology b'a' of a task: expected a text, or None"),
    ],
)
def test_a_name_of_other_parts_cannot_be_made(fields: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        TaskName(*fields)


def test_the_order_is_that_of_numbers_with_the_source_sub_topology_first() -> None:
    texts = [
        "Partition_2",
        "Partition_2-0-2",
        "Partition_2-1-2",
        "Partition_10",
        "SystemStreamPartition_[k,a,10]",
        "SystemStreamPartition_[k,b,2]",
        "AllSsps_0",
        "asia",
        "europe",
        "europe-0-2",
        "by-day/Partition_0",
    ]
    assert [str(name) for name in sorted(map(TaskName.parse, reversed(texts)))] == texts
    ssps_in_order = ["k.a.2", "k.a.2/0", "k.a.2/10", "k.a.10", "k.b.0", "l.a.0"]
    assert [str(ssp) for ssp in sorted(map(SSP.parse, reversed(ssps_in_order)))] == ssps_in_order
