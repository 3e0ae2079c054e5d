"""An open log, and Python run in processes of its own that can be stopped and killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.adapters.log.system import LogSystem, open_system

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def system(folder: Path) -> Iterator[LogSystem]:
    with open_system(f"log:{folder}") as opened:
        yield opened


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(code, *arguments)` runs `code` in a process, with its output to be read; all are ended with the test."""
    processes: list[subprocess.Popen[str]] = []

    def begin(code: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
