"""The two codes of docs/from-quix.md, on one broker: Quix Streams in an environment of its own, and ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.common import QUIX_VERSION, python_with

from headrace.testing import KafkaServer
from project.page_blocks import ROOT, blocks_of


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_both_codes_give_what_they_say(kafka_server: KafkaServer, tmp_path: Path) -> None:
    theirs, ours = blocks_of(ROOT / "docs" / "from-quix.md")
    pythons = {theirs.file: str(python_with("quixstreams", QUIX_VERSION)), ours.file: sys.executable}
    for block in (theirs, ours):
        assert block.file is not None
        text = block.text.replace("localhost:9092", kafka_server.bootstrap)
        assert kafka_server.bootstrap in text
        (tmp_path / block.file).write_text(text, encoding="utf-8")
        environ = os.environ | {"PYTHONWARNINGS": "ignore"}
        command = [pythons[block.file], block.file]
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, f"{block}:\n{done.stdout}\n{done.stderr}"
