"""The table of metrics, and what was done in a window of the last minute."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.metrics.observations import SubTopologyLoad, TaskLoad
from headrace.core.metrics.table import METRICS, RATES, MetricLabel
from headrace.core.metrics.windows import KEPT_S, SLOT_S, RecentAmounts

SEED = ("job-model-generation-ns", "keyhash-compute-ns", "checkpoint-compute-ns", "task-count", "total-input-consumption-ns")
OF_TASKS = ("store-identify-ns", "process-ns", "disk-usage", "get-ns", "put-ns", "delete-ns")


def test_the_seeds_names_are_there_and_those_of_virtual_tasks_are_of_tasks() -> None:
    assert {*SEED, "commit-ns", *OF_TASKS} <= METRICS.keys()
    assert {METRICS[name].label for name in OF_TASKS} == {MetricLabel.TASK}  # type: ignore[index]


def test_a_unit_in_a_name_is_the_unit() -> None:
    assert all((metric.unit == "ns") == name.endswith("-ns") for name, metric in METRICS.items())


@pytest.mark.parametrize(("label", "load"), [(MetricLabel.TASK, TaskLoad), (MetricLabel.SUB_TOPOLOGY, SubTopologyLoad)])
def test_the_rates_are_those_that_are_observed(label: MetricLabel, load: type) -> None:
    named = [rate.name for rate in RATES if rate.label is label]
    assert sorted(named) == sorted(field.name.replace("_", "-") for field in fields(load))


# --- windows ------------------------------------------------------------------------------------------------------------


def in_order(spans: list[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """(began, ended, amount), by their ends: gap before the end of the one before, length, amount."""
    found, at_s = [], 0.0
    for gap_s, length_s, amount in spans:
        at_s += gap_s + length_s
        found.append((at_s - length_s, at_s, amount))
    return found


def reckoned(spans: list[tuple[float, float, float]], since_s: float, until_s: float) -> float:
    """The dumb second implementation: each span by itself."""
    whole = 0.0
    for began_s, ended_s, amount in spans:
        inside = min(ended_s, until_s) - max(began_s, since_s)
        if ended_s > began_s:
            whole += amount * max(0.0, inside) / (ended_s - began_s)
        elif since_s < ended_s <= until_s:
            whole += amount
    return whole


def kept(spans: list[tuple[float, float, float]]) -> RecentAmounts[str]:
    recent = RecentAmounts[str]()
    for began_s, ended_s, amount in spans:
        recent.add(began_s, ended_s, {"a": amount})
    return recent


seconds = st.floats(0, 15)
amounts = st.floats(0, 1e6)
window = st.tuples(st.floats(0, KEPT_S), st.floats(0, KEPT_S)).map(sorted)


@given(st.lists(st.tuples(seconds, st.floats(SLOT_S + 0.01, 90), amounts), min_size=1), window)
def test_a_window_has_of_each_long_span_what_lies_in_it(spans: list, back: list[float]) -> None:
    spans = in_order(spans)
    newest_s = spans[-1][1]
    since_s, until_s = newest_s - back[1], newest_s - back[0]
    expected = reckoned(spans, since_s, until_s)
    assert kept(spans).within(since_s, until_s).get("a", 0.0) == pytest.approx(expected, rel=1e-6, abs=1e-3)


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2), amounts), min_size=1), window)
def test_short_spans_are_put_together_and_none_is_lost_or_counted_twice(spans: list, back: list[float]) -> None:
    spans = in_order(spans)
    newest_s = spans[-1][1]
    since_s, until_s = newest_s - back[1], newest_s - back[0]
    found = kept(spans).within(since_s, until_s).get("a", 0.0)
    assert found <= reckoned(spans, since_s - SLOT_S, until_s + SLOT_S) * (1 + 1e-6) + 1e-3
    assert found >= reckoned(spans, since_s + SLOT_S, until_s - SLOT_S) * (1 - 1e-6) - 1e-3
    recent = [span for span in spans if span[0] > newest_s - KEPT_S]
    assert kept(recent).within(-1.0, newest_s + 1).get("a", 0.0) >= sum(amount for *_, amount in recent) * (1 - 1e-6) - 1e-3


@given(st.lists(st.tuples(st.floats(0, 0.05), st.floats(0, 0.2), amounts), min_size=1, max_size=9))
def test_what_is_kept_does_not_grow_with_the_number_of_rounds(spans: list) -> None:
    assert len(kept(in_order(spans * 500))._slots) <= 2 * (KEPT_S / SLOT_S) + 2
