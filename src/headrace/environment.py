"""What runs here, and the checks of the machine: Java, packages of extras, folders that can be written. The Makefile checks
Python and Java in `sh`."""

from __future__ import annotations

import errno
import getpass
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from headrace.errors import SetupError

VERSION = "0.1.0"
JAVA_LEAST = 17
JAVA_ANSWER_S_MAX = 60  # a cold JVM on a busy machine takes seconds, not minutes

_JAVA_HINT = f"install Java {JAVA_LEAST} or newer (for instance openjdk-17-jre-headless or Temurin), or set JAVA_HOME to one"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_VERSION = re.compile(r'version "([^"]+)"')


def process_age_s() -> float | None:
    """For how long this process has run; None where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return None


class JavaFound(NamedTuple):
    """A Java that is new enough: the path of its `java`, and its version as it prints it."""

    path: Path
    version: str


def checked_java(environ: Mapping[str, str]) -> JavaFound:
    """The Java that Spark will start: that of JAVA_HOME if it is set, else the first `java` on PATH. `SetupError` if there is
    none, if it cannot be run, or if it is older than 17. JAVA_HOME is never ignored for another Java: Spark would take it all
    the same."""
    path, origin = _java_path(environ)
    text = _version_text(path, origin, environ)
    matched = _VERSION.search(text)
    version = matched[1] if matched else ""
    major = java_major(version)
    if major is None:
        raise SetupError(f"{path}{origin} does not report its Java version: {_first_line(text)}", _JAVA_HINT)
    if major < JAVA_LEAST:
        raise SetupError(f"{path}{origin} is Java {version}: Spark needs Java {JAVA_LEAST} or newer", _JAVA_HINT)
    return JavaFound(path, version)


def java_major(version: str) -> int | None:
    """The number that counts in a Java version, None if `version` is none.

    >>> java_major("1.8.0_392"), java_major("17.0.15"), java_major("21-ea"), java_major("25")
    (8, 17, 21, 25)
    """
    matched = re.match(r"(?:1\.)?(\d+)", version)  # up to Java 8 it was "1.8"
    return int(matched.group(1)) if matched else None


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where what can be made again is kept for this user."""
    base = environ.get("XDG_CACHE_HOME", "")
    # by its own rules, a path that is not absolute is to be ignored
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "headrace"


def checked_folder(path: Path | str, purpose: str, trial: bytes = b"") -> Path:
    """Make the folder `path` if it is absent and try it with a file that holds `trial`; gives its absolute path. `SetupError`
    naming path, purpose and the reason if it cannot be made or written. Nothing is left behind in it."""
    folder = Path(path).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".headrace-check-") as file:
            file.write(trial)
    except OSError as error:
        reason = write_refusal(error, folder)
        raise SetupError(f"folder {folder} for {purpose} cannot be written: {reason}", write_advice(error)) from None
    return folder


def write_refusal(error: OSError, folder: Path) -> str:
    """Why a folder of this machine, or a file in it, cannot be written; of a full disk with what is left of it."""
    if error.errno == errno.ENOSPC:
        return f"the disk is full{_left_at(folder)}"
    if error.errno == errno.EDQUOT:
        return "the disk is full for this user, whose quota is used up"
    # mkdir of a folder below a plain file says NotADirectory, of one that is a plain file FileExists
    if isinstance(error, (FileExistsError, NotADirectoryError)) and folder.is_file():
        return "it is a file"
    return error.strerror.lower() if error.strerror else str(error)


def write_advice(error: OSError) -> str:
    """What to do where a folder cannot be written."""
    if error.errno in DISK_FULL:
        return "make room there, or choose a folder on a larger disk"
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return "choose another folder: a file is where one is to be"
    return "choose another folder, or make this one writable for the user who runs Headrace"


def _left_at(folder: Path) -> str:
    """How much room is left on the disk of a folder, which may be absent; empty where that is not known."""
    try:
        found = os.statvfs(next(one for one in (folder, *folder.parents) if one.exists()))
    except OSError:
        return ""
    files = f" and {found.f_favail:,} files" if found.f_files else ""  # some file systems do not count them
    return f": it has room for {found.f_bavail * found.f_frsize / 1e6:,.1f} MB{files}"


def _java_path(environ: Mapping[str, str]) -> tuple[Path, str]:
    """The `java` to look at, and where it comes from as a text for messages."""
    home = environ.get("JAVA_HOME", "").strip()
    if home:
        path = Path(home) / "bin" / "java"
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise SetupError(f"JAVA_HOME is {home}, but there is no bin/java in it that can be run", _JAVA_HINT)
        return path, " (from JAVA_HOME)"
    found = shutil.which("java", path=environ.get("PATH", os.defpath))
    if found is None:
        raise SetupError("Java is missing: JAVA_HOME is not set and there is no java on PATH", _JAVA_HINT)
    return Path(found), ""


def _version_text(path: Path, origin: str, environ: Mapping[str, str]) -> str:
    """What `java -version` prints (it does so on the error stream; options in JAVA_TOOL_OPTIONS come before it)."""
    try:
        done = subprocess.run(
            [str(path), "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=JAVA_ANSWER_S_MAX,
            env={name: value for name, value in environ.items() if not name.startswith("HEADRACE_")},  # it needs none
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SetupError(f"{path}{origin} gave no answer to -version in {JAVA_ANSWER_S_MAX} seconds", _JAVA_HINT) from None
    except OSError as error:
        raise SetupError(f"{path}{origin} cannot be run: {error.strerror or error}", _JAVA_HINT) from None
    text = done.stderr + done.stdout
    if done.returncode != 0:
        # macOS has a stub at /usr/bin/java that only says where to get one
        raise SetupError(f"{path}{origin} does not run (status {done.returncode}): {_first_line(text)}", _JAVA_HINT)
    return text


def _first_line(text: str) -> str:
    return next((line.strip()[:200] for line in text.splitlines() if line.strip()), "it says nothing")


@contextmanager
def of_extra(extra: str, purpose: str) -> Iterator[None]:
    """Around the imports that an extra brings; `SetupError` naming the missing package and the extra."""
    try:
        yield
    except ImportError as error:
        missing = (error.name or str(error)).partition(".")[0]
        raise SetupError(
            f"{purpose} needs the package {missing}, which is not installed", f"pip install 'headrace[{extra}]'"
        ) from None


def this_user() -> str:
    """Who this process is, as `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
