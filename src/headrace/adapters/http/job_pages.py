"""The pages of a process that runs a job: its metrics, and its health for who restarts processes or sends them work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headrace.adapters.http.guard import routed
from headrace.core.file_paths import without_paths
from headrace.core.metrics.series import Series
from headrace.core.metrics.table import MetricKind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def job_pages(
    series: Callable[[], Sequence[Series]], ended_by: Callable[[], str], waits_for: Callable[[], str]
) -> ASGIApp:
    """`ended_by`: why the job does not live any more, empty while it does; `waits_for`: what it waits for before it works."""
    text = exposition(series)

    async def metrics(request: Request) -> Response:
        return Response(await run_in_threadpool(text), media_type=CONTENT_TYPE)

    async def live(request: Request) -> Response:
        why = await run_in_threadpool(ended_by)
        return JSONResponse({"live": not why, "why": without_paths(why)}, 503 if why else 200)

    async def ready(request: Request) -> Response:
        why = await run_in_threadpool(lambda: ended_by() or waits_for())
        return JSONResponse({"ready": not why, "why": without_paths(why)}, 503 if why else 200)

    return routed([Route("/metrics", metrics), Route("/live", live), Route("/ready", ready)])


class _Collected(Collector):
    """Nothing is kept here: what the driver has measured is read when it is requested, so that rounds pay nothing for it."""

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
