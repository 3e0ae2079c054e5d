"""What can be made as a startpoint can be stored and read back: everything else is refused where it is made."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.codec.documents import decode, encode
from headrace.errors import ConfigError, HeadraceError, StartpointError
from headrace.model.startpoint import (
    PositionType,
    Startpoint,
    StartpointEntry,
    StartpointKey,
    StartpointRequest,
    StatePolicy,
    state_policy_of,
)
from headrace.model.streams import SSP
from headrace.model.tasks import EverySspGroup, KeyBucket, PartitionGroup, SspGroup, TaskName

ANYTHING: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.decimals(),
    st.fractions(),
    st.binary(max_size=9),
    st.text(max_size=9),
    st.text(st.characters(categories=["Cs"]), min_size=1, max_size=2),
    st.datetimes(),
    st.integers(0, 9).map(np.int64),
    st.sampled_from([3.0, math.nan, math.inf, Decimal(3), Fraction(3), np.bool_(True), np.array([1]), [], {}, (7,), object]),
    st.sampled_from([*map(str, PositionType), "latest", "earliest", *PositionType]),
)
TYPES = st.sampled_from(list(PositionType)) | ANYTHING
SSPS = st.sampled_from([SSP("log", "in.put", 0), SSP("kafka", "x", 2, 1)])
NAMES = st.from_regex(r"[A-Za-z0-9_](\.?[A-Za-z0-9_-]){0,9}", fullmatch=True)


def made(kind: Any, *values: Any) -> Any:
    """What it makes of them; None for what is refused, which must be an error of ours, or a `ValueError`."""
    try:
        return kind(*values)
    except (HeadraceError, ValueError):
        return None


def read_back(entry: StartpointEntry) -> StartpointEntry:
    (found,) = decode(StartpointRequest, encode(StartpointRequest((entry,))), "request").entries
    return found


@given(TYPES, ANYTHING)
def test_every_startpoint_that_can_be_made_survives_being_stored(position_type: Any, position: Any) -> None:
    startpoint = made(Startpoint, position_type, position)
    if startpoint is None:
        with pytest.raises(StartpointError, match=r"startpoint.*: expected "):
            Startpoint(position_type, position)
        return
    found = read_back(StartpointEntry("s-1", StartpointKey(SSP("log", "x", 0)), startpoint, "ann@desk", 1)).startpoint
    assert found == startpoint
    assert (type(found.position_type), type(found.position)) == (type(position_type), type(position))


@given(st.sampled_from(list(PositionType)), st.none() | st.integers(-(2**64), 2**64))
def test_what_a_stream_can_hold_is_accepted(position_type: PositionType, position: int | None) -> None:
    ranges = {PositionType.SPECIFIC_OFFSET: range(2**63), PositionType.TIMESTAMP: range(-(2**63), 2**63)}
    allowed = ranges.get(position_type)
    fits = position is None if allowed is None else position is not None and position in allowed
    assert (made(Startpoint, position_type, position) is not None) == fits


@given(
    st.tuples(
        ANYTHING | st.just("s-1"),
        ANYTHING | st.builds(StartpointKey, SSPS),
        ANYTHING | st.just(Startpoint(PositionType.LATEST)),
        ANYTHING | st.just("ann@desk"),
        ANYTHING | st.just(1),
        ANYTHING | st.sampled_from(StatePolicy),
    )
)
def test_every_entry_that_can_be_made_survives_being_stored(fields: tuple[Any, ...]) -> None:
    entry = made(StartpointEntry, *fields)
    assert entry is None or read_back(entry) == entry


@given(
    st.sampled_from(["log", "kafka", "a.b", "", "\ud800"]) | ANYTHING,
    NAMES | st.text(max_size=5) | ANYTHING,
    st.integers(-1, 9) | ANYTHING,
    st.none() | ANYTHING,
)
def test_every_key_that_can_be_made_survives_being_stored(system: Any, stream: Any, partition: Any, bucket: Any) -> None:
    ssp = made(SSP, system, stream, partition, bucket)
    key = None if ssp is None else made(StartpointKey, ssp)
    if key is not None:
        entry = StartpointEntry("s-1", key, Startpoint(PositionType.EARLIEST), "ann@desk", 1)
        assert read_back(entry) == entry


@given(st.sampled_from([PartitionGroup, EverySspGroup]), st.integers(-1, 9) | ANYTHING, NAMES | ANYTHING)
def test_every_task_that_can_be_made_survives_being_stored(kind: Any, number: Any, sub_topology: Any) -> None:
    for group in (made(kind, number), made(SspGroup, "log", sub_topology, number)):
        task = None if group is None else made(TaskName, group, sub_topology)
        key = None if task is None else made(StartpointKey, SSP("log", "x", 0), task)
        if key is not None:
            entry = StartpointEntry("s-1", key, Startpoint(PositionType.EARLIEST), "ann@desk", 1)
            assert read_back(entry) == entry


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ((PositionType.TIMESTAMP, 1.7e15), r"TIMESTAMP: position=1700000000000000.0: expected a time as .*found float"),
        ((PositionType.SPECIFIC_OFFSET, 3.0), r"SPECIFIC_OFFSET: position=3.0: expected an offset, a whole .*found float"),
        ((PositionType.SPECIFIC_OFFSET, True), r"SPECIFIC_OFFSET: position=True: expected an offset, .*found bool"),
        ((PositionType.SPECIFIC_OFFSET, None), r"SPECIFIC_OFFSET: position=None: expected an offset"),
        ((PositionType.SPECIFIC_OFFSET, -1), r"SPECIFIC_OFFSET: position=-1: expected an offset, a whole number from 0"),
        ((PositionType.LATEST, 3), r"LATEST: position=3: expected None"),
        (("latest",), r"position_type='latest': expected a hr.PositionType, found str"),
        (("LATEST",), r"position_type='LATEST': expected a hr.PositionType, found str"),
    ],
)
def test_a_refusal_says_the_field_and_what_was_expected(fields: tuple[Any, ...], said: str) -> None:
    with pytest.raises(hr.StartpointError, match=said) as caught:
        hr.Startpoint(*fields)
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (lambda: SSP("log", "x", 3.0), "partition=3.0: expected a whole number, found float"),
        (lambda: SSP("log", "x", True), "partition=True: expected a whole number, found bool"),
        (lambda: SSP("log", 3, 0), "stream=3: expected a text, found int"),
        (lambda: SSP("log", "x", 0, "1"), "key_bucket='1': expected a whole number, found str"),
        (lambda: PartitionGroup(3.0), "partition 3.0 of a task: expected a whole number"),
        (lambda: KeyBucket(0.0, 2), "key bucket 0.0 of 2: expected two whole numbers"),
        (lambda: StartpointKey("log.x.0"), "ssp='log.x.0': expected a SystemStreamPartition, found str"),
        (lambda: StartpointKey(SSP("log", "x", 0), "Partition_0"), "task='Partition_0': expected a TaskName, found str"),
    ],
)
def test_the_names_in_a_key_are_checked_too(bad: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bad()


@pytest.mark.parametrize("given_", ["drop", "", None, 3, [], True])
def test_a_state_policy_is_keep_or_rewind(given_: Any) -> None:
    assert [state_policy_of(one) for one in ("keep", "rewind", StatePolicy.REWIND)] == ["keep", "rewind", "rewind"]
    with pytest.raises(ConfigError, match="expected 'keep' or 'rewind'"):
        state_policy_of(given_)
