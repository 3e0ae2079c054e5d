"""The refusal of network file systems: LMDB maps its file and relies on local locks (protocol.md 18)."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from headrace.errors import StateError

# 9p and virtiofs are left out: they are how a virtual machine sees its own host's disk
_NATIVE_TYPES = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "beegfs", "gpfs", "glusterfs")
_FUSE_TYPES = ("sshfs", "glusterfs", "ceph", "s3fs", "gcsfuse", "rclone")
NETWORK_TYPES = frozenset([*_NATIVE_TYPES, *(f"fuse.{kind}" for kind in _FUSE_TYPES)])
_OCTAL = re.compile(r"\\([0-7]{3})")


def file_system_of(folder: Path, mounts: str) -> str:
    """The type of the file system that holds `folder` (absolute), by the text of /proc/self/mounts; "" if unknown."""
    longest, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[1]))
        if len(point.parts) >= longest and folder.is_relative_to(point):  # of two at one place the later is on top
            longest, kind = len(point.parts), fields[2]
    return kind


@lru_cache(maxsize=1024)
def refuse_network_file_system(folder: Path) -> None:
    """`StateError` if `folder` (it need not exist yet) lies on a network file system."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return  # not Linux: nothing is known
    kind = file_system_of(folder.resolve(), mounts)
    if kind in NETWORK_TYPES:
        raise StateError(
            f"local store folder {folder} is on a network file system ({kind}); expected a local disk",
            "set local_store_dir to a folder on a local disk; state is kept safe under state_uri",
        )
