"""What comes before every page: who may ask, how much, and what an answer says of itself.

Pages of other sites cannot reach a server on this machine: `Host` must be an address or one of its own names (a name that was
made to point here is none), and `Origin`, where there is one, the server itself. An error says nothing of this machine: that is
in the log. Pages behind it answer no error themselves (Starlette's own handler would, before this one): see `routed`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Collection, MutableMapping, Sequence
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.errors import HeadraceError

LOG = logging.getLogger("headrace.http")
BODY_BYTES_MAX, PATH_CHARACTERS_MAX = 64 * 1024, 2_048
BODY_S = 10.0  # so long a body is waited for
DROPPED_BYTES_MAX = 1024 * 1024  # of a body that is too large: many clients read the answer only when they have sent it
COOKIE = "headrace-token"
METHODS = frozenset({"GET", "HEAD", "POST"})
_HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


class Guard:
    """An ASGI application before another. `hosts`: names of this server, without ports; `token`: what a request
    must show, None for nothing."""

    def __init__(self, app: ASGIApp, hosts: Collection[str], token: str | None = None) -> None:
        self._app, self._hosts, self._token = app, frozenset(host.lower() for host in hosts), token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        begun = False

        async def sent(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                own = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in _HEADERS]
                message["headers"] = [*own, *_HEADERS.items()]
            await send(message)

        try:
            await self._answer(scope, receive, sent)
        except Exception as error:
            if begun:
                raise
            await _failure(error)(scope, receive, sent)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp | None = self._refusal(Request(scope))
        if answer is None:
            body = await _whole_body(receive)
            if body is None:
                return  # the client has left
            answer, receive = self._app, _again(body, receive)
        await answer(scope, receive, send)

    def _refusal(self, request: Request) -> JSONResponse | RedirectResponse | None:
        if request.method not in METHODS:
            return _said(405, "GET and POST are answered")
        if len(request.scope.get("raw_path") or request.scope["path"]) > PATH_CHARACTERS_MAX:
            return _said(414, "the path is too long")
        named = request.headers.getlist("host")
        name = _name_of(named[0]) if len(named) == 1 else ""
        if name not in self._hosts and not _is_address(name):
            return _said(403, "this server does not have the name in Host")
        origins = request.headers.getlist("origin")
        if any(_site_of(origin) != named[0].lower() for origin in origins):
            return _said(403, "pages of other sites are not answered")
        if request.method == "POST" and request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return _said(403, "pages of other sites are not answered")
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or len(length) > 12 or int(length) > BODY_BYTES_MAX:
            return _said(413, f"a body has at most {BODY_BYTES_MAX} bytes")
        return None if self._token is None else self._without_token(request, self._token)

    def _without_token(self, request: Request, token: str) -> JSONResponse | RedirectResponse | None:
        """A refusal where none is shown. One in the address is taken once, into a cookie: addresses are kept by browsers."""
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if _equal(shown, token) or _equal(_cookie(request), token):
            return None
        if request.method == "GET" and request.scope["path"] == "/" and _equal(request.query_params.get("token", ""), token):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
            return answer
        return _said(401, "show the token: Authorization: Bearer TOKEN, or open /?token=TOKEN in a browser")


def routed(routes: Sequence[BaseRoute]) -> ASGIApp:
    """Pages to be put behind a guard. What they raise comes to it."""
    return Router(routes, default=_said(404, "not found"))


async def _whole_body(receive: Receive) -> bytes | None:
    """None where the client leaves. `_TooLarge`, `_TooSlow`: a request that does not say how long it is may be endless."""
    parts, read, is_more = list[bytes](), 0, True
    ends_s = asyncio.get_running_loop().time() + BODY_S
    while is_more and read <= DROPPED_BYTES_MAX:
        try:
            async with asyncio.timeout_at(ends_s):
                message = await receive()
        except TimeoutError:
            raise _TooSlow from None
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        read += len(part)
        if read <= BODY_BYTES_MAX:
            parts.append(part)
        is_more = message.get("more_body", False)
    if read > BODY_BYTES_MAX:
        raise _TooLarge
    return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """What gives a body that was read, then what comes after it."""
    is_given = False

    async def received() -> MutableMapping[str, Any]:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return received


class _TooLarge(Exception):
    pass


class _TooSlow(Exception):
    pass


def _failure(error: Exception) -> JSONResponse:
    if isinstance(error, _TooLarge):
        return _said(413, f"a body has at most {BODY_BYTES_MAX} bytes")
    if isinstance(error, _TooSlow):
        return _said(408, f"the body has not come within {BODY_S:g} s")
    if isinstance(error, HeadraceError):
        LOG.warning("a page could not be answered: %s", error.message)
        return _said(503, "that cannot be read now; the log of this server says why")
    LOG.error("a page could not be answered", exc_info=error)
    return _said(500, "a mistake in Headrace; the log of this server says more")


def _said(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status)


def _name_of(host: str) -> str:
    """Without the port.

    >>> _name_of("localhost:80"), _name_of("[::1]:80"), _name_of("a@b"), _name_of("LOCALHOST")
    ('localhost', '::1', '', 'localhost')
    """
    try:
        found = urlsplit(f"//{_text(host)}")
        _ = found.port
    except ValueError:
        return ""
    return "" if "@" in host or found.path or found.query else (found.hostname or "")


def _site_of(origin: str) -> str:
    """Host and port.

    >>> _site_of("http://LOCALHOST:80"), _site_of("null"), _site_of("http://[::1")
    ('localhost:80', '', '')
    """
    try:
        return urlsplit(_text(origin)).netloc.lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    """An IP address: who asks by one was not sent here by a name."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _text(header: str) -> str:
    return header if header.isascii() and header.isprintable() else ""


def _cookie(request: Request) -> str:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _equal(shown: str, token: str) -> bool:
    return hmac.compare_digest(shown.encode(errors="replace"), token.encode())
