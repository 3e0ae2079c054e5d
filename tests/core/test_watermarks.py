"""Watermarks: what is known, what holds back, what does not (protocol.md 23)."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.rounds.watermarks import joined_reports, joint_watermark, task_watermark
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
        assert mark == max((m for m in known.values() if m is not None), default=None)


@given(st.lists(marks, min_size=1, max_size=4))
def test_inputs_end_at_one_time_in_whichever_order_they_become_idle(known: list[int | None]) -> None:
    ends = set()
    for order in permutations(range(len(known))):
        steps = [
            joint_watermark((mark, at in order[:count]) for at, mark in enumerate(known)) for count in range(len(known) + 1)
        ]
        seen = [mark for mark in steps if mark is not None]
        assert seen == sorted(seen), "an input that becomes idle never takes the watermark back"
        assert steps[len(steps) - len(seen) :] == seen, "nor makes it unknown"
        ends.add(steps[-1])
    assert ends == {max((mark for mark in known if mark is not None), default=None)}


def test_siblings_join_their_reports() -> None:
    def checkpoint(partition: int, **watermarks: int) -> Checkpoint:
        name = TaskName(PartitionGroup(partition))
        return Checkpoint(name, RoundId(1, None, 1), 1, {}, None, {SSPS[int(k[1:])]: v for k, v in watermarks.items()})

    joined = joined_reports([checkpoint(0, s0=5, s1=7), checkpoint(1, s0=9)])
    assert joined == {SSPS[0]: 9, SSPS[1]: 7}
