"""Spans of a standalone group: each processor's own rounds, and each change once."""

from __future__ import annotations

import pytest

import headrace as hr
from groups.group import KEYS, Group
from support.collector import Collector, facts_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]


def test_each_processor_sends_its_rounds_and_the_leader_the_changes(group: Group) -> None:
    collector = Collector()
    try:
        for number, id_ in enumerate("ab", 1):
            group.start(id_, collector=collector.url)
            group.await_shares(*"ab"[:number])
        group.send(3 * KEYS)
        group.await_all()
        with hr.elasticity(group.application()) as elasticity:
            elasticity.set(2)
            group.until(lambda: not elasticity.open_requests())
        group.send(3 * KEYS)
        group.await_all()
        group.stop_all()
    finally:
        collector.close()
    rounds = [facts_of(one) for one in collector.spans if one.name == "round of source"]
    assert sum(one["headrace.records_processed"] for one in rounds) == len(group.sent)
    assert {one["headrace.processor"] for one in rounds} == {"a", "b"}
    changes = [facts_of(one) for one in collector.spans if one.name == "change: scale"]
    assert sorted(one["headrace.what"] for one in changes) == ["by-digit", "source"], changes
    assert {(one["headrace.outcome"], one["headrace.processor"]) for one in changes} == {("applied", "a")}
    assert collector.services == {group.name}
