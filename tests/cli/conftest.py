"""What the tests of the command line share: a log on which a small application has run, in this process."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import headrace as hr
from cli.shop import APP, produce_sales
from headrace.cli.app_loading import load_app
from headrace.cli.commands import application
from support.world import caught_up


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `shop.py` and the log that it has run on; tests must not change what is in it."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(APP)
    before = Path.cwd()
    os.chdir(folder)
    try:
        with hr.open_system("log:./data") as system:
            system.create_stream("sales", 4)
            produce_sales(system)
        caught_up(load_app("shop.py"))
    finally:
        os.chdir(before)
    return folder


@pytest.fixture(autouse=True)
def _import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command makes the folder of an application importable for its process: not for the tests and children after it."""
    monkeypatch.setattr(sys, "path", [*sys.path])


Headrace = Callable[..., Result]


@pytest.fixture
def headrace(place: Path, monkeypatch: pytest.MonkeyPatch) -> Headrace:
    """Run a command in the folder `place`; `stdin` is its input."""
    monkeypatch.chdir(place)

    def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(application, list(arguments), input=stdin)

    return run


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(application, list(arguments), input=stdin)

    return run


@pytest.fixture
def ran(fresh: Headrace, place: Path, tmp_path: Path) -> Headrace:
    """Commands in a copy of the folder in which `shop` has run: it reads `sales`, of 4 partitions."""
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    return fresh
