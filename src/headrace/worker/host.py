"""The machine that a worker runs on, as that machine says itself. The driver may be on another one."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from headrace.adapters.common import lease_holder as holders


@dataclass(frozen=True, slots=True)
class WorkerHost:
    """`boot_id`: a text that is new each time the machine starts; `local_store_dir`: where it keeps the stores of tasks."""

    boot_id: str
    host: str
    local_store_dir: Path


def this_host(local_store_dir: str) -> WorkerHost:
    """The machine of this process."""
    return WorkerHost(holders.boot_id(), socket.gethostname(), Path(local_store_dir))
