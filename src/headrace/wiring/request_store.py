"""Opening `startpoint_metadata_store`: another system, or a user's class, that keeps requests for startpoints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.config.loading import Config
from headrace.driver.request_copies import RequestsElsewhere
from headrace.errors import HeadraceError
from headrace.ports import MetadataStore, System
from headrace.wiring import opened_system
from headrace.wiring.user_metadata_store import is_users_own, users_store


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A store that is open, and the system that it is of; of a user's class there is none."""

    store: MetadataStore
    name: str
    close: Callable[[], None]
    system: System | None = None


def open_elsewhere(config: Config, application: str, wait_s: float | None = None) -> Elsewhere | None:
    """What the key names, with the job's own `kafka.*` settings; None where nothing is configured. Errors name the key."""
    chosen = config.startpoint_metadata_store
    if chosen is None or chosen == config.system:
        return None
    if is_users_own(chosen):
        with _importable(Path.cwd()):
            store = users_store(chosen, application)
        return Elsewhere(store, store.name, store.close)
    patience = {} if wait_s is None else {"wait.s": str(wait_s)}
    try:
        system = opened_system(chosen, kafka={**patience, **config.kafka})
    except HeadraceError as error:
        raise type(error)(f"startpoint_metadata_store = {chosen!r}: {error.message}", error.hint) from error
    return Elsewhere(system.metadata_store(application), chosen, system.close, system)


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """The modules of a folder can be imported too, behind all others: a command without the application's file knows it as the
    place of `headrace.toml`."""
    place = str(folder)
    if place in sys.path:
        yield
        return
    sys.path.append(place)
    try:
        yield
    finally:
        sys.path.remove(place)


@contextmanager
def metadata_elsewhere(config: Config, application: str, wait_s: float | None = None) -> Iterator[MetadataStore | None]:
    """The application's metadata store there, for a `StartpointManager`; None where none is configured."""
    opened = open_elsewhere(config, application, wait_s)
    if opened is None:
        yield None
        return
    try:
        yield opened.store
    finally:
        opened.close()


def requests_elsewhere(
    config: Config, application: str, closers: list[Callable[[], None]]
) -> RequestsElsewhere | None:
    """For a driver; looked at once, so that a store that cannot be reached is refused before anything is held.

    What closes it is put at the end of `closers`, whose last is called first.
    """
    opened = open_elsewhere(config, application)
    if opened is None:
        return None
    closers.append(opened.close)
    requests = RequestsElsewhere(opened.store, opened.name)
    requests.requests()
    closers.append(requests.close)
    if opened.system is not None:
        closers.append(opened.system.job_store(application).expedite)  # a thread that waits for it now need not wait long
    return requests
