"""The metrics of a job in the text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.core.metrics.series import Series
from headrace.core.metrics.table import MetricKind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Collected(Collector):
    """Nothing is kept here: what the driver has measured is read when it is asked for, so that rounds pay nothing for it."""

    def __init__(self, look: Callable[[], Sequence[Series]]) -> None:
        self._look = look

    def collect(self) -> Iterator[Metric]:
        for one in self._look():
            family = CounterMetricFamily if one.kind is MetricKind.COUNTER else GaugeMetricFamily
            made = family(one.name, one.meaning, labels=one.labels)
            for labels, value in one.samples:
                made.add_metric(labels, value)
            yield made

    def describe(self) -> list[Metric]:
        return []  # it is asked once, at the registration: nothing is measured by then


def exposition(look: Callable[[], Sequence[Series]]) -> Callable[[], bytes]:
    """What gives the text, each time of what `look` gives then."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(look))
    return lambda: generate_latest(registry)
