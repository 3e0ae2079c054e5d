"""Several processes write into one stream while a job reads it: nothing is lost, doubled or out of order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
from support.world import caught_up, source_of, started, waited

PRODUCER = """
import pathlib, sys
import headrace as hr
folder, name, enough = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
written = 0
with hr.open_system(f"log:{folder}") as log:
    print("ready", flush=True)
    sys.stdin.readline()
    while written < 500 or (written < 50_000 and not enough.exists()):
        records = [(f"{name}-{n % 7}", n) for n in range(written, written + 25)]
        written += log.produce("in", records, key=hr.String(), value=hr.Long())
print(written, flush=True)
"""
PRODUCERS, ROUNDS = 3, 3


def application(place: Path) -> hr.App:
    app = hr.App(
        "reader",
        system=f"log:{place / 'log'}",
        local_store_dir=str(place / "stores"),
        state_uri=str(place / "state"),
        trigger_interval_ms=5,
    )
    stream = app.stream("in", key=hr.String(), value=hr.Long())
    stream.to("copy")
    stream.group_by_key().count(store="counts").to_stream().to("counts-out")
    return app


def test_producers_in_processes_of_their_own_beside_a_job(tmp_path: Path, start: Callable[..., Any]) -> None:
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.create_stream("in", 4)
        enough = tmp_path / "enough"
        producers = [start(PRODUCER, tmp_path / "log", f"p{number}", enough) for number in range(PRODUCERS)]
        assert all(producer.stdout.readline() == "ready\n" for producer in producers)
        job = started(application(tmp_path))
        try:
            for producer in producers:
                producer.stdin.write("go\n")
                producer.stdin.flush()
            waited(lambda: source_of(job)["round"] >= ROUNDS, job)
            assert all(producer.poll() is None for producer in producers), "they wrote until now"
            enough.touch()
            counts = [int(producer.stdout.readline()) for producer in producers]
            assert [producer.wait(60) for producer in producers] == [0] * PRODUCERS
        finally:
            job.stop()
        caught_up(application(tmp_path))
        for partition in range(4):
            read = list(log.consume("in", hr.String(), hr.Long(), [partition]))
            copied = list(log.consume("copy", hr.String(), hr.Long(), [partition]))
            assert [(r.key, r.value) for r in copied] == [(r.key, r.value) for r in read]
        by_key: dict[str, list[int]] = {}
        for record in log.consume("copy", hr.String(), hr.Long()):
            by_key.setdefault(record.key, []).append(record.value)
        written = {f"p{n}-{k}": [v for v in range(counts[n]) if v % 7 == k] for n in range(PRODUCERS) for k in range(7)}
        assert by_key == written
        last = {record.key: record.value for record in log.consume("counts-out", hr.String(), hr.Long())}
        assert last == {key: len(values) for key, values in written.items()}
