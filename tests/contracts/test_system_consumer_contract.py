"""What a system's consumer makes of a startpoint (SEP-18 `register`): the offset where reading begins, as it is now."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from contracts.conftest import Kind
from headrace.errors import NotSupportedError, OffsetOutOfRangeError
from headrace.model.streams import SSP
from headrace.ports.system import SystemConsumer

KINDS = hr.PositionType
COUNT = 4


@pytest.fixture
def ssp(system: Any, kind: Kind) -> SSP:
    """A partition of COUNT records, a tick apart."""
    system.create_stream("in", 2)
    system.produce("in", [hr.Record(b"k", b"", kind.time_us + n * kind.tick_us, partition=1) for n in range(COUNT)])
    return SSP(system.name, "in", 1)


def test_every_type_is_an_offset_now(system: Any, kind: Kind, ssp: SSP) -> None:
    register, end = system.consumer().register, system.end_offsets("in")[1]
    assert register(ssp, hr.Startpoint(KINDS.EARLIEST)) == register(ssp, hr.Startpoint(KINDS.BOOTSTRAP)) == 0
    assert register(ssp, hr.Startpoint(KINDS.LATEST)) == end >= COUNT
    for offset in range(COUNT):
        assert register(ssp, hr.Startpoint(KINDS.SPECIFIC_OFFSET, offset)) == offset
        assert register(ssp, hr.Startpoint(KINDS.TIMESTAMP, kind.time_us + offset * kind.tick_us)) == offset
    assert register(ssp, hr.Startpoint(KINDS.TIMESTAMP, kind.time_us + COUNT * kind.tick_us)) == end
    assert register(SSP(system.name, "in", 0), hr.Startpoint(KINDS.LATEST)) == 0


def test_an_offset_that_is_not_there_is_refused(system: Any, ssp: SSP) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="offset 99 of stream 'in' partition 1 is not there"):
        system.consumer().register(ssp, hr.Startpoint(KINDS.SPECIFIC_OFFSET, 99))


def test_an_offset_in_place_of_a_startpoint_is_deprecated(system: Any, ssp: SSP) -> None:
    with pytest.warns(DeprecationWarning, match="give a Startpoint"):
        assert system.consumer().register(ssp, 3) == 3


def test_a_system_that_knows_no_better_takes_offsets_only() -> None:
    place = SSP("own", "in", 0)
    assert SystemConsumer().register(place, hr.Startpoint(KINDS.SPECIFIC_OFFSET, 3)) == 3
    for kind in (KINDS.EARLIEST, KINDS.LATEST, KINDS.BOOTSTRAP):
        with pytest.raises(NotSupportedError, match=f"takes no startpoint of type {kind}"):
            SystemConsumer().register(place, hr.Startpoint(kind))
