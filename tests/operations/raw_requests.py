"""Requests as bytes, sent over a socket: what no client library would send, too."""

from __future__ import annotations

import json
import random
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from headrace.adapters.http.guard import BODY_BYTES_MAX, DROPPED_BYTES_MAX, Guard
from headrace.adapters.http.operator_pages import operator_pages
from headrace.adapters.http.server import HttpServer
from headrace.cli.operator_view import OperatorView
from headrace.wiring.job_endpoint import LOOPBACK

SCRIPT = "<script>alert(1)</script>"
METHODS = ["GET", "GET", "GET", "POST", "POST", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW", "CONNECT"]
PARTS = [
    "", "/", "api", "overview", "dead-letters", "picture", "preview", "change", "startpoint", "elasticity", "expansion", "stop",
    "state", "counts", "by-number", "per-hour", "static", "index.html", "app.js", "..", "%2e%2e", "%2f", "etc", "passwd", "%00",
    "a" * 3_000, "%ff", "x;y", "*", quote(SCRIPT), "k1", "-1", "9" * 40, "9" * 1_900, "{}", "%5b" * 300, "%7B%22key%22",
]  # fmt: skip
PATHS = ["state/counts", "state/by-number", "state/per-hour", "state/counts/k1", "state/by-number/1", "api/dead-letters"]
CHANGES = [f"api/{mode}/{what}" for mode in ("preview", "change")
           for what in ("startpoint", "elasticity", "expansion", "dead-letters", "stop", "none")]  # fmt: skip
NUMBERS = [
    "0", "-1", "1", "007", "1000", "1001", "0000100000", "000001" + "9" * 5_000, "9" * 19, "9" * 40, "1e3", "1_0", "%D9%A3",
    "0x10", "+1", "%201", "NaN", "Infinity", "-0", "1.5", "", "%ff",
]  # fmt: skip
TEXTS = [
    "", "k", SCRIPT, "/etc/passwd", "../..", "\x00", "\U0001f600", "2013-01-01T00:00:00Z", "2013-01-01",
    "9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00",
]  # fmt: skip
QUERIES = ["limit", "from", "to", "token", "reason", "operator", "stream", "since", "until"]
HEADERS: Mapping[str, Sequence[str]] = {
    "host": ["localhost", "127.0.0.1:80", "evil.example", "", "localhost.evil.example", "a@evil.example", "[::1", "a b"],
    "origin": ["http://localhost", "null", "http://evil.example", "http://[::1", "file://", "\x7f", ""],
    "content-type": ["application/json", "text/plain", "multipart/form-data; boundary=x", ""],
    "cookie": ["headrace-token=x", "=", ";" * 50, "a=b; a=c", 'headrace-token="\\"', "\u00ff"],
    "authorization": ["Bearer x", "Bearer ", "Basic eDp5", "\u00ff"],
    "expect": ["100-continue", "x"],
    "upgrade": ["websocket", "h2c"],
    "range": ["bytes=0-0,1-99999999999999999999"],
    "accept-encoding": ["gzip", "\u00ff"],
    "sec-fetch-site": ["cross-site", "same-origin", "none"],
    "accept": ["text/event-stream", "*/*"],
    "x-forwarded-host": ["evil.example"],
}
FIELDS = ["stream", "position", "partition", "partitions", "state", "factor", "containers", "sub_topology", "ids", "action"]
VALUES: list[Any] = [
    "in", "earliest", "latest", "keep", "rewind", "lost", "retry", "discard", "0:0", "0:" + "9" * 900, "\u0663:0",
    "", SCRIPT, "../x", "2", "9" * 30, "9" * 900, "1 eon ago", "9" * 150 + " weeks ago", "2013-01-01T00:00:00Z", "x" * 5_000,
    -1, 0, 1, 2, 3, 64, 10**12, 2**63, 2**64 - 1, 10**30, 1.5, 1e300, True, None, [], ["in"], {}, {"a": {"b": [1]}},
]  # fmt: skip
BODIES = [b"{", b"[" * 10_000, b"null", b"{}", b"\xff\xfe", b'"x"', b'{"factor": ' + b"9" * 5_000 + b"}",
          b'{"stream": "\\ud800"}', b"x" * (BODY_BYTES_MAX + 1), b"x" * (4 * BODY_BYTES_MAX)]  # fmt: skip


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def is_of_the_server(self) -> bool:
        """Of what reads HTTP, before any page: what was sent is no request."""
        return self.status == 400 and self.headers["content-type"].startswith("text/plain")


def request(draw: random.Random) -> bytes:
    """One request, with all of its body."""
    parts = draw.choices(PARTS, k=draw.randint(0, 4))
    method, path = draw.choice(METHODS), draw.choice(["/".join(parts), draw.choice(PATHS), draw.choice(CHANGES)])
    if path in CHANGES and draw.random() < 0.8:
        method = "POST"
    target = draw.choice(["/", "/", "/", "/", "//", "", "http://evil.example/"]) + path
    if draw.random() < 0.5:
        pairs = [(draw.choice(QUERIES), draw.choice([*NUMBERS, *map(quote, TEXTS)])) for _ in range(draw.randint(1, 3))]
        target += "?" + "&".join(f"{name}={value}" for name, value in pairs)
    headers = [("host", "localhost")] if draw.random() < 0.9 else []
    names = draw.sample(sorted(HEADERS), draw.choice([0, 0, 1, 2, 3]))
    headers += [(name, draw.choice(HEADERS[name])) for name in names]
    body = b"" if method in ("GET", "HEAD") and draw.random() < 0.9 else _body(draw)
    form = draw.choice(["length", "length", "chunks", "chunks", "both", "wrong"]) if body else "none"
    if form in ("length", "both"):
        headers.append(("content-length", str(len(body))))
    if form == "wrong":
        headers.append(("content-length", draw.choice(["-1", "1e9", "9" * 30, "0", "+2", "2, 3"])))
    if form in ("chunks", "both"):
        headers.append(("transfer-encoding", draw.choice(["chunked"] * 8 + ["gzip", "gzip, chunked"])))
        body = chunked(body, draw.choice([1_000, 65_536, 10**6]), draw.choice([""] * 8 + [";x=y", "x", "-"]))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "connection: close"]
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


