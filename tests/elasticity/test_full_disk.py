"""A disk of local stores without room for a second copy: the change comes, the way back too, and a full disk is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cluster.machines import unshare

_MOUNT = 'mount --make-rprivate / && mount -t tmpfs -o size=64m none "$1" && shift && exec "$@"'


def test_a_change_needs_no_room_for_a_second_copy(tmp_path: Path) -> None:
    stores, tests = tmp_path / "stores", Path(__file__).parents[1]
    stores.mkdir()
    command = [*unshare(), "sh", "-c", _MOUNT, "sh", str(stores), sys.executable]
    done = subprocess.run(
        [*command, str(Path(__file__).with_name("full_disk_job.py")), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(tests), *sys.path]))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "local stores are made when their tasks begin, which takes longer: " in done.stdout
    assert "MB free in" in done.stdout
    (named,) = [line for line in done.stdout.splitlines() if line.startswith("FULL ")]
    assert "the disk is full" in named and str(stores) in named and "make room there" in named
