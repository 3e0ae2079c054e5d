"""docs/metrics.md is made from the table of metrics."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_metrics_is_made_from_their_table() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "metrics_page.py"))["page"]()
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == page, "docs/metrics.md is out of date: run `make docs`"
