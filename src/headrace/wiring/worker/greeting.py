"""What a worker process of an executor says of the machine that it is on: asked once, when the executor appears."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path

from headrace.core.affinity.admission import Admission, WorkerAnswer
from headrace.environment import VERSION, checked_folder
from headrace.errors import HeadraceError
from headrace.state_files.files import StateFiles
from headrace.wiring.folders import is_signed
from headrace.wiring.worker.location import local_folder_of, location_of

_MOUNTS = "/proc/self/mountinfo"
_OCTAL = re.compile(r"\\([0-7]{3})")


def versions_here() -> dict[str, str]:
    """What driver and executors must have in common. Of Python the minor version counts."""
    from headrace.adapters.spark.questions import PYSPARK_VERSION

    return {"Headrace": VERSION, "PySpark": PYSPARK_VERSION, "Python": f"{sys.version_info.major}.{sys.version_info.minor}"}


def answer_to(admission: Admission) -> WorkerAnswer:
    """What is so on this machine of what an application asks."""
    location, location_error = "", ""
    try:
        location = location_of(admission.location_id)
    except HeadraceError as error:
        location_error = f"{error.message}: {error.hint}" if error.hint else error.message
    except Exception as error:  # a user's provider
        location_error = f"location_id {admission.location_id}: {type(error).__name__}: {error}"
    store_error, is_state_signed, state_error, file_system = "", False, "", ""
    if admission.state_uri is not None:
        store_error, file_system = _stores_there(admission.local_store_dir)
        try:
            is_state_signed = is_signed(StateFiles(admission.state_uri), admission.application, admission.run_id)
        except (HeadraceError, OSError) as error:
            state_error = str(getattr(error, "message", error))
    return WorkerAnswer(
        socket.gethostname(),
        location,
        location_error,
        versions_here(),
        store_error,
        file_system,
        is_state_signed,
        state_error,
        admission.log_folder is not None and _is_log_signed(admission.log_folder, admission),
    )


def _stores_there(given: str) -> tuple[str, str]:
    """Why the folder of the local stores cannot be used, or the type of the file system that it is on."""
    try:
        folder = checked_folder(local_folder_of(given), "the local stores")
    except HeadraceError as error:
        return error.message, ""
    return "", file_system_of(folder, _mounts())


def _is_log_signed(folder: str, admission: Admission) -> bool:
    try:
        return is_signed(StateFiles(folder), admission.application, admission.run_id)
    except OSError:
        return False


def _mounts() -> str:
    try:
        return Path(_MOUNTS).read_text(errors="replace")
    except OSError:
        return ""


def file_system_of(path: Path, mounts: str) -> str:
    """The type of the file system that a folder is on, by the lines of /proc/self/mountinfo; empty where they do not say.

    >>> mounts = "20 1 8:1 / / rw - ext4 /dev/sda rw\\n30 20 0:9 / /mnt/a\\\\040b rw shared:1 - nfs4 host:/b rw\\n"
    >>> file_system_of(Path("/mnt/a b/stores"), mounts), file_system_of(Path("/mnt/a"), mounts)
    ('nfs4', 'ext4')
    """
    found, folder = "", os.path.realpath(path)
    longest = -1
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) < 5 or not kinds:
            continue
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        is_above = folder == point or folder.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= longest:  # of two at one place the later one covers the other
            found, longest = kinds[0], len(point)
    return found
