"""The pages for the operators of an application: one that shows it, events that keep it fresh, the state by key, changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.resources import files
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

import msgspec
from anyio import to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from headrace.adapters.http.guard import routed
from headrace.errors import HeadraceError
from headrace.model.whole_numbers import whole_number_of

EVERY_S = 1.0
STREAMS_MAX = 32  # pages that are kept fresh at once
LIMIT_MAX = 1_000
_JSON = "application/json"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_STATIC = {
    path.name: (path.read_bytes(), _TYPES[path.name.rpartition(".")[2]])
    for path in files("headrace.adapters.http").joinpath("static").iterdir()
    if path.name.rpartition(".")[2] in _TYPES
}


class View(Protocol):
    """What is shown, and changed. Each may wait for the system; `HeadraceError` for what is not there, or cannot be done.
    `refused`: what is shown of such an error, `error` and `hint`."""

    def overview(self) -> bytes: ...
    def picture(self) -> str: ...
    def state(self, store: str, key: str) -> dict[str, Any]: ...
    def range(self, store: str, start: str | None, end: str | None, limit: int) -> dict[str, Any]: ...
    def change(self, what: str, given: Mapping[str, Any], *, is_wanted: bool) -> dict[str, Any]: ...
    def letters(self, given: Mapping[str, str]) -> dict[str, Any]: ...
    def refused(self, error: HeadraceError) -> dict[str, Any]: ...


def operator_pages(view: View) -> tuple[ASGIApp, Callable[[], None]]:
    """The pages of one application; and what ends the events, before the server is closed."""
    pages = _Pages(view)
    routes = [
        Route("/", pages.page),
        Route("/static/{name}", pages.static),
        Route("/api/overview", pages.overview),
        Route("/api/picture", pages.picture),
        Route("/api/events", pages.events),
        Route("/api/dead-letters", pages.letters),
        Route("/state/{store}", pages.state_range),
        Route("/state/{store}/{key:path}", pages.state),
        Route("/api/{mode}/{what}", pages.change, methods=["POST"]),
    ]
    return routed(routes), pages.end_events


class _Pages:
    def __init__(self, view: View) -> None:
        self._view = view
        self._streaming = 0
        self.is_closing = False

    async def page(self, request: Request) -> Response:
        return _static("index.html")

    async def static(self, request: Request) -> Response:
        return _static(request.path_params["name"])

    async def overview(self, request: Request) -> Response:
        return await self._answered(self._view.overview)

    async def picture(self, request: Request) -> Response:
        return Response(await run_in_threadpool(self._view.picture), media_type=_TYPES["html"])

    async def events(self, request: Request) -> Response:
        if self._streaming >= STREAMS_MAX:
            return _json({"error": f"{STREAMS_MAX} pages are kept fresh already"}, 503)
        self._streaming += 1
        return StreamingResponse(self._events(request), media_type="text/event-stream")

    async def _events(self, request: Request) -> AsyncIterator[bytes]:
        try:
            while not await request.is_disconnected():
                looked_s = time.monotonic()
                look = asyncio.ensure_future(to_thread.run_sync(self._overview, abandon_on_cancel=True))
                while not look.done():  # a server that closes does not wait for a system that does not answer
                    await asyncio.wait({look}, timeout=0.1)
                    if self.is_closing:
                        return
                yield b"data: " + look.result() + b"\n\n"
                while time.monotonic() < looked_s + EVERY_S:
                    await asyncio.sleep(0.1)
                    if self.is_closing:
                        return
        finally:
            self._streaming -= 1

    def _overview(self) -> bytes:
        try:
            return self._view.overview()
        except HeadraceError as error:
            return msgspec.json.encode({"problem": self._view.refused(error)["error"]})

    def end_events(self) -> None:
        """Events that are under way end soon."""
        self.is_closing = True

    async def state(self, request: Request) -> Response:
        store, key = request.path_params["store"], request.path_params["key"]
        try:
            unquote_to_bytes(request.scope.get("raw_path", b"")).decode()
        except UnicodeDecodeError:
            return _json({"error": "the path is no UTF-8: give the key as text"}, 400)
        return await self._answered(lambda: self._view.state(store, key))

    async def state_range(self, request: Request) -> Response:
        given, store = request.query_params, request.path_params["store"]
        limit = whole_number_of(given.get("limit", "100"), LIMIT_MAX)
        if not limit:
            return _json({"error": f"limit: expected 1 to {LIMIT_MAX}"}, 400)
        return await self._answered(lambda: self._view.range(store, given.get("from"), given.get("to"), limit))

    async def letters(self, request: Request) -> Response:
        return await self._answered(lambda: self._view.letters(request.query_params))

    async def change(self, request: Request) -> Response:
        mode, what = request.path_params["mode"], request.path_params["what"]
        if mode not in ("preview", "change"):
            return _json({"error": "not found"}, 404)
        try:
            given = msgspec.json.decode(await request.body())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            given = None
        if not isinstance(given, dict):
            return _json({"error": "expected a JSON object"}, 400)
        return await self._answered(lambda: self._view.change(what, given, is_wanted=mode == "change"))

    async def _answered(self, look: Callable[[], Any]) -> Response:
        try:
            found = await run_in_threadpool(look)
        except HeadraceError as error:
            return _json(self._view.refused(error), 400)
        return Response(found, media_type=_JSON) if isinstance(found, bytes) else _json(found)


def _static(name: str) -> Response:
    if name not in _STATIC:
        return _json({"error": "not found"}, 404)
    data, kind = _STATIC[name]
    return Response(data, media_type=kind)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value, enc_hook=str), status, media_type=_JSON)
