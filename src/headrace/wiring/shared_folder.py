"""Whether workers see the folder of the state that the driver sees: tried, not believed. State that a worker writes to a folder
of its own machine is lost to all others, and no commit would notice."""

from __future__ import annotations

from headrace.errors import StateError
from headrace.state.files import StateFiles


def sign(files: StateFiles, application: str, run_id: str) -> None:
    """Leave in the folder which run writes there now. A remote file system needs no sign."""
    path = files.local_path(_name(application))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(run_id)


def check_sign(files: StateFiles, application: str, run_id: str, host: str) -> None:
    """`StateError` where the folder is another one than that in which the driver of the run has left its sign."""
    path = files.local_path(_name(application))
    try:
        found = run_id if path is None else path.read_text()
    except OSError:
        found = ""
    if found != run_id:
        raise StateError(
            f"state_uri {files.uri}: on host {host} this is not the folder that the driver writes to",
            "set `state_uri` to a folder that the driver and all workers share",
        )


def _name(application: str) -> str:
    return f".run-of-{application}"
