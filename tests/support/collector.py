"""A collector of spans for tests: OpenTelemetry's protocol, over HTTP on loopback."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """A collector for OTLP over HTTP on loopback; `spans`: all that it has got."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        mine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
                for one in sent.resource_spans:
                    mine.services |= {kv.value.string_value for kv in one.resource.attributes if kv.key == "service.name"}
                    mine.spans += [span for scope in one.scope_spans for span in scope.spans]
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *given: Any) -> None:
                """Nothing on the terminal."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def facts_of(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
