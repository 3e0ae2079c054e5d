"""The JSON forms of what is stored: every value comes back, and nothing else is taken for one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.codec.documents import Flows, Operators, decode, encode
from headrace.core.rewind.consistent_cuts import ConsistentCut, SubTopologyEdges
from headrace.core.rewind.rewinds import Rewind
from headrace.core.rewind.state_history import StateVersion
from headrace.core.rounds.for_each_round import Handover
from headrace.core.rounds.offset_ranges import OffsetRange
from headrace.core.topology.operator_changes import RunOperator
from headrace.errors import StorageError
from headrace.model.change import Change, ChangeKind, Outcome
from headrace.model.checkpoint import Checkpoint, Head, RoundId, Slots, StateFile, StateFileKind
from headrace.model.expansion import Expansion, PartitionRecord, SetSSPTaskMapping
from headrace.model.job_model import ContainerModel, JobModel, LeftPosition, SubTopologyModel, TaskModel
from headrace.model.startpoint import (
    PositionType,
    Resolution,
    Startpoint,
    StartpointEntry,
    StartpointKey,
    StartpointRecord,
    StartpointRequest,
    StartpointStatus,
    StatePolicy,
)
from headrace.model.streams import SSP
from headrace.model.tasks import EverySspGroup, KeyBucket, NamedGroup, PartitionGroup, SspGroup, TaskName

NUMBERS = st.integers(0, 2**62)
TIMES = st.integers(-(2**63), 2**63 - 1)
NAMES = st.from_regex(r"[A-Za-z0-9_](\.?[A-Za-z0-9_-]){0,9}", fullmatch=True)
TEXTS = st.text(max_size=9)
SYSTEMS = st.sampled_from(["log", "kafka"])
SSPS = st.builds(SSP, SYSTEMS, NAMES, st.integers(0, 999), st.none() | st.integers(0, 1023))
GROUPS = st.one_of(
    st.builds(PartitionGroup, st.integers(0, 999)),
    st.builds(SspGroup, SYSTEMS, NAMES, st.integers(0, 999)),
    st.builds(EverySspGroup, st.integers(0, 9)),
    st.builds(NamedGroup, st.sampled_from(["europe", "a.b-2", "7", "x_"])),
)
BUCKETS = st.sampled_from([KeyBucket(0, 2), KeyBucket(1, 2), KeyBucket(3, 4)])
TASKS = st.builds(TaskName, GROUPS, st.none() | NAMES, st.none() | BUCKETS)
ROUND_IDS = st.builds(RoundId, NUMBERS, st.none() | NAMES, NUMBERS)
SLOTS = st.sets(st.integers(0, 1024), min_size=2, max_size=2).map(lambda ends: Slots(min(ends), max(ends)))
STATE_FILES = st.builds(StateFile, TEXTS, st.sampled_from(StateFileKind), NUMBERS, NUMBERS, TEXTS, NUMBERS, TEXTS)
PARTS = st.builds(replace, STATE_FILES, covers=st.none() | SLOTS) | st.builds(
    replace, STATE_FILES, covers=st.none() | SLOTS, slots=SLOTS, whole=st.sampled_from([(), ("a", "b")])
)
HEADS = st.builds(Head, NUMBERS, st.lists(STATE_FILES, min_size=1, max_size=3).map(tuple)) | st.builds(
    Head, NUMBERS, st.lists(PARTS, min_size=1, max_size=3).map(tuple), st.none() | SLOTS
)
PARTITIONS = st.builds(SSP, SYSTEMS, NAMES, st.integers(0, 999))
CHECKPOINTS = st.builds(
    Checkpoint,
    TASKS,
    ROUND_IDS,
    NUMBERS,
    st.dictionaries(PARTITIONS, NUMBERS, max_size=4),
    st.none() | HEADS,
    st.dictionaries(PARTITIONS, TIMES, max_size=4),
    st.none() | TIMES,
    st.none() | TIMES,
    st.dictionaries(PARTITIONS, TEXTS, max_size=3),
    expiry_us=st.none() | TIMES,
    closed_us=st.none() | TIMES,
    punctuations=st.dictionaries(st.sampled_from(["event", "wall"]), st.tuples(TIMES, TIMES)),
)


def task_model(name: TaskName, partitions: tuple[SSP, ...], whole: int) -> TaskModel:
    """The streams of the first `whole` partitions are broadcast, where the task is virtual."""
    broadcast = frozenset(ssp.stream for ssp in partitions[:whole]) if name.bucket else frozenset[str]()
    return TaskModel(name, partitions, broadcast)


TASK_MODELS = st.builds(task_model, TASKS, st.sets(PARTITIONS, max_size=3).map(sorted).map(tuple), st.integers(0, 3))
CONTAINERS = st.builds(
    ContainerModel,
    st.integers(0, 9),
    st.lists(TASK_MODELS, max_size=3).map(tuple),
    st.none() | TEXTS,
    st.none() | TEXTS,
)
FACTORS = st.sampled_from([1, 2, 4])
SUB_TOPOLOGIES = st.builds(SubTopologyModel, st.none() | NAMES, st.lists(CONTAINERS, max_size=2).map(tuple), FACTORS)
JOB_MODELS = st.builds(
    JobModel,
    NAMES,
    NUMBERS,
    st.lists(SUB_TOPOLOGIES, max_size=2).map(tuple),
    st.dictionaries(NAMES, NUMBERS, max_size=3),
    st.dictionaries(NAMES, TEXTS, max_size=3),
    st.dictionaries(NAMES, TEXTS, max_size=3),
    st.lists(st.builds(LeftPosition, TASKS, SSPS, NUMBERS, TEXTS), max_size=3).map(tuple),
    st.sets(NAMES, max_size=3).map(sorted).map(tuple),
    st.sets(NAMES, max_size=3).map(sorted).map(tuple),
    st.dictionaries(NAMES, TEXTS, max_size=3),
    st.dictionaries(NAMES, TEXTS, max_size=3),
)
NAMED = st.lists(NAMES, max_size=2).map(tuple)
OPERATORS = st.lists(st.builds(RunOperator, NAMES, TEXTS, NAMES, NAMED, TEXTS, NAMED, NAMES), max_size=3).map(tuple)
STARTPOINTS = st.one_of(
    st.builds(Startpoint, st.just(PositionType.SPECIFIC_OFFSET), NUMBERS),
    st.builds(Startpoint, st.just(PositionType.TIMESTAMP), TIMES),
    st.sampled_from([Startpoint(PositionType.EARLIEST), Startpoint(PositionType.LATEST)]),
)
ENTRIES = st.builds(
    StartpointEntry,
    TEXTS,
    st.builds(StartpointKey, SSPS, st.none() | TASKS),
    STARTPOINTS,
    TEXTS,
    TIMES,
    st.sampled_from(StatePolicy),
)
REQUESTS = st.builds(
    StartpointRequest, st.lists(ENTRIES, max_size=3).map(tuple), st.lists(TEXTS, max_size=3).map(tuple)
)
RESOLUTIONS = st.builds(Resolution, TASKS, SSPS, NUMBERS, NUMBERS, st.none() | TIMES, st.none() | NUMBERS)
STARTPOINT_RECORDS = st.builds(
    StartpointRecord,
    ENTRIES,
    st.lists(RESOLUTIONS, max_size=3).map(tuple),
    TIMES,
    st.sampled_from(StartpointStatus),
    TIMES,
    st.none() | NUMBERS,
)
MAPPINGS = st.builds(SetSSPTaskMapping, SSPS, st.lists(TASKS, max_size=3).map(tuple))
SETTLED = st.none() | st.dictionaries(st.integers(0, 9), NUMBERS, max_size=4)
EXPANSIONS = st.builds(Expansion, st.integers(1, 9), st.integers(10, 99), NUMBERS, SETTLED)
RECORDS = st.builds(PartitionRecord, TEXTS, NUMBERS, st.lists(EXPANSIONS, max_size=3).map(tuple))
ROUNDS = st.dictionaries(TASKS, ROUND_IDS, max_size=3)
CUTS = st.builds(ConsistentCut, st.none() | NAMES, NUMBERS, ROUNDS, st.dictionaries(PARTITIONS, NUMBERS, max_size=3))
GAPS = st.dictionaries(PARTITIONS, st.tuples(NUMBERS, NUMBERS), max_size=3)
REWINDS = st.builds(Rewind, NUMBERS, ROUNDS, GAPS)
STREAM_NAMES = st.lists(NAMES, max_size=3).map(tuple)
FLOWS = st.lists(st.builds(SubTopologyEdges, st.none() | NAMES, STREAM_NAMES, STREAM_NAMES, st.booleans()), max_size=3).map(
    tuple
)

HANDOVERS = st.builds(
    Handover, NUMBERS, ROUND_IDS, st.lists(st.builds(OffsetRange, SSPS, NUMBERS, NUMBERS), max_size=3).map(tuple), st.booleans()
)
VERSIONS = st.builds(StateVersion, CHECKPOINTS, TIMES, st.none() | ROUND_IDS)
CHANGES = st.builds(Change, TIMES, st.sampled_from(ChangeKind), TEXTS, st.sampled_from(Outcome), NUMBERS, TEXTS, TEXTS)

KINDS: dict[str, tuple[Any, type]] = {
    "checkpoint": (CHECKPOINTS, Checkpoint),
    "job model": (JOB_MODELS, JobModel),
    "handover": (HANDOVERS, Handover),
    "request for startpoints": (REQUESTS, StartpointRequest),
    "startpoint": (STARTPOINT_RECORDS, StartpointRecord),
    "assignment of an SSP": (MAPPINGS, SetSSPTaskMapping),
    "number of partitions": (RECORDS, PartitionRecord),
    "version of a task's state": (VERSIONS, StateVersion),
    "entry of the history": (CHANGES, Change),
    "cut": (CUTS, ConsistentCut),
    "rewind": (REWINDS, Rewind),
    "flows of the job": (st.builds(Flows, FLOWS), Flows),
    "operators of the job": (st.builds(Operators, OPERATORS), Operators),
}


LATER = {  # what older versions did not store
    "checkpoint": {"expiry_us": None, "closed_us": None, "punctuations": {}},
    "job model": {"partitioned_by_users": (), "partitioned_otherwise": (), "databases": {}, "dropped": {}},
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_value_comes_back(kind: str, data: st.DataObject) -> None:
    values, cls = KINDS[kind]
    value = data.draw(values)
    encoded = encode(value)
    assert decode(cls, encoded, kind) == value
    assert decode(cls, encoded.decode(), kind) == value
    assert json.loads(encoded)["wire"] == (2 if isinstance(value, Checkpoint) and has_later_parts(json.loads(encoded)) else 1)


def has_later_parts(checkpoint: dict[str, Any]) -> bool:
    """Whether a stored checkpoint has anything that version 0.1.0 did not write."""
    head = checkpoint["head"] or {"files": []}
    files = [name for file in head["files"] for name in file]
    return bool({"expiry_us", "closed_us", "punctuations"} & checkpoint.keys() | {"covers", "slots", "whole"} & {*files, *head})


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_does_not_fit_is_named(kind: str, data: st.DataObject) -> None:
    values, cls = KINDS[kind]
    document = json.loads(encode(data.draw(values)))
    removed = data.draw(st.sampled_from(sorted(document.keys() - LATER.get(kind, {}).keys())))
    del document[removed]
    with pytest.raises(StorageError, match=f"stored {kind}: cannot be read"):
        decode(cls, json.dumps(document), kind)
    with pytest.raises(StorageError, match="stored the one of task 7: cannot be read"):
        decode(cls, json.dumps(document), "the one of task 7")


@pytest.mark.parametrize("kind", LATER)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_what_an_older_version_stored_is_read_with_what_came_later_absent(kind: str, data: st.DataObject) -> None:
    values, cls = KINDS[kind]
    value = data.draw(values)
    absent = data.draw(st.sets(st.sampled_from(sorted(LATER[kind])), min_size=1))
    document = {name: part for name, part in json.loads(encode(value)).items() if name not in absent}
    assert decode(cls, json.dumps(document), kind) == replace(value, **{name: LATER[kind][name] for name in absent})


@settings(max_examples=40, deadline=None)
@given(JOB_MODELS, FACTORS)
def test_a_factor_that_was_stored_for_the_whole_job_is_that_of_all_its_sub_topologies(model: JobModel, factor: int) -> None:
    subs = tuple(replace(sub, elasticity_factor=1) for sub in model.sub_topologies)
    document = json.loads(encode(replace(model, sub_topologies=subs)))
    assert document["elasticity_factor"] == 1
    assert all("elasticity_factor" not in sub for sub in document["sub_topologies"])
    found = decode(JobModel, json.dumps(document | {"elasticity_factor": factor}), "job model")
    assert found.elasticity_factors == {sub.name: factor for sub in subs}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'{"wire":1}', b'{"wire":"1"}', b"\xff", b'{"wire":1} x'])
def test_garbage_is_refused(kind: str, data: bytes) -> None:
    with pytest.raises(StorageError, match=f"stored {kind}: cannot be read"):
        decode(KINDS[kind][1], data, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_form_is_refused_whatever_it_looks_like(kind: str) -> None:
    readable = "forms 1 to 2" if kind == "checkpoint" else "form 1"
    with pytest.raises(StorageError, match=rf"written in form 3, this version of Headrace reads {readable}\n"):
        decode(KINDS[kind][1], b'{"wire":3,"new":[]}', kind)


@pytest.mark.parametrize(
    "slots", ['{"low":5,"high":5}', '{"low":-1,"high":5}', '{"low":0,"high":1025}', '{"low":0}', "[0]", "7"]
)
@pytest.mark.parametrize("place", ["covers", "slots"])
def test_slots_that_are_none_are_refused(place: str, slots: str) -> None:
    file = StateFile("app/t/1.arrow", StateFileKind.DELTA, 9, 1, "c", 1, covers=Slots(0, 512), slots=Slots(0, 256))
    text = encode(replace(_checkpoint(), head=Head(1, (file,), Slots(0, 256)))).decode()
    assert text.startswith('{"wire":2,')
    good = '{"low":0,"high":512}' if place == "covers" else '{"low":0,"high":256}'
    assert text.count(good) == (1 if place == "covers" else 2)
    with pytest.raises(StorageError, match="stored checkpoint: cannot be read"):
        decode(Checkpoint, text.replace(good, slots), "checkpoint")
    with pytest.raises(StorageError, match="form 1 has no place for all that it holds"):
        decode(Checkpoint, text.replace('"wire":2', '"wire":1'), "checkpoint")


def test_what_older_versions_would_lose_is_not_in_their_form() -> None:
    text = encode(replace(_checkpoint(), closed_us=0)).decode()
    assert text.endswith(',"closed_us":0}')
    with pytest.raises(StorageError, match="stored checkpoint: cannot be read: form 1 has no place for all that it holds"):
        decode(Checkpoint, text.replace('"wire":2', '"wire":1'), "checkpoint")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Partition_3-1-4", "Partition_03-1-4"),
        ("log.views.3/1", "log.views"),
        ('"number":8', '"number":"8"'),
        ("17", "1.5"),
    ],
)
def test_texts_that_name_nothing_are_refused(old: str, new: str) -> None:
    text = encode(_checkpoint()).decode()
    assert old in text
    with pytest.raises(StorageError, match="stored checkpoint: cannot be read"):
        decode(Checkpoint, text.replace(old, new), "checkpoint")


def test_the_form_is_readable_and_sorted() -> None:
    assert encode(_checkpoint()).decode() == (
        '{"wire":1,"task":"by-carrier/Partition_3-1-4","round_id":{"epoch":2,"sub_topology":"by-carrier","number":8},'
        '"job_model_version":1,"positions":{"log.rates.0":4,"log.views.3/1":17},"head":null,"watermarks":{},'
        '"event_timer_us":null,"wall_timer_us":null,"spent_startpoints":{"log.views.3/1":"s-1"}}'
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [("a/Partition_3", "a/Partition_03"), ('"s",1', '"",1'), ('"s",1', '"s",-1'), ('"number":8', '"number":"8"')],
)
def test_cuts_and_rewinds_of_what_has_no_such_name_are_refused(old: str, new: str) -> None:
    rounds, place = {TaskName.parse("a/Partition_3"): RoundId(2, "a", 8)}, SSP("log", "s", 1)
    cut, rewind = ConsistentCut("a", 5, rounds, {place: 7}), Rewind(5, rounds, {place: (7, 9)})
    for text, kind in (
        (encode(cut).decode(), ConsistentCut),
        (encode(rewind).decode(), Rewind),
    ):
        assert old in text
        with pytest.raises(StorageError, match="stored the one of now: cannot be read"):
            decode(kind, text.replace(old, new), "the one of now")


def test_a_checkpoint_from_before_startpoints_is_read() -> None:
    text = encode(_checkpoint()).decode().replace('{"log.views.3/1":"s-1"}', "[]")
    assert decode(Checkpoint, text, "checkpoint") == replace(_checkpoint(), spent_startpoints={})


def _checkpoint() -> Checkpoint:
    ssp = SSP("log", "views", 3)
    return Checkpoint(
        TaskName.parse("by-carrier/Partition_3-1-4"),
        RoundId(2, "by-carrier", 8),
        1,
        {ssp: 17, SSP("log", "rates", 0): 4},
        spent_startpoints={ssp: "s-1"},
        broadcast=frozenset({"rates"}),
    )
