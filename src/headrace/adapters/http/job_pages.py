"""The pages of a process that runs a job: its metrics, and its health for who restarts processes or sends them work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headrace.adapters.http.exposition import CONTENT_TYPE, exposition
from headrace.core.metrics.series import Series


def job_pages(
    series: Callable[[], Sequence[Series]], ended_by: Callable[[], str], waits_for: Callable[[], str]
) -> Starlette:
    """`ended_by`: why the job does not live any more, empty while it does; `waits_for`: what it waits for before it works."""
    text = exposition(series)

    async def metrics(request: Request) -> Response:
        return Response(await run_in_threadpool(text), media_type=CONTENT_TYPE)

    async def live(request: Request) -> Response:
        why = await run_in_threadpool(ended_by)
        return JSONResponse({"live": not why, "why": why}, 503 if why else 200)

    async def ready(request: Request) -> Response:
        why = await run_in_threadpool(lambda: ended_by() or waits_for())
        return JSONResponse({"ready": not why, "why": why}, 503 if why else 200)

    return Starlette(routes=[Route("/metrics", metrics), Route("/live", live), Route("/ready", ready)])
