"""The folder of fetched jars: what is there, whether it is what was pinned, and how it gets there.

A jar is in the folder whole or not at all: it is fetched into a folder beside, checked, and renamed. Processes that
need jars at the same time take turns by a lock on a file, which the system frees when its holder dies; the second one
finds what the first fetched. With all jars there no process is started, and no network used.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.adapters.artifacts import ivy
from headrace.adapters.artifacts.pins import Artifacts, Pin
from headrace.environment import cache_folder, checked_folder
from headrace.errors import ArtifactError, WaitTimeoutError

Tell = Callable[[str], None]
Fetch = Callable[[Sequence[Pin], Path], None]

LOCK_S_MAX = ivy.FETCH_S_MAX + 60
_LOCK_POLL_S = 0.1
_FETCH_PREFIX = ".fetch-"


@dataclass(frozen=True, slots=True)
class JarState:
    """One pinned jar as it is in the folder: `found` is the SHA-256 of what lies there, None if nothing does."""

    pin: Pin
    path: Path
    found: str | None

    @property
    def is_right(self) -> bool:
        return self.found == self.pin.sha256


def folder_of(artifact_dir: str | None, environ: Mapping[str, str]) -> Path:
    """The folder that the key `artifact_dir` names, else `headrace/jars` in the user's cache folder."""
    if artifact_dir:
        return Path(artifact_dir).expanduser().absolute()
    return cache_folder(environ) / "jars"


def states_of(artifacts: Artifacts, folder: Path) -> tuple[JarState, ...]:
    """Each jar as it is now; changes nothing."""
    return tuple(JarState(pin, folder / pin.file_name, _sha256_of(folder / pin.file_name)) for pin in artifacts.pins)


def jars_of(
    artifacts: Artifacts, folder: Path, tell: Tell, *, settings_file: Path | None = None, fetch: Fetch | None = None
) -> tuple[Path, ...]:
    """The paths of all jars of `artifacts`, checked; those that are missing are fetched first, which `tell` reports.
    `ArtifactError` if a jar cannot be fetched or is not the one that was pinned, `SetupError` if the folder cannot be
    written or Java is missing, `WaitTimeoutError` if another process fetches for too long."""
    states = states_of(artifacts, folder)
    if not all(state.is_right for state in states):
        checked_folder(folder, "fetched jars")
        with _turn(folder, tell):
            for left in folder.glob(f"{_FETCH_PREFIX}*"):  # by a process that was killed: no other one fetches now
                shutil.rmtree(left, ignore_errors=True)
            # looked at again: the process that had its turn before may have fetched them
            states = states_of(artifacts, folder)
            for state in states:
                if state.found is not None:
                    _check(state.pin, state.path, state.found)
            missing = [state.pin for state in states if state.found is None]
            if missing:
                tell(f"fetching {artifacts.title} ({len(missing)} jars) into {folder}, this once")
                with tempfile.TemporaryDirectory(dir=folder, prefix=_FETCH_PREFIX) as name:
                    fetched = Path(name)
                    (fetch or functools.partial(ivy.fetch, settings_file=settings_file))(missing, fetched)
                    for pin in missing:
                        _check(pin, fetched / pin.file_name, _sha256_of(fetched / pin.file_name))
                    for pin in missing:
                        (fetched / pin.file_name).rename(folder / pin.file_name)
    return tuple(state.path for state in states)


def _check(pin: Pin, path: Path, found: str | None) -> None:
    if found != pin.sha256:
        raise ArtifactError(
            f"{path} is not the jar {pin} that was pinned: expected SHA-256 {pin.sha256}, found {found or 'no file'}",
            "delete the file to have it fetched again; if that does not help, the repository that this machine asks "
            "serves another file under this name, which should not be trusted",
        )


@contextmanager
def _turn(folder: Path, tell: Tell) -> Iterator[None]:
    with (folder / ".lock").open("a") as lock:
        give_up, is_reported = time.monotonic() + LOCK_S_MAX, False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise WaitTimeoutError(
                        f"another process has been fetching into {folder} for more than {LOCK_S_MAX} seconds",
                        "end that process and try again",
                    ) from None
            if not is_reported:
                tell(f"waiting for another process that fetches into {folder}")
                is_reported = True
            time.sleep(_LOCK_POLL_S)
        yield


def _sha256_of(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None