def _body(draw: random.Random) -> bytes:
    if draw.random() < 0.3:
        return draw.choice(BODIES)
    return json.dumps({name: draw.choice(VALUES) for name in draw.sample(FIELDS, draw.randint(0, 4))}).encode()


def chunked(body: bytes, size: int, extension: str = "") -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(f"{len(one):x}{extension}\r\n".encode() + one + b"\r\n" for one in pieces) + b"0\r\n\r\n"


@contextmanager
def served(view: OperatorView, token: str | None = None) -> Iterator[int]:
    """The port of a server of it, as `headrace ui` makes one."""
    pages, end_events = operator_pages(view)
    server = HttpServer(Guard(pages, LOOPBACK, token), "127.0.0.1", 0, "ui").start()
    yield server.port
    end_events()
    server.close()


def sent(port: int, data: bytes) -> Answer | None:
    """What is answered; None where the connection was closed without an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        with suppress(ConnectionError):  # it was closed before all was sent: there may be an answer
            connection.sendall(data)
        found = bytearray()
        with suppress(ConnectionError):
            while part := connection.recv(65_536):
                found += part
    while found.startswith(b"HTTP/1.1 100 "):
        del found[: found.index(b"\r\n\r\n") + 4]
    if not found:
        return None
    head, _, body = bytes(found).partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    status = re.fullmatch(r"HTTP/1\.1 (\d{3}) .*", first)
    assert status is not None, first
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Answer(int(status[1]), headers, body.decode(errors="replace"))


TOO_LARGE = [BODY_BYTES_MAX + 1, 3 * BODY_BYTES_MAX, DROPPED_BYTES_MAX]
