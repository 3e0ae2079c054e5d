"""What a driver publishes of an observation is read back as it was; what another version has published is not taken for one."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.codec.observations import observation_document, observation_from
from headrace.core.metrics.observations import SubTopologyLoad, SubTopologyObservation, TaskLoad, TaskObservation
from headrace.model.tasks import KeyBucket, PartitionGroup, SspGroup, TaskName

SHARES = st.integers(0, 1_000_000).map(lambda part: part / 1_000_000)
TASKS = st.builds(
    TaskObservation,
    st.builds(
        TaskName,
        st.one_of(st.builds(PartitionGroup, st.integers(0, 99)), st.just(SspGroup("log", "in", 3))),
        st.sampled_from([None, "by-day"]),
        st.one_of(st.none(), st.builds(KeyBucket, st.integers(0, 3), st.just(4))),
    ),
    st.integers(0, 9),
    st.integers(0, 10**12),
    st.builds(TaskLoad, SHARES, SHARES, SHARES),
    st.builds(TaskLoad, SHARES, SHARES, SHARES),
)
LOADS = st.builds(SubTopologyLoad, SHARES, st.one_of(st.none(), SHARES), SHARES, SHARES, SHARES, SHARES, st.none())
OBSERVATIONS = st.builds(
    SubTopologyObservation,
    st.sampled_from(["source", "by-day"]),
    st.sampled_from([1, 4]),
    *[st.integers(0, 9)] * 5,
    st.floats(0, 1e6),
    LOADS,
    LOADS,
    st.one_of(st.none(), SHARES),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(TASKS, max_size=3).map(tuple),
)


@given(OBSERVATIONS)
def test_an_observation_is_read_as_it_was_published(seen: SubTopologyObservation) -> None:
    stored = msgspec.json.decode(msgspec.json.encode(observation_document(seen)))
    found = observation_from(stored)
    assert found is not None and astuple(found) == astuple(seen)


@given(OBSERVATIONS, st.sampled_from(["lag", "last_10_s", "tasks", "slots"]))
def test_what_lacks_something_or_has_something_else_is_no_observation(seen: SubTopologyObservation, name: str) -> None:
    document: dict[str, Any] = observation_document(seen)
    assert observation_from({key: value for key, value in document.items() if key != name}) is None
    assert observation_from(document | {"new": 1}) is None
    assert observation_from(None) is None and observation_from({}) is None
    if document["tasks"]:
        assert observation_from(document | {"tasks": [["no name of a task !", 0, 0]]}) is None
