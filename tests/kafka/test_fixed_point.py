"""A loop on Kafka: `until="caught-up"` ends once nothing of the job's own is left to be read, markers left out."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from support.world import caught_up

TEXT, NUMBER = hr.String(), hr.Long()


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_loop_is_read_to_its_fixed_point(kafka_server: Any, tmp_path: Path, guarantee: str) -> None:
    name = f"loop-{uuid.uuid4().hex[:6]}"
    url, stream = f"kafka://{kafka_server.bootstrap}", f"{name}-numbers"
    app = hr.App(name, url, state_uri=f"{tmp_path}/state", local_store_dir=f"{tmp_path}/stores", processing_guarantee=guarantee)
    numbers = app.stream(stream, key=TEXT, value=NUMBER).filter(lambda r: r.value > 0).repartition(name="across")
    numbers.map_values(lambda r: r.value - 1, value=NUMBER).to(stream, feedback=True)
    with hr.open_system(url) as system:
        system.create_stream(stream, 2)
        system.produce(stream, [("a", 3), ("b", 0), ("c", 1)], TEXT, NUMBER)
        caught_up(app)
        found = Counter((r.key, r.value) for r in system.consume(stream, TEXT, NUMBER))
        assert found == Counter([("a", 3), ("a", 2), ("a", 1), ("a", 0), ("b", 0), ("c", 1), ("c", 0)])
