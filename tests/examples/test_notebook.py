"""The notebook in `examples/`, run by a kernel of Jupyter, with Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_look.ipynb"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def shown(cell: Any, kind: str) -> str:
    """What the cell gave, in this form."""
    return "".join(one["data"].get(kind, "") for one in cell.outputs if "data" in one)


def test_its_cells_run_and_show_a_picture_a_preview_and_the_state(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    _, picture, preview, records, state, spark = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert "<svg" in shown(picture, "text/html") and "by-carrier" in shown(picture, "text/html")
    assert "B6" in shown(preview, "text/html")
    assert shown(records, "text/plain") == "4"
    assert "UA" in shown(state, "text/plain") and "3.0" in shown(state, "text/plain")
    assert shown(spark, "text/plain").split() == ["key", "flights", "0", "B6", "1", "1", "UA", "2"]
