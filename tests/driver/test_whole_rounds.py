"""When a sub-topology begins that reads what another writes: behind its rounds."""

from __future__ import annotations

from headrace.driver.rounds.scheduling import WAIT_S, WholeRounds

UPSTREAM = {"writer": [], "other": [], "reader": ["writer", "other"]}


def test_without_a_round_above_nothing_waits() -> None:
    whole = WholeRounds(UPSTREAM)
    assert whole.waits_s("writer", ["reader"], 0.0) == 0
    assert whole.waits_s("reader", [], 0.0) == 0
    assert whole.waits_s("reader", ["reader"], 1.0) == 0


def test_a_round_above_is_waited_for_until_it_has_ended() -> None:
    whole = WholeRounds(UPSTREAM)
    assert whole.waits_s("reader", ["writer"], 10.0) == WAIT_S
    assert whole.waits_s("reader", ["writer"], 10.5) == WAIT_S - 0.5
    whole.ended("writer")
    assert whole.waits_s("reader", ["writer"], 11.0) == 0, "the next round above runs already; what the last wrote is there"
    assert whole.waits_s("reader", ["writer"], 11.0) == WAIT_S


def test_a_round_that_ended_while_the_reader_was_busy_is_read_at_once() -> None:
    whole = WholeRounds(UPSTREAM)
    assert whole.waits_s("reader", [], 0.0) == 0
    whole.ended("other")
    assert whole.waits_s("reader", ["writer", "other"], 1.0) == 0


def test_the_wait_has_a_bound_and_begins_anew_each_time() -> None:
    whole = WholeRounds(UPSTREAM)
    assert whole.waits_s("reader", ["writer"], 0.0) > 0
    assert whole.waits_s("reader", ["writer"], WAIT_S) == 0
    assert whole.waits_s("reader", ["writer"], 2 * WAIT_S) == WAIT_S
