"""A server of pages in a thread of this process."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading

import uvicorn
from starlette.types import ASGIApp

from headrace.errors import SetupError

START_S, CLOSE_S = 10.0, 3.0
CONNECTIONS_MAX = 128


def _is_to_be_said(record: logging.LogRecord) -> bool:
    """Not that a request was cut short by the end of the server: who ends it knows."""
    is_cut = record.exc_info is not None and record.exc_info[0] is asyncio.CancelledError
    return not is_cut and not record.getMessage().startswith("Cancel ")


class HttpServer:
    """Answers at `host` and `port` (0: any that is free) from `start` to `close`. `title`: what asks for the address, for
    messages. `SetupError` where it cannot be had."""

    def __init__(self, app: ASGIApp, host: str, port: int, title: str) -> None:
        self._host, self._title = host, title
        self._socket = self._bound(host, port)
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        logging.getLogger("uvicorn.error").addFilter(_is_to_be_said)
        self._thread = threading.Thread(target=self._serve, name="headrace-http", daemon=True)

    def _bound(self, host: str, port: int) -> socket.socket:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            made = socket.socket(found[0], socket.SOCK_STREAM)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(found[4])
            made.listen(CONNECTIONS_MAX)
        except OSError as error:
            why = error.strerror or error
            raise SetupError(f"{self._title}: {host}:{port} cannot be had: {why}", "choose another port") from None
        return made

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        name = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{name}:{self.port}"

    def start(self) -> HttpServer:
        self._thread.start()
        return self

    def close(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        self._socket.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve([self._socket]))
