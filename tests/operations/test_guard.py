"""Requests that no page sends, thousands of them: none gives a 500, a secret, a file of this machine, or changes anything."""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import headrace as hr
from headrace import wiring
from headrace.adapters.http import guard
from headrace.adapters.http.guard import Guard
from headrace.adapters.http.operator_pages import operator_pages
from headrace.adapters.http.server import HttpServer
from headrace.cli.operator_view import OperatorView
from headrace.cli.targets import Target
from headrace.errors import UnavailableError
from headrace.wiring.job_endpoint import LOOPBACK
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from operations import raw_requests
from operations.raw_requests import SCRIPT, served

REQUESTS = int(os.environ.get("HEADRACE_TEST_REQUESTS", "2000"))  # `make soak`: ten thousand
SECRET = "hunter2-of-the-tests"


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> OperatorView:
    folder = tmp_path_factory.mktemp("operations")
    places = {"system": f"log:{folder / 'log'}", "local_store_dir": str(folder / "stores"), "state_uri": str(folder / "state")}
    app = hr.App("shop", config={**places, "kafka.sasl.password": SECRET, "dead_letter_stream": "bad"})
    given = app.stream("in", key=hr.String(), value=hr.String()).group_by_key()
    given.count(store="counts").to_stream().to("out")
    numbers = app.stream("numbers", key=hr.Long(), value=hr.String()).filter(lambda one: 1 // len(one.value) > 0).group_by_key()
    numbers.count(store="by-number")
    numbers.windowed_by(hr.Tumbling("1 hour")).count(store="per-hour")
    with hr.open_system(f"log:{folder / 'log'}") as log:
        for stream, partitions in (("in", 2), ("out", 1), ("numbers", 2), ("bad", 1)):
            log.create_stream(stream, partitions)
        log.produce("in", [(SCRIPT, "v"), ("k1", "v")], key=hr.String(), value=hr.String())
        log.produce("numbers", [(0, "v"), (1, "v"), (2, "")], key=hr.Long(), value=hr.String())
    wiring.start(app, until="caught-up", engine=InlineEngine(run_container)).wait(30)
    return OperatorView(Target("shop", wiring.config_of(app), app))


def client_of(view: OperatorView, token: str | None = None) -> TestClient:
    return TestClient(Guard(operator_pages(view)[0], LOOPBACK, token), "http://localhost", raise_server_exceptions=False)


class Looking(OperatorView):
    """Changes are allowed, and all that is done for one is done but the last step."""

    def change(self, what: str, given: Mapping[str, Any], *, is_wanted: bool) -> dict[str, Any]:
        return super().change(what, given, is_wanted=False)


def stored(view: OperatorView) -> Any:
    config, streams = view._target.config, ("in", "numbers", "bad")
    with wiring.open_configured(config) as system:
        metadata = system.metadata_store("shop")
        kept = [dict(metadata.requests(one)) for one in ("startpoints", "scales", "partition-checks")]
        held = [(system.describe_stream(one), system.high_watermarks(one)) for one in streams]
        return kept, metadata.all("dead-letters"), held


def test_no_generated_request_breaks_tells_or_changes_anything(view: OperatorView) -> None:
    draw, before, folder = random.Random(9), stored(view), str(Path(view._target.config.system).parent).removeprefix("log:")
    stops, counts = list[bool](), Counter[tuple[bool, int]]()
    looking = Looking(view._target, allow_changes=True, stop=lambda: stops.append(True))
    with served(view) as closed, served(looking) as allowing:
        for _ in range(REQUESTS):
            port, data = draw.choice([closed, allowing]), raw_requests.request(draw)
            if b"/events" in data:  # answered for as long as somebody listens: see below
                continue
            answer = raw_requests.sent(port, data)
            if answer is None:
                counts[port == allowing, 0] += 1
                continue
            counts[port == allowing, answer.status] += 1
            assert answer.status < 500 or answer.status == 503, (data[:2_000], answer)
            assert SECRET not in answer.body and folder not in answer.body, (data[:2_000], answer)
            if not answer.is_of_the_server:
                policy = answer.headers.get("content-security-policy", "")
                assert policy.startswith("default-src 'none'"), (data[:2_000], answer)
            assert SCRIPT not in answer.body or "text/html" not in answer.headers["content-type"], (data[:2_000], answer)
    for is_allowing in (False, True):
        statuses = {status for allowing_, status in counts if allowing_ == is_allowing}
        assert {200, 400, 403, 404, 405, 413, 414} <= statuses, counts
    answered = sum(count for (_, status), count in counts.items() if status)
    assert answered > REQUESTS * 0.9, counts
    assert stored(view) == before and not stops


@pytest.mark.parametrize("size", raw_requests.TOO_LARGE)
@pytest.mark.parametrize("path", ["api/preview/startpoint", "api/change/none", "state/counts", "none"])
def test_a_body_that_does_not_say_how_long_it_is_has_the_same_bound(view: OperatorView, size: int, path: str) -> None:
    head = f"POST /{path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n".encode()
    with served(view) as port:
        answer = raw_requests.sent(port, head + raw_requests.chunked(b"x" * size, 50_000))
    assert answer is not None and answer.status == 413 and "at most 65536 bytes" in answer.body


def test_a_body_that_does_not_come_is_not_waited_for(view: OperatorView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.1)
    head = b"POST /api/preview/none HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{"
    with served(view) as port:
        answer = raw_requests.sent(port, head)
    assert answer is not None and answer.status == 408


@pytest.mark.parametrize("limit", ["0", "000001" + "9" * 5_000, "0000100000", "1001", "-1", "1e2", "\u0663", ""])
def test_no_more_of_a_store_is_read_than_one_answer_may_have(view: OperatorView, limit: str) -> None:
    answer = client_of(view).get("/state/counts", params={"limit": limit})
    assert (answer.status_code, answer.json()["error"]) == (400, "limit: expected 1 to 1000")


def test_an_error_of_the_system_is_no_mistake_of_ours(view: OperatorView, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is answered by the guard, with its headers: not by the library below it."""

    def picture() -> str:
        raise UnavailableError("kafka://host does not answer; its key is in /srv/secret.pem")

    monkeypatch.setattr(view, "picture", picture)
    answer = client_of(view).get("/api/picture")
    assert answer.status_code == 503 and "the log of this server" in answer.json()["error"]
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


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
    assert refused.status_code == 400 and "application 'shop' does not run" in refused.json()["error"]


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
    read = [at for one in answer.json()["as_of"] for ssp, at in one["positions"].items() if ssp.startswith("in/")]
    assert sum(read) == 2, "any producer may have put it into any partition: both had been read"
    found = client_of(view).get("/state/counts?limit=1").json()
    assert len(found["rows"]) == 1 and not found["is_whole"]
    assert [row["key"] for row in client_of(view).get("/state/counts?from=k&to=l").json()["rows"]] == ["k1"]
    assert client_of(view).get("/state/nothing/k1").status_code == 400
    assert client_of(view).get("/state/counts/%ff%fe").status_code == 400, "no key is read out of what is no text"


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
