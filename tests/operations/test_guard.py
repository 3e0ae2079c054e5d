"""Requests that no page sends, thousands of them: none gives a 500, a secret, a file of this machine, or changes anything."""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import headrace as hr
from headrace import wiring
from headrace.adapters.http.guard import BODY_BYTES_MAX, Guard
from headrace.adapters.http.operator_pages import operator_pages
from headrace.adapters.http.server import HttpServer
from headrace.cli.operator_view import OperatorView, shown
from headrace.cli.targets import Target
from headrace.wiring.job_endpoint import LOOPBACK
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

REQUESTS = int(os.environ.get("HEADRACE_TEST_REQUESTS", "2000"))  # `make soak`: ten thousand
SECRET = "hunter2-of-the-tests"
SCRIPT = "<script>alert(1)</script>"
PARTS = [
    "", "/", "api", "overview", "events", "picture", "preview", "change", "startpoint", "elasticity", "expansion", "stop",
    "state", "counts",
    "static", "index.html", "app.js", "..", "%2e%2e", "%2f", "etc", "passwd", "%00", "a" * 3_000, "é", "%ff", "x;y", "*",
    SCRIPT, "k1", "-1", "9" * 40, "{}", "?", "#",
]  # fmt: skip
HEADERS: dict[str, list[str]] = {
    "host": ["localhost", "127.0.0.1:80", "evil.example", "", "localhost.evil.example", "127.0.0.1@evil.example", "[::1"],
    "origin": ["http://localhost", "null", "http://evil.example", "file://", "\x7f", "http://localhost:99999", ""],
    "content-type": ["application/json", "text/plain", "multipart/form-data; boundary=x", ""],
    "content-length": ["0", "-1", "1e9", "9" * 30, "12"],
    "cookie": ["headrace-token=x", "=", ";" * 50, "a=b; a=c", 'headrace-token="\\"'],
    "authorization": ["Bearer x", "Bearer ", "Basic eDp5"],
    "transfer-encoding": ["chunked", "gzip"],
    "sec-fetch-site": ["cross-site", "same-origin", "none"],
    "accept": ["text/event-stream", "*/*"],
    "x-forwarded-host": ["evil.example"],
}
BODIES: list[Any] = [
    b"", b"{", b"[" * 10_000, b"null", b"{}", b"\xff\xfe", b'"x"', b"x" * (BODY_BYTES_MAX + 1),
    {"stream": "in", "position": "earliest"}, {"stream": "in", "position": -1}, {"stream": ["in"]}, {"stream": "x" * 5_000},
    {"stream": SCRIPT, "position": SCRIPT}, {"stream": "in", "position": 10**30}, {"stream": "in", "position": "1 eon ago"},
    {"stream": "in", "position": "earliest", "partition": -7, "state": "lost"}, {"factor": 3}, {"factor": "2"},
    {"factor": 10**12}, {"factor": 2, "sub_topology": "../x"}, {"containers": -1}, {"containers": True},
]  # fmt: skip


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> OperatorView:
    folder = tmp_path_factory.mktemp("operations")
    places = {"system": f"log:{folder / 'log'}", "local_store_dir": str(folder / "stores"), "state_uri": str(folder / "state")}
    app = hr.App("shop", config={**places, "kafka.sasl.password": SECRET})
    app.stream("in", key=hr.String(), value=hr.String()).group_by_key().count(store="counts").to_stream().to("out")
    with hr.open_system(f"log:{folder / 'log'}") as log:
        log.create_stream("in", 2)
        log.create_stream("out", 1)
        log.produce("in", [(SCRIPT, "v"), ("k1", "v")], key=hr.String(), value=hr.String())
    wiring.start(app, until="caught-up", engine=InlineEngine(run_container)).wait(30)
    return OperatorView(Target("shop", wiring.config_of(app), app))


def client_of(view: OperatorView, token: str | None = None) -> TestClient:
    return TestClient(Guard(operator_pages(view)[0], LOOPBACK, token), "http://localhost", raise_server_exceptions=False)


def stored(view: OperatorView) -> Any:
    config = view._target.config
    with wiring.open_configured(config) as system:
        metadata = system.metadata_store("shop")
        return [dict(metadata.requests(namespace)) for namespace in ("startpoints", "scales")], system.high_watermarks("in")


