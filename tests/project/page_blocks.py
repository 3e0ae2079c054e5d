"""The code blocks of a Markdown page, and how they run: in the order of the page, in one folder.

A comment on the line before a block says how it runs: `<!-- file: NAME -->` also keeps a Python block under this name, for the
commands after it; `<!-- not run: REASON -->` marks one that cannot run in a test.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.common import kafka_streams_jars

from headrace.config.loading import load_config
from headrace.environment import checked_java

ROOT = Path(__file__).parents[2]
LANGUAGES = ("python", "sh", "toml", "java")
_BLOCK = re.compile(r"(?:<!-- (file|not run): (.+?) -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMANDS = f"""#!/bin/sh
exec '{sys.executable}' -c 'from headrace.cli import main; main()' "$@"
"""
_ANSWERS = b"y\n" * 20  # to commands that prompt


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    file: str | None = None
    not_run: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page that are code."""
    text = page.read_text(encoding="utf-8")
    name = str(page.relative_to(ROOT))
    found = []
    for match in _BLOCK.finditer(text):
        how, what, language, code = match.groups()
        if language in LANGUAGES:
            line = text.count("\n", 0, match.start(3)) + 1
            file, not_run = (what if how == "file" else None), (what if how == "not run" else None)
            found.append(Block(name, line, language, code, file, not_run))
    return found


def run(block: Block, folder: Path) -> str:
    """Run a block in `folder`; what it printed. An `AssertionError` with page and line where it fails."""
    if block.language == "toml":
        return _loaded(block, folder)
    if block.language == "python":
        file = folder / (block.file or "block.py")
        file.write_text(block.text, encoding="utf-8")
        return _done([sys.executable, file.name], block, folder)
    if block.language == "java":  # on Kafka Streams
        file = folder / (block.file or "Block.java")
        file.write_text(block.text, encoding="utf-8")
        quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-XX:TieredStopAtLevel=1"]
        return _done([str(checked_java(os.environ).path), *quiet, "-cp", kafka_streams_jars(), file.name], block, folder)
    return _done(["sh", "-euc", block.text], block, folder)


def _loaded(block: Block, folder: Path) -> str:
    """A block of TOML is a headrace.toml: every key in it must be known, and its value allowed."""
    place = folder / f"config-{block.line}"
    place.mkdir()
    (place / "headrace.toml").write_text(block.text, encoding="utf-8")
    config = load_config(place, {}, {})
    assert tomllib.loads(block.text) and config.origins, f"{block}: sets nothing"
    return repr(config)


def _done(command: list[str], block: Block, folder: Path) -> str:
    """The command's output. Its standard input is a terminal, which answers every prompt with yes."""
    tools = folder / ".tools"
    tools.mkdir(exist_ok=True)
    (tools / "headrace").write_text(_COMMANDS, encoding="utf-8")
    (tools / "headrace").chmod(0o755)
    paths = [str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]
    environ: Mapping[str, str] = os.environ | {"PATH": os.pathsep.join(paths)}
    ours, its = pty.openpty()
    try:
        os.write(ours, _ANSWERS)
        done = subprocess.run(
            command, cwd=folder, env=environ, stdin=its, capture_output=True, text=True, timeout=240, check=False
        )
    finally:
        os.close(ours)
        os.close(its)
    assert done.returncode == 0, f"{block} failed:\n{block.text}\n{done.stdout}\n{done.stderr}"
    return done.stdout
