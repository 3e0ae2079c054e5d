"""Opening `startpoint_metadata_store`: another system, or a user's class, that keeps requests for startpoints.

A user's is checked for what it has, and called so that its errors name it. Seeds: SEP-18 "StartpointManager"
(`task.startpoint.metadata.store.factory`), SEP-11 (`MetadataStore`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.config.loading import Config
from headrace.config.objects import PLACE, loaded
from headrace.core.job_plan.grouper_calls import named_errors
from headrace.driver.request_copies import RequestsElsewhere
from headrace.errors import ConfigError, HeadraceError, StorageError
from headrace.ports.metadata_store import MetadataStore
from headrace.ports.system import System
from headrace.wiring import opened_system

KEY = "startpoint_metadata_store"
METHODS = ("get", "all", "stamp", "request", "request_all", "requests", "withdraw")
_EXPECTED = (
    "a class (or a function) that is called with the application's name and gives an object with the methods of "
    f"hr.MetadataStore: {', '.join(METHODS)}"
)


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
    added = {str(folder)}.difference(sys.path)
    sys.path.extend(added)
    try:
        yield
    finally:
        for place in added:
            sys.path.remove(place)


@contextmanager
def metadata_elsewhere(config: Config, application: str, wait_s: float | None = None) -> Iterator[MetadataStore | None]:
    """The application's metadata store there, for a `StartpointManager`; None where none is configured."""
    opened = open_elsewhere(config, application, wait_s)
    try:
        yield None if opened is None else opened.store
    finally:
        if opened is not None:
            opened.close()


def requests_elsewhere(config: Config, application: str, closers: list[Callable[[], None]]) -> RequestsElsewhere | None:
    """For a driver; looked at once, so that a store that cannot be reached is refused before anything is held. What closes it
    is put at the end of `closers`, whose last is called first."""
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


def is_users_own(value: object) -> bool:
    """Whether the value of the key is a user's class and not the URL of a system."""
    return not isinstance(value, str) or (value.partition(":")[0] not in ("log", "kafka") and bool(PLACE.fullmatch(value)))


def users_store(value: object, application: str) -> UsersStore:
    """The store that a class, a function or `MODULE:NAME` makes for an application; an object that is one is taken as it is.
    `ConfigError` for what is none, and for what making it raises."""
    found = loaded(KEY, value, "a metadata store", _EXPECTED) if isinstance(value, str) else value
    name = value if isinstance(value, str) else getattr(found, "__qualname__", type(found).__qualname__)
    if isinstance(found, type) or _missing_of(found):
        if undefined := ", ".join(sorted(getattr(found, "__abstractmethods__", ()))):
            raise ConfigError(f"{KEY}: {name} is no metadata store: it does not define {undefined}", f"expected {_EXPECTED}")
        if not callable(found):
            raise ConfigError(f"{KEY}: {name} is no metadata store: it has no {_missing_of(found)[0]}", f"expected {_EXPECTED}")
        rule = ": it is called with the name of the application, in any process"
        with named_errors(ConfigError, f"{KEY}: {name}({application!r})", rule):
            found = found(application)
    if missing := _missing_of(found):
        raise ConfigError(f"{KEY}: what {name} gives is no metadata store: it has no {missing[0]}", f"expected {_EXPECTED}")
    return UsersStore(found, str(name))


def _missing_of(found: object) -> tuple[str, ...]:
    return tuple(method for method in METHODS if not callable(getattr(found, method, None)))


class UsersStore(MetadataStore):
    """A user's store, called with care: what it raises is a `StorageError` that names it, and so is a wrong answer."""

    def __init__(self, store: Any, name: str) -> None:
        self._store, self.name = store, name

    def get(self, namespace: str, key: str) -> bytes | None:
        found: bytes | None = self._called("get", lambda found: found is None or isinstance(found, bytes), namespace, key)
        return found

    def all(self, namespace: str) -> dict[str, bytes]:
        return dict(self._called("all", _is_by_id, namespace))

    def stamp(self) -> object:
        return self._call("stamp")

    def request(self, namespace: str, value: bytes) -> str:
        return str(self._called("request", lambda found: isinstance(found, str), namespace, value))

    def request_all(self, namespace: str, values: Sequence[bytes]) -> tuple[str, ...]:
        given = list(values)
        return tuple(self._called("request_all", lambda found: _is_texts(found, len(given)), namespace, given))

    def requests(self, namespace: str) -> dict[str, bytes]:
        return dict(self._called("requests", _is_by_id, namespace))

    def withdraw(self, namespace: str, ids: Collection[str]) -> None:
        self._call("withdraw", namespace, list(ids))

    def close(self) -> None:
        """Close it, if it can be closed."""
        if callable(getattr(self._store, "close", None)):
            self._call("close")

    def _call(self, method: str, *arguments: Any) -> Any:
        with named_errors(StorageError, f"metadata store {self.name}: {method}()"):
            return getattr(self._store, method)(*arguments)

    def _called(self, method: str, fits: Callable[[Any], bool], *arguments: Any) -> Any:
        found = self._call(method, *arguments)
        if not fits(found):
            raise StorageError(
                f"metadata store {self.name}: {method}() returned {found!r:.200}",
                f"see hr.MetadataStore.{method} for what it has to return",
            )
        return found


def _is_texts(found: object, count: int) -> bool:
    return isinstance(found, (tuple, list)) and len(found) == count and all(isinstance(one, str) for one in found)


def _is_by_id(found: object) -> bool:
    return isinstance(found, Mapping) and all(isinstance(k, str) and isinstance(v, bytes) for k, v in found.items())
