"""Samples of keys where Spark's engine reads or works before a container does, on both systems."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

import headrace as hr

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
RECORDS = [(f"k{i % 5}".encode(), json.dumps({"shop": f"s{i}", "amount": i}).encode()) for i in range(40)]
VALUE = hr.Json("shop string, amount bigint")


@pytest.mark.parametrize("kind", ["kafka", "log"])
def test_keys_are_sampled_as_the_stream_has_them(kind: str, spark: Any, request: Any, tmp_path: Path) -> None:
    """Of a stream whose rows go through expressions, which change the key and drop rows, and of one beside it."""
    url = f"log:{tmp_path / 'log'}" if kind == "log" else f"kafka://{request.getfixturevalue('kafka_server').bootstrap}"
    name = f"sampled-{uuid.uuid4().hex[:8]}"
    keys = {"local_store_dir": str(tmp_path / "stores"), "containers": 2, "check_partitioning": "sample"}
    app = hr.App(name, url, spark, trigger_interval_ms=20, **keys)
    rows = app.stream(f"{name}-chained", key=hr.String(), value=VALUE).filter("value.amount < 0")
    rows.select_key("value.shop").to(f"{name}-out")
    app.stream(f"{name}-plain", key=hr.String(), value=VALUE).to(f"{name}-out")
    app.stream(f"{name}-fine", key=hr.String(), value=VALUE).to(f"{name}-out")
    app.stream(f"{name}-declared", key=hr.String(), value=VALUE, partitioning="other").to(f"{name}-out")
    with hr.open_system(url) as system:
        for stream in ("chained", "plain", "fine", "declared"):
            system.create_stream(f"{name}-{stream}", 3)
            by_turns = [hr.Record(key, value, partition=i % 3) for i, (key, value) in enumerate(RECORDS)]
            system.produce(f"{name}-{stream}", RECORDS if stream == "fine" else by_turns)
        job = app.start(until="caught-up")
        job.wait(200)
    found = job.status()["sub_topologies"]["source"]
    assert found["counters"]["keys_in_two_partitions"] == 10  # k0 to k4 of two streams
    assert 0 < len(found["notes"]) <= 3
    for note in found["notes"]:
        assert note.startswith((f"stream '{name}-chained': key 'k", f"stream '{name}-plain': key 'k"))
