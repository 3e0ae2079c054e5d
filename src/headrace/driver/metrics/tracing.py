"""A trace of a job: a span for each committed round, and one for each change of its plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from headrace.core.metrics.spans import Span, change_span, round_span
from headrace.core.metrics.table import MetricValues
from headrace.exchange.json_logs import current_round
from headrace.model.change import Change


class Tracing:
    """A `core.metrics.sink.MetricsSink` that hands what it gets on as spans. `exported` is quick, and does not raise."""

    def __init__(self, exported: Callable[[Span], None]) -> None:
        self._exported = exported

    def begin(self, sub_topology: str) -> None:
        """Nothing is counted here."""

    def record(self, sub_topology: str, values: MetricValues, began_s: float, ended_s: float) -> None:
        end_ns = time.time_ns() - round((time.monotonic() - ended_s) * 1e9)
        start_ns = end_ns - round((ended_s - began_s) * 1e9)
        span = round_span(sub_topology, current_round(), values, start_ns, end_ns)
        if span is not None:
            self._exported(span)

    def changed(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self._exported(change_span(change, time.time_ns()))
