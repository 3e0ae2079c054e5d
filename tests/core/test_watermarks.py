"""Watermarks: what is known, what holds back, what does not (protocol.md 23)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.watermarks import joined_reports, stream_watermark, task_watermark
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName

SSPS = [SSP("log", "s", partition) for partition in range(4)]
marks = st.one_of(st.none(), st.integers(-(10**6), 10**6))


@given(st.dictionaries(st.sampled_from(SSPS), marks), st.sets(st.sampled_from(SSPS)))
def test_a_task_is_never_ahead_of_an_active_ssp(known: dict[SSP, int | None], idle: set[SSP]) -> None:
    mark = task_watermark(SSPS, known, idle)
    active = [known.get(ssp) for ssp in SSPS if ssp not in idle]
    if None in active:
        assert mark is None
    elif active:
        assert mark == min(m for m in active if m is not None)
    else:
        assert mark == min((m for m in known.values() if m is not None), default=None)


def test_siblings_join_their_reports() -> None:
    def checkpoint(partition: int, **watermarks: int) -> Checkpoint:
        name = TaskName(PartitionGroup(partition))
        return Checkpoint(name, RoundId(1, None, 1), 1, {}, None, {SSPS[int(k[1:])]: v for k, v in watermarks.items()})

    joined = joined_reports([checkpoint(0, s0=5, s1=7), checkpoint(1, s0=9)])
    assert joined == {SSPS[0]: 9, SSPS[1]: 7}


@given(st.lists(st.tuples(marks, st.booleans()), max_size=5))
def test_a_stream_is_as_late_as_its_latest_active_writer(tasks: list[tuple[int | None, bool]]) -> None:
    mark = stream_watermark(tasks)
    active = [m for m, is_idle in tasks if not is_idle]
    if active:
        assert mark == (None if None in active else min(m for m in active if m is not None))
    else:
        assert mark == min((m for m, _ in tasks if m is not None), default=None)
