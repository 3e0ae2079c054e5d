"""A lease ends before the session can, whatever is late, lost or stopped."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import coordination
from headrace.core.group.lease import Lease
from headrace.core.group.state import Registration
from headrace.group.layout import GroupName
from headrace.group.processor_group import ProcessorGroup
from support.memory_zookeeper import MemoryZooKeeper

TIMES = st.floats(0, 100, allow_nan=False)
Exchange = tuple[float, float, float]  # sent at, on its way to the server for, and back for


def session_ends_s(exchanges: list[Exchange], timeout_s: float) -> float:
    """The earliest moment at which a server may end the session: it hears of a request when it has arrived."""
    return max(sent_s + way_s for sent_s, way_s, _ in exchanges) + timeout_s


def as_heard(exchanges: list[Exchange], timeout_s: float, now_s: float) -> Lease:
    """The lease at `now_s`, of the answers that have come until then, in the order in which they came."""
    lease = Lease(timeout_s)
    for sent_s, _, _ in sorted((one for one in exchanges if sum(one) <= now_s), key=sum):
        lease = lease.confirmed(sent_s, timeout_s)
    return lease


@given(st.lists(st.tuples(TIMES, st.floats(0, 30), st.floats(0, 30)), min_size=1), st.floats(0.4, 60), st.floats(0, 300))
def test_no_lease_holds_when_the_session_may_have_ended(exchanges: list[Exchange], timeout_s: float, now_s: float) -> None:
    lease = as_heard(exchanges, timeout_s, now_s)
    arrived = [one for one in exchanges if one[0] + one[1] <= now_s]
    if lease.holds(now_s):
        assert arrived and now_s < session_ends_s(arrived, timeout_s)
        assert session_ends_s(arrived, timeout_s) - now_s >= timeout_s / 3 - 1e-6, "a third is left for what runs"


@given(st.lists(TIMES, min_size=1), st.floats(0.4, 60), st.randoms(use_true_random=False))
def test_the_order_of_answers_makes_no_difference(sent: list[float], timeout_s: float, random: object) -> None:
    in_order, shuffled = Lease(timeout_s), Lease(timeout_s)
    for sent_s in sorted(sent):
        in_order = in_order.confirmed(sent_s, timeout_s)
    random.shuffle(sent)  # type: ignore[attr-defined]
    for sent_s in sent:
        shuffled = shuffled.confirmed(sent_s, timeout_s)
    assert in_order == shuffled and in_order.ends_s == pytest.approx(max(sent) + timeout_s * 2 / 3)


@given(TIMES, st.floats(0.4, 60), st.floats(0.4, 60), st.floats(0, 50))
def test_a_shorter_timeout_counts_at_once(sent_s: float, first_s: float, second_s: float, later_s: float) -> None:
    late = Lease(first_s).confirmed(sent_s + later_s, first_s).confirmed(sent_s, second_s)
    assert late.ends_s is not None and late.ends_s <= sent_s + later_s + min(first_s, second_s) * 2 / 3 + 1e-9


@given(st.floats(0.4, 60), TIMES)
def test_looks_come_often_enough_for_three_to_be_lost(timeout_s: float, sent_s: float) -> None:
    lease = Lease(timeout_s).confirmed(sent_s, timeout_s)
    assert lease.next_look_s is not None and lease.ends_s is not None
    assert lease.next_look_s + 3 * lease.look_interval_s <= lease.ends_s + 1e-6


def test_without_an_answer_and_after_the_end_there_is_none() -> None:
    assert not Lease(10.0).holds(0.0) and Lease(10.0).next_look_s is None
    held = Lease(10.0).confirmed(5.0, 10.0)
    assert held.holds(5.0) and not held.ended().holds(5.0) and not held.holds(5.0 + 20 / 3)


class Suspended:
    """The module `time` of a machine that was suspended: but for the one that counts it its clocks have not moved."""

    def __init__(self) -> None:
        self.running_s, self.suspended_s = 1_000.0, 0.0

    def clock_gettime(self, clock: int) -> float:
        return self.running_s + (self.suspended_s if clock == time.CLOCK_BOOTTIME else 0.0)

    def monotonic(self) -> float:
        return self.running_s


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="its monotonic clock counts suspension as well")
def test_a_machine_that_was_suspended_has_lost_its_lease_when_it_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Suspended()
    monkeypatch.setattr(coordination, "time", machine)
    group = ProcessorGroup(MemoryZooKeeper().tree(10.0), "/root", GroupName("app"))
    group.register(Registration("a", "host-1", 1, "code", "host-1", 17, "99@4", "boot"))
    assert group.lease.holds(group.now_s())
    machine.suspended_s = 60.0
    assert not group.lease.holds(group.now_s())
    machine.running_s += 0.1
    assert group.confirm() and group.lease.holds(group.now_s()), "its session has not ended, and it is answered again"
