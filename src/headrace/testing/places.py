"""Where a driver that keeps nothing puts its files: in memory where that is possible.

What a job writes it makes durable, and on a disk each fsync costs milliseconds, of which a round has several. On a file
system in memory it costs nothing, so tests take the very same path.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_FREE_BYTES_MIN = 512 * 1024 * 1024  # containers often have 64 MB there, which a larger test would fill


def new_folder() -> Path:
    """A new, private folder."""
    return Path(tempfile.mkdtemp(prefix="headrace-test-", dir=_MEMORY if _is_usable(_MEMORY) else None))


def _is_usable(place: Path) -> bool:
    try:
        return os.access(place, os.W_OK) and shutil.disk_usage(place).free >= _FREE_BYTES_MIN
    except OSError:
        return False
