"""The two codes of docs/from-faust.md: Faust's worker on a broker, in an environment of its own, and ours with its driver."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.common import python_with

import headrace as hr
from headrace.testing import KafkaServer
from project.page_blocks import ROOT, blocks_of, run

FAUST_VERSION = "0.15.3"
NOON_S = 1_767_268_800.0  # of 2026-01-01
ORDERS = (("GB", 30, 1), ("GB", -1, 2), ("FR", 5, 3), ("GB", 12, 4), ("GB", 1, 120))  # those of the page
WAIT_S = 90.0


def sums(kafka: hr.System, path: Path, worker: subprocess.Popen[bytes]) -> Iterator[list[tuple[str, int]]]:
    """What the worker has written, again and again, for a while."""
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s and worker.poll() is None:
        yield [(str(one.key), int(one.value)) for one in kafka.consume("faust-revenue", key=hr.String(), value=hr.Json())]
        time.sleep(0.5)
    pytest.fail(path.read_text(errors="replace"))


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_fausts_code_gives_the_same_sums(kafka_server: KafkaServer, tmp_path: Path) -> None:
    theirs, _ = blocks_of(ROOT / "docs" / "from-faust.md")
    text = theirs.text.replace("localhost:9092", kafka_server.bootstrap)
    assert kafka_server.bootstrap in text and theirs.file is not None
    (tmp_path / theirs.file).write_text(text, encoding="utf-8")
    python = python_with("faust-streaming", FAUST_VERSION)
    with hr.open_system(f"kafka://{kafka_server.bootstrap}", kafka={"compression.type": "none"}) as kafka:
        for name in ("orders", "faust-revenue"):
            kafka.create_stream(name, 2)
        orders = [{"country": country, "amount": amount, "at": NOON_S + minute * 60} for country, amount, minute in ORDERS]
        kafka.produce("orders", [("an order", order) for order in orders], key=hr.String(), value=hr.Json())
        with (tmp_path / "said.txt").open("wb") as said:
            worker = subprocess.Popen([str(python), theirs.file, "worker"], cwd=tmp_path, stdout=said, stderr=said)
        try:
            found = next(now for now in sums(kafka, tmp_path / "said.txt", worker) if len(now) >= len(ORDERS) - 1)
        finally:
            worker.kill()
            worker.wait()
    assert sorted(found) == [("FR", 5), ("GB", 1), ("GB", 30), ("GB", 42)]


def test_our_code_gives_them_once_for_each_hour(tmp_path: Path) -> None:
    _, ours = blocks_of(ROOT / "docs" / "from-faust.md")
    run(ours, tmp_path)
