"""What a start of Spark puts into folders for temporary files: it fits, and goes with the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import headrace as hr

PROGRAM = """
import re
from pathlib import Path
from headrace.adapters.spark.session import _chosen

chosen = _chosen({}, {}, "app", Path("logs"), [])
log4j = re.search(r"configurationFile=file:(\\S+)", chosen["spark.driver.extraJavaOptions"])[1]
sockets = chosen["spark.python.unix.domain.socket.dir"]
assert Path(sockets).is_dir() and Path(log4j).is_file()
print(sockets, log4j)
"""


def test_sockets_fit_under_a_folder_with_a_long_path_and_all_is_gone_in_the_end(tmp_path: Path) -> None:
    temporary = tmp_path / ("long" * 20)
    temporary.mkdir()
    environ = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(Path(hr.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    sockets, log4j = map(Path, done.stdout.split())
    longest = sockets / f".{'0' * 36}.sock"  # how Spark calls them
    assert len(os.fsencode(longest)) <= 107, "the kernel takes no longer name of a Unix socket"
    assert temporary in log4j.parents
    assert not sockets.exists() and not log4j.parent.exists()
    assert list(temporary.iterdir()) == []
