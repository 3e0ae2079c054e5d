"""A schema registry on loopback, as far as a client needs one, that can be told to misbehave."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class FakeRegistry:
    """`subjects` has the ids of each subject in order; `failing` is a status for every answer, `slow_s` a wait before it."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.failing: int | None = None
        self.slow_s = 0.0
        self.password: str | None = None
        self.requests: list[str] = []
        self.url = ""

    def register(self, subject: str, body: dict[str, Any]) -> int:
        kept = {"schema": body["schema"], "schemaType": body.get("schemaType", "AVRO")}
        kept["references"] = body.get("references") or []
        found = next((number for number, each in self.schemas.items() if each == kept), None)
        number = found or len(self.schemas) + 1
        self.schemas[number] = kept
        if number not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(number)
        return number

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        steps = [unquote(step) for step in urlsplit(path).path.strip("/").split("/")]
        if steps[:2] == ["schemas", "ids"]:
            found = self.schemas.get(int(steps[2]))
            return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
        ids = self.subjects.get(steps[1], [])
        if method == "POST" and steps[2:] == ["versions"]:
            return 200, {"id": self.register(steps[1], body)}
        if method == "POST":
            wanted = {"schema": body["schema"], "schemaType": body.get("schemaType", "AVRO")}
            for number in ids:
                if {key: self.schemas[number][key] for key in wanted} == wanted:
                    return 200, self._version(steps[1], number)
            return 404, {"error_code": 40403, "message": "Schema not found"}
        at = len(ids) if steps[3] == "latest" else int(steps[3])
        if not 1 <= at <= len(ids):
            return 404, {"error_code": 40401, "message": "Subject not found"}
        return 200, self._version(steps[1], ids[at - 1])

    def _version(self, subject: str, number: int) -> dict[str, Any]:
        version = self.subjects[subject].index(number) + 1
        return {"subject": subject, "id": number, "version": version, **self.schemas[number]}


@contextmanager
def running() -> Iterator[FakeRegistry]:
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            registry.requests.append(f"{self.command} {self.path}")
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            time.sleep(registry.slow_s)
            given = self.headers.get("Authorization", "")
            if registry.password is not None and registry.password not in base64.b64decode(given.partition(" ")[2]).decode():
                status, answer = 401, {"error_code": 401, "message": f"Unauthorized: {given}"}
            elif registry.failing is not None:
                status, answer = registry.failing, {"error_code": registry.failing, "message": "told to fail"}
            else:
                status, answer = registry.answer(self.command, self.path, body)
            data = json.dumps(answer).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                pass  # the client did not wait

        do_GET = do_POST = handle_any  # noqa: N815 - names of the standard library

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
