"""The public API as a user's type checkers see it: mypy --strict and pyright, over programs, and all examples."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
PAGES = {"readme": ROOT / "README.md", "api": ROOT / "docs" / "api.md"}
MYPY = """
[mypy]
strict = True
[mypy-examples.*]
disallow_untyped_defs = False
disallow_incomplete_defs = False
disallow_untyped_calls = False
disallow_any_generics = False
warn_return_any = False
disable_error_code = var-annotated
[mypy-pyarrow.*]
ignore_missing_imports = True
"""
PYRIGHT = {
    "typeCheckingMode": "standard",
    "enableTypeIgnoreComments": True,
    "reportUnnecessaryTypeIgnoreComment": "error",
    "include": ["programs", "examples"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder: `programs`, and `examples` with those of the pages. The package is the one that is installed."""
    shutil.copytree(PROGRAMS, tmp_path / "programs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for page, path in PAGES.items():
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)):
            (tmp_path / "examples" / f"{page}_{number}.py").write_text(block, encoding="utf-8")
    return tmp_path


def checked(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, timeout=110, check=False
    )


def mypy(folder: Path) -> subprocess.CompletedProcess[str]:
    """--strict; the examples may leave out types of their own functions, whose bodies are checked all the same."""
    (folder / "mypy.ini").write_text(MYPY)
    cache = ROOT / ".mypy_cache" / "typing"
    return checked(folder, "mypy", "--cache-dir", str(cache), "-p", "programs", "-p", "examples")


def pyright(folder: Path) -> list[str]:
    """What pyright reports. The package `basedpyright` brings it in a wheel, with a node to run on, and downloads nothing."""
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    done = checked(folder, "basedpyright", "--outputjson", "--pythonpath", sys.executable)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] >= len(list(folder.rglob("*.py")))
    return [
        f"{Path(found['file']).name}:{found['range']['start']['line'] + 1}: {found['message']}"
        for found in report["generalDiagnostics"]
        if 'attribute of module "pyarrow' not in found["message"]  # which has no types: it is read off its source
    ]


def test_mypy_finds_the_types_that_are_promised_and_every_mistake(folder: Path) -> None:
    done = mypy(folder)
    assert done.stdout.startswith("Success: no issues found"), done.stdout + done.stderr


def test_pyright_finds_the_types_that_are_promised_and_every_mistake(folder: Path) -> None:
    assert pyright(folder) == []
