"""The documentation as a site: built strictly, each page in its navigation, and a reader fetches nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from project.page_blocks import ROOT

_FETCHED = re.compile(
    r"<(?:script|img|iframe)[^>]+src=\"(https?:)?//"
    r"|<link[^>]+rel=\"(?:stylesheet|preconnect)\"[^>]+href=\"(https?:)?//"
)


def test_the_site_is_built_whole_and_stands_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.stem for path in tmp_path.glob("*.html")}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"} <= pages and "index" in pages
    fetched = [path.name for path in tmp_path.glob("*.html") if _FETCHED.search(path.read_text(encoding="utf-8"))]
    assert fetched == []
