"""Where the process of a job answers for it: its metrics, and whether it lives and works."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

from headrace.core.metrics.series import Series, series_of
from headrace.driver.running_job import RunningJob
from headrace.errors import ConfigError, SetupError
from headrace.model.whole_numbers import whole_number_of

LOG = logging.getLogger("headrace")
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_HINT = "expected HOST:PORT, or a port from 1 to 65535, such as 127.0.0.1:9404"


class JobEndpoint:
    """Answers from the beginning of a start to the end of the job: `show` says which job it is. `ConfigError` for what is no
    address, `SetupError` for one that cannot be had, or where a library is missing."""

    def __init__(self, address: str, application: str, log: Callable[[str], None] | None) -> None:
        host, port = host_and_port(address, "metrics_address")
        try:
            from headrace.adapters.http.guard import Guard
            from headrace.adapters.http.job_pages import job_pages
            from headrace.adapters.http.server import HttpServer
        except ModuleNotFoundError as error:
            raise SetupError(f"metrics_address needs {error.name}", "pip install 'headrace[http]'") from None
        self._application = application
        self._job: RunningJob | None = None
        pages = Guard(job_pages(self._series, self._ended_by, self._waits_for), names_of(host))
        self._server = HttpServer(pages, host, port, "metrics_address").start()
        (log or LOG.info)(f"metrics and health are at {self._server.url}/metrics, /live and /ready")

    def show(self, job: RunningJob) -> None:
        """From now on it is answered of this job, until that ends."""
        self._job = job

    def close(self) -> None:
        self._server.close()

    @property
    def url(self) -> str:
        return self._server.url

    def _series(self) -> Sequence[Series]:
        return () if self._job is None else series_of(self._application, self._job.measured)

    def _ended_by(self) -> str:
        return "" if self._job is None or self._job.is_running else "the job has ended"

    def _waits_for(self) -> str:
        return "the start of the job" if self._job is None else waits_for(self._job.status())


def waits_for(status: Any) -> str:
    """What a job, or a processor of a group, waits for before it processes all that it is to; empty where it does."""
    if status.get("waiting_for"):
        return str(status["waiting_for"])
    stopped = sorted(name for name, sub in status.get("sub_topologies", {}).items() if sub.get("stopped_by"))
    return f"sub-topologies that have stopped: {', '.join(stopped)}" if stopped else ""


def host_and_port(text: str, name: str) -> tuple[str, int]:
    """Of an address of this machine; a port alone is one of the loopback address.

    >>> host_and_port("9404", "metrics_address"), host_and_port("[::1]:80", "x")
    (('127.0.0.1', 9404), ('::1', 80))
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else "127.0.0.1"
    number = whole_number_of(port, 65_535)
    if not host or not number:
        raise ConfigError(f"{name} {text!r} is no address", _HINT)
    return host, number


def names_of(host: str) -> frozenset[str]:
    """Under which names requests may ask for a server at `host`."""
    return LOOPBACK | {host} | (frozenset() if host in LOOPBACK else {socket.gethostname(), socket.getfqdn()})
