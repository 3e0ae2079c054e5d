"""Owns opening `startpoint_metadata_store`: another system that keeps an application's requests for startpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace.config import Config
from headrace.errors import HeadraceError
from headrace.ports import MetadataStore, System
from headrace.runtime.requests_elsewhere import RequestsElsewhere
from headrace.wiring import open_system


def open_elsewhere(config: Config, wait_s: float | None = None) -> Any:
    """The system, with the job's own `kafka.*` settings; None where none is configured. Errors name the key."""
    url = config.startpoint_metadata_store
    if url is None or url == config.system:
        return None
    patience = {} if wait_s is None else {"wait.s": str(wait_s)}
    try:
        return open_system(url, kafka={**patience, **config.kafka})
    except HeadraceError as error:
        raise type(error)(f"startpoint_metadata_store = {url!r}: {error.message}", error.hint) from error


@contextmanager
def metadata_elsewhere(config: Config, application: str, wait_s: float | None = None) -> Iterator[MetadataStore | None]:
    """The application's metadata store there, for a `StartpointManager`; None where none is configured."""
    system = open_elsewhere(config, wait_s)
    if system is None:
        yield None
        return
    with system:
        yield system.metadata_store(application)


def requests_elsewhere(
    config: Config, application: str, closers: list[Callable[[], None]]
) -> RequestsElsewhere | None:
    """For a driver; looked at once, so that a store that cannot be reached is refused before anything is held.

    What closes it is put at the end of `closers`, whose last is called first.
    """
    system: System | None = open_elsewhere(config)
    if system is None:
        return None
    closers.append(system.close)
    requests = RequestsElsewhere(system.metadata_store(application), str(config.startpoint_metadata_store))
    requests.requests()
    closers.append(requests.close)
    closers.append(system.job_store(application).hurry)  # a thread that waits for it now need not wait long
    return requests