def test_no_generated_request_breaks_tells_or_changes_anything(view: OperatorView) -> None:
    draw, before, folder = random.Random(9), stored(view), str(Path(view._target.config.system).parent).removeprefix("log:")
    client, counts = client_of(view), dict[int, int]()
    for _ in range(REQUESTS):
        path = "/" + "/".join(draw.choices(PARTS, k=draw.randint(0, 4)))
        if "events" in path:  # answered for as long as somebody listens: see below
            continue
        names = draw.sample(sorted(HEADERS), draw.randint(0, 3))
        headers = {name: draw.choice(HEADERS[name]) for name in names}
        body = draw.choice(BODIES)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        method = draw.choice(["GET", "POST", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
        try:
            answer = client.request(method, path, headers=headers, content=content, follow_redirects=False)
        except (ValueError, UnicodeError):  # the client refuses to send it
            continue
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "h11"):
                raise
            continue
        counts[answer.status_code] = counts.get(answer.status_code, 0) + 1
        assert answer.status_code < 500 or answer.status_code == 503, (method, path, headers, answer.text)
        assert SECRET not in answer.text and folder not in answer.text, (method, path, answer.text)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert SCRIPT not in answer.text or not answer.headers["content-type"].startswith("text/html"), (method, path)
    assert sum(counts.values()) > REQUESTS / 2 and {200, 400, 403, 404, 405, 413} <= counts.keys(), counts
    assert stored(view) == before


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "127.0.0.1:8088"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "localhost", "origin": "http://localhost"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_other_sites_are_not_answered(view: OperatorView, headers: dict[str, str], status: int) -> None:
    assert client_of(view).get("/api/overview", headers=headers).status_code == status


def test_a_change_is_refused_unless_it_is_allowed(view: OperatorView) -> None:
    given, before = {"stream": "in", "position": "earliest"}, stored(view)
    answer = client_of(view).post("/api/change/startpoint", json=given)
    assert answer.status_code == 400 and "--allow-changes" in answer.json()["error"]
    allowed = OperatorView(view._target, allow_changes=True)
    preview = client_of(allowed).post("/api/preview/startpoint", json=given)
    assert preview.json()["read_again"] == 2 and stored(view) == before
    from_elsewhere = client_of(allowed).post("/api/change/startpoint", json=given, headers={"sec-fetch-site": "cross-site"})
    assert from_elsewhere.status_code == 403
    assert stored(view) == before
    assert len(client_of(allowed).post("/api/change/startpoint", json=given).json()["startpoints"]) == 2
    assert stored(view) != before
    refused = client_of(allowed).post("/api/change/stop", json={})
    assert refused.status_code == 400 and "does not run in this process" in refused.json()["error"]


def test_a_token_is_asked_for_and_kept_out_of_addresses(view: OperatorView) -> None:
    client = client_of(view, "t0ken")
    assert client.get("/api/overview").status_code == 401
    assert client.get("/api/overview?token=t0ken").status_code == 401, "only the first page takes it from there"
    assert client.get("/api/overview", headers={"authorization": "Bearer t0ken"}).status_code == 200
    assert client.get("/api/overview", headers={"authorization": "Bearer t0kem"}).status_code == 401
    opened = client.get("/?token=t0ken", follow_redirects=False)
    assert opened.status_code == 303 and opened.headers["location"] == "/"
    assert "HttpOnly" in opened.headers["set-cookie"] and "SameSite=strict" in opened.headers["set-cookie"]
    assert client.get("/api/overview").status_code == 200, "the browser has the cookie now"


def test_a_key_that_is_a_script_is_a_text(view: OperatorView) -> None:
    answer = client_of(view).get(f"/state/counts/{SCRIPT}")
    assert answer.json()["entries"] == [{"task": answer.json()["entries"][0]["task"], "value": 1}]
    assert answer.headers["content-type"] == "application/json" and answer.headers["x-content-type-options"] == "nosniff"
    read = [sum(one["positions"].values()) for one in answer.json()["as_of"]]
    assert sum(read) == 2, "any producer may have put it into any partition: both had been read"
    found = client_of(view).get("/state/counts?limit=1").json()
    assert len(found["rows"]) == 1 and not found["is_whole"]
    assert [row["key"] for row in client_of(view).get("/state/counts?from=k&to=l").json()["rows"]] == ["k1"]
    assert client_of(view).get("/state/nothing/k1").status_code == 400
    assert client_of(view).get("/state/counts/%ff%fe").status_code == 400, "no key is read out of what is no text"


def test_what_is_shown_names_no_folder() -> None:
    text = "cannot write '/var/lib/headrace/a.arrow' of log:/srv/data/log, http://host/a/b stays"
    assert shown({"a": [text]}) == {"a": ["cannot write 'a.arrow' of log:log, http://host/a/b stays"]}


def test_a_server_closes_in_silence_while_it_waits_for_the_system(view: OperatorView, caplog: pytest.LogCaptureFixture) -> None:
    """An operator who ends `headrace ui` while Kafka does not answer gets no stack."""
    is_asked, goes_on = threading.Event(), threading.Event()

    def overview() -> bytes:
        is_asked.set()
        goes_on.wait(10)
        return b"{}"

    view.overview = overview  # type: ignore[method-assign]
    pages, end_events = operator_pages(view)
    server = HttpServer(pages, "127.0.0.1", 0, "ui").start()
    paths, answered = ("/api/events", "/api/overview"), list[Any]()
    asking = [threading.Thread(target=lambda path=path: answered.append(outcome(server.url + path))) for path in paths]
    for one in asking:
        one.start()
    try:
        assert is_asked.wait(10)
        end_events()
        began_s = time.monotonic()
        server.close()
        assert time.monotonic() - began_s < 5
    finally:
        goes_on.set()
    for one in asking:
        one.join(10)
    assert len(answered) == len(paths) and [record.getMessage() for record in caplog.records] == []


def outcome(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=10) as found:
            return found.read()
    except (OSError, http.client.HTTPException) as error:
        return error
