"""Where a job keeps on this machine what is not in its system, and how commands write a file: one definition each.

Whether workers see the folder of the state that the driver sees is tried, not believed: state that a worker writes to a folder
of its own machine is lost to all others, and no commit would notice."""

from __future__ import annotations

import errno
import os
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from headrace.config.loading import Config
from headrace.environment import write_advice, write_refusal
from headrace.errors import SetupError, StateError, UnavailableError
from headrace.wiring.worker.location import local_folder_of

if TYPE_CHECKING:
    from headrace.state_files.files import StateFiles

OWNER_OF_LOG = "log"  # a log has one application of a name
_SHOWN_MAX = 200
_WRITER_S, _LOOK_S = 5.0, 0.05
_FIRST_BYTES = 65_536


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to be written aside and renamed: `path` is there whole then, or as it was before. `SetupError` names it. What is
    there and is no ordinary file, such as /dev/null or a pipe, is written to as it is."""
    try:
        if path.is_dir() or not path.name:
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if path.exists() and not path.is_file():
            handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # a pipe that no process reads is an error, and no wait
            os.set_blocking(handle, True)
            with open(handle, "wb") as file:
                yield file
            return
        aside = path.with_name(f".{uuid.uuid4().hex[:16]}")
        try:
            with aside.open("wb") as file:
                yield file
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # a name with a null in it is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise SetupError(f"{_shortened(path)} cannot be written: {reason}", "name a file in a folder that exists") from None


def bytes_of_file(path: Path, most: int) -> bytes:
    """What is in a file, or comes through a pipe. `SetupError` for one that cannot be read or holds more than `most` bytes,
    such as a device without an end, and for a pipe that no process writes to."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            first = _first_of_pipe(handle) if stat.S_ISFIFO(os.fstat(handle).st_mode) else b""
            os.set_blocking(handle, True)
            data = first + file.read(most + 1)
    except (OSError, ValueError) as error:  # a name with a null in it is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise SetupError(f"{_shortened(path)} cannot be read: {reason}", "name a file that is there") from None
    if len(data) > most:
        raise SetupError(f"{_shortened(path)} is larger than {most:,} bytes", "name another file")
    return data


def _first_of_pipe(pipe: int) -> bytes:
    """What the pipe gives first, b"" if that is still to come. Without a writer a pipe is at its end at once: one is waited
    for a moment."""
    until_s = time.monotonic() + _WRITER_S
    while time.monotonic() < until_s:
        try:
            if data := os.read(pipe, _FIRST_BYTES):
                return data
        except BlockingIOError:  # a writer is there
            return b""
        time.sleep(_LOOK_S)
    raise OSError(errno.EPIPE, "no process writes to this pipe")


def _shortened(path: Path) -> str:
    text = str(path)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def work_folder(config: Config) -> Path:
    """Where rounds leave what their Spark tasks tell each other: in the log's folder, or beside the local stores."""
    return log_folder_of(config) or _beside_stores(config)


def state_uri_of(config: Config) -> str:
    """Where state is kept, by a name that is the same wherever it is used: `state_uri`, by default `.headrace/state` beside
    the log's folder, or beside the local stores."""
    given, log = config.state_uri, log_folder_of(config)
    if not given:
        return str((_beside_stores(config) if log is None else log.parent / ".headrace") / "state")
    return given if ":" in given.partition("/")[0] else str(Path(given).absolute())


def local_store_dir_of(config: Config, is_elsewhere: bool = False) -> str:
    """Where the local stores are on this machine; `is_elsewhere`: as each machine of a cluster is to read it."""
    return config.local_store_dir if is_elsewhere else str(Path(local_folder_of(config.local_store_dir)).absolute())


def log_folder_of(config: Config) -> Path | None:
    """The folder of an embedded log; None for another system."""
    scheme, _, folder = config.system.partition(":")
    return Path(folder).expanduser().absolute() if scheme == "log" else None


def _beside_stores(config: Config) -> Path:
    given = Config().local_store_dir if config.local_store_dir.startswith("env:") else config.local_store_dir
    return Path(given).absolute().parent


def sign(folder: StateFiles, application: str, run_id: str, owner: str, setting: str = "state_uri") -> None:
    """Leave in a folder, which `setting` names, that this run works there now, in place of the runs before of the same `owner`:
    the id of a state, or `OWNER_OF_LOG`. Applications of one name on other systems have signs of their own there, which stay.
    `StateError` where it cannot be written."""
    mine = _sign_of(application, run_id)
    try:
        folder.write_note(mine, owner)
    except OSError as error:
        found = _said_of(folder, error)
        raise StateError(f"{setting} {folder.uri} cannot be written: {found}", write_advice(error)) from None
    with suppress(OSError):  # the next start deletes what stays
        for name in folder.list(_signs_of(application)):
            if name != mine and _note_in(folder, name) == owner:
                folder.delete(name)


def _note_in(folder: StateFiles, name: str) -> str:
    try:
        return folder.note(name)
    except OSError:  # of an application on another system, say, which another user runs
        return ""


def _said_of(files: StateFiles, error: OSError) -> str:
    local = files.local_path("")
    return str(error) if local is None else write_refusal(error, local)


def is_signed(folder: StateFiles, application: str, run_id: str) -> bool:
    """Whether a folder has the sign of the run. `OSError` where that cannot be read."""
    return folder.note(_sign_of(application, run_id)) != ""


def check_sign(files: StateFiles, application: str, run_id: str, host: str, *, in_group: bool = False) -> None:
    """`StateError` where the folder is another one than that in which the driver of the run, or the first leader of a group's,
    has left its sign; `UnavailableError` where it cannot be read."""
    alone, group = ("the driver", "the driver and all workers"), ("the leader of the group", "all processors")
    signer, users = group if in_group else alone
    try:
        is_shared = is_signed(files, application, run_id)
    except OSError as error:
        reason = _said_of(files, error)
        raise UnavailableError(
            f"state_uri {files.uri} cannot be read on host {host}: {reason}",
            f"set `state_uri` to a folder that {users} share, and may read and write",
        ) from None
    if not is_shared:
        raise StateError(
            f"state_uri {files.uri}: on host {host} this is not the folder that {signer} writes to",
            f"set `state_uri` to a folder that {users} share",
        )


def _signs_of(application: str) -> str:
    return f".runs-of-{application}"


def _sign_of(application: str, run_id: str) -> str:
    return f"{_signs_of(application)}/{run_id}"
