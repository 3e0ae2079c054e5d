"""Every error that Headrace raises on purpose: one root, one class for each thing that a caller can act on. An error's text has
up to three parts: what is wrong (the thing, what was expected, what was found), and a hint that says what to do. A bug
of our own is an `assert`; where it would show only in what another process gives or stores, an error with the hint `DEFECT`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable

from headrace.terminal_text import indented, safe_text

PACKAGE_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep  # a frame of a file below it is ours, not the user's
DEFECT = "this is a defect of Headrace: report it; docs/failures.md says what a report needs"
_ALIKE = 0.7  # of all letters; at less, words are taken for each other that only share an ending


class HeadraceError(Exception):
    """The root of all errors that Headrace raises on purpose. `about`: the ids of the requests that cannot be done."""

    about: tuple[str, ...] = ()

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """For people: message and hint, of which a terminal obeys nothing."""
        return safe_text(self.message if self.hint is None else f"{self.message}\n  hint: {indented(self.hint)}")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuilt, (type(self), self.__dict__ | {"args": self.args}))


def _rebuilt(kind: type[HeadraceError], fields: dict[str, object]) -> HeadraceError:
    error = kind.__new__(kind)
    error.args = fields.pop("args")  # type: ignore[assignment]
    error.__dict__.update(fields)
    return error


# --- the caller's side: a program or a setting is wrong --------------------------------------------------------------


class ConfigError(HeadraceError):
    """A configuration key is unknown, or its value is not what the key takes."""


class InvalidNameError(HeadraceError):
    """The name of a stream, store, application or operator is not allowed."""


class TopologyError(HeadraceError):
    """The operators of an application do not fit together."""


class AppLoadError(HeadraceError):
    """The file of an application cannot be loaded, or holds no application. `user_traceback` is what its own code raised,
    from its first line on; empty where it raised nothing."""

    def __init__(self, message: str, hint: str | None = None, *, user_traceback: str = "") -> None:
        super().__init__(message, hint)
        self.user_traceback = user_traceback


class SchemaError(HeadraceError):
    """A DDL string or a type given to a serde cannot be understood."""


class NotSupportedError(HeadraceError):
    """The request is known, but cannot be done here."""


class SetupError(HeadraceError):
    """The machine lacks something that Headrace needs: Java, Python, a folder that can be written."""


class ArtifactError(SetupError):
    """A jar that Headrace needs cannot be fetched, or is not the one that was pinned."""


# --- records --------------------------------------------------------------------------------------------------------


class SerdeError(HeadraceError):
    """A key or value could not be encoded or decoded."""


class RecordError(HeadraceError):
    """One record could not be processed, and no dead-letter stream is set; nothing of its round was committed. `stream`,
    `partition` and `offset` name the record; `error_class` and `error_message` say what was raised."""

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        *,
        stream: str,
        partition: int,
        offset: int,
        error_class: str,
        error_message: str,
        user_traceback: str = "",
    ) -> None:
        super().__init__(message, hint)
        self.stream, self.partition, self.offset = stream, partition, offset
        self.error_class, self.error_message, self.user_traceback = error_class, error_message, user_traceback

    def __str__(self) -> str:
        return _behind(self.user_traceback, super().__str__())


class OutOfRangeError(HeadraceError):
    """A number or a time of a record is beyond what can be kept: 64 bits, a float's range, the years 1 to 9999."""


class RecordTooLargeError(HeadraceError):
    """A record is larger than the system takes."""


class CallTimeoutError(HeadraceError, TimeoutError):
    """The call of an async function for a record did not end within its `timeout`, in none of its tries."""


# --- stored things --------------------------------------------------------------------------------------------------


class StreamNotFoundError(HeadraceError):
    """A stream that is named does not exist."""


class StreamExistsError(HeadraceError):
    """A stream that was to be created exists already, or exists in another shape."""


class OffsetOutOfRangeError(HeadraceError):
    """A position lies outside what a stream holds."""


class StorageError(HeadraceError):
    """A stored file or catalog is missing, damaged or cannot be reached."""


class UnavailableError(StorageError):
    """A system does not answer. It may recover: a running job waits for a while."""


class StateError(HeadraceError):
    """The state of a task cannot be read or rebuilt."""


class StoreDamagedError(StateError):
    """A local store holds other bytes than were written. It is a cache: opened again, it is rebuilt from its files."""


class DiskFullError(StateError):
    """The disk of a local store is full."""


class StartpointError(HeadraceError, ValueError):
    """A startpoint has a field of a wrong type or value; or one that is named is not there, or is done with: it cannot be
    changed any more."""


class IncompatibleChangeError(HeadraceError):
    """The application was edited in a way that its stored state or positions cannot follow."""


# --- the life of a job ----------------------------------------------------------------------------------------------


class JobHeldError(HeadraceError):
    """Another driver holds this application."""


class FencedError(HeadraceError):
    """A newer driver or job model took over; this one must stop and changed nothing."""


class RoundFailedError(HeadraceError):
    """A round failed again and again; what is committed stays. `user_traceback`: of what was raised in a container and is
    no error of Headrace's; else empty."""

    def __init__(self, message: str, hint: str | None = None, *, user_traceback: str = "") -> None:
        super().__init__(message, hint)
        self.user_traceback = user_traceback

    def __str__(self) -> str:
        return _behind(self.user_traceback, super().__str__())


class EndlessTimersError(RoundFailedError):
    """The timers of a key set timers that are due at once, again and again: another try of the round would do the same."""


class RegistryError(HeadraceError):
    """A schema registry does not answer, or refuses what it was asked; no record is at fault."""


class WaitTimeoutError(HeadraceError, TimeoutError):
    """Something that was waited for did not come within its bound."""


def _behind(trace: str, text: str) -> str:
    """The text of an error behind its traceback, if it has one."""
    return f"{safe_text(trace.rstrip())}\n\n{text}" if trace else text


def hint_of_missing(name: str, names: Iterable[str], create: str) -> str:
    """The hint for a name that does not exist: the names like it, and how to create it, which `create` says.

    >>> hint_of_missing("flight", ["flights", "sales"], "create it first")
    "did you mean 'flights'? Or create it first"
    >>> hint_of_missing("lines", ["sales"], "create it first")
    'create it first'
    """
    near = difflib.get_close_matches(name, sorted(names), 3, _ALIKE)
    return f"did you mean {' or '.join(map(repr, near))}? Or {create}" if near else create
