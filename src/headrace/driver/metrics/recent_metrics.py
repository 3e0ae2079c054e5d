"""Metrics in the driver's memory: last values, sums, and what was done in the last minute."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import get_args

from headrace.core.metrics.table import METRICS, MetricKind, MetricName, MetricValues
from headrace.core.metrics.windows import RecentAmounts
from headrace.model.change import Change

# Those whose amounts of the last minute are kept, for rates and shares.
RATED: frozenset[MetricName] = frozenset(
    {
        "records-processed",
        "process-ns",
        "wait-ns",
        "container-process-ns",
        "container-wait-ns",
        "commit-ns",
        "round-ns",
        "round-commit-ns",
        "input-offsets",
        "records-written",
    }
)
assert frozenset(get_args(MetricName)) >= RATED


class RecentMetrics:
    """A `core.metrics.sink.MetricsSink` that keeps what it gets, for the status and for observations. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[MetricName, dict[str, float]]] = {}
        self._recent: dict[str, RecentAmounts[tuple[MetricName, str]]] = {}
        self._read: dict[str, RecentAmounts[str]] = {}  # records, under all plans

    def begin(self, sub_topology: str) -> None:
        with self._lock:
            self._values[sub_topology], self._recent[sub_topology] = {}, RecentAmounts()

    def record(self, sub_topology: str, values: MetricValues, began_s: float, ended_s: float) -> None:
        with self._lock:
            known = self._values.setdefault(sub_topology, {})
            for name, by_label in values.items():
                mine = known.setdefault(name, {})
                if METRICS[name].kind is MetricKind.GAUGE:
                    mine.update(by_label)
                    continue
                for label, amount in by_label.items():
                    mine[label] = mine.get(label, 0) + amount
            rated = {(name, label): amount for name in RATED & values.keys() for label, amount in values[name].items()}
            if (read := values.get("records-processed")) and (records := read.get("sum", sum(read.values()))):
                self._read.setdefault(sub_topology, RecentAmounts()).add(began_s, ended_s, {"": records})
            if rated:
                self._recent.setdefault(sub_topology, RecentAmounts()).add(began_s, ended_s, rated)

    def changed(self, changes: Iterable[Change]) -> None:
        """The history has them."""

    def values(self, sub_topology: str) -> dict[MetricName, dict[str, float]]:
        """Sums of counters, and the last values of gauges; `""` for those of the job itself."""
        with self._lock:
            return {name: dict(by_label) for name, by_label in self._values.get(sub_topology, {}).items()}

    def all_values(self) -> dict[str, dict[MetricName, dict[str, float]]]:
        """The same of the job and all of its sub-topologies."""
        with self._lock:
            titles = list(self._values)
        return {title: self.values(title) for title in titles}

    def read_within(self, sub_topology: str, since_s: float, until_s: float) -> float:
        """How many records were processed in this window of the last minute, under this plan and those before."""
        with self._lock:
            recent = self._read.get(sub_topology)
            return 0.0 if recent is None else recent.within(since_s, until_s).get("", 0.0)

    def within(self, sub_topology: str, since_s: float, until_s: float) -> dict[MetricName, dict[str, float]]:
        """Of each of `RATED` how much was done in this window of the last minute."""
        found: dict[MetricName, dict[str, float]] = {name: {} for name in RATED}
        with self._lock:
            recent = self._recent.get(sub_topology)
            amounts = {} if recent is None else recent.within(since_s, until_s)
        for (name, label), amount in amounts.items():
            found[name][label] = amount
        return found
