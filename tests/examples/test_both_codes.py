"""The two codes of docs/from-faust.md and of docs/from-quix.md, on one broker: the other framework in an environment of its
own, then ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.common import FAUST_VERSION, QUIX_VERSION, python_with

from headrace.testing import KafkaServer
from project.page_blocks import ROOT, blocks_of

PACKAGES = {"from-faust": ("faust-streaming", FAUST_VERSION), "from-quix": ("quixstreams", QUIX_VERSION)}


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", PACKAGES)
def test_both_codes_give_what_they_say(page: str, tmp_path: Path) -> None:
    theirs, ours = blocks_of(ROOT / "docs" / f"{page}.md")
    pythons = {theirs.file: str(python_with(*PACKAGES[page])), ours.file: sys.executable}
    with KafkaServer() as server:  # both pages have the same names of topics
        for block in (theirs, ours):
            assert block.file is not None
            text = block.text.replace("localhost:9092", server.bootstrap)
            assert server.bootstrap in text
            (tmp_path / block.file).write_text(text, encoding="utf-8")
            environ = os.environ | {"PYTHONWARNINGS": "ignore"}
            command = [pythons[block.file], block.file]
            done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=180, check=False)
            assert done.returncode == 0, f"{block}:\n{done.stdout}\n{done.stderr}"


def test_the_page_names_the_release_of_faust_that_it_is_run_with() -> None:
    assert f"release {FAUST_VERSION}" in (ROOT / "docs" / "from-faust.md").read_text(encoding="utf-8")
