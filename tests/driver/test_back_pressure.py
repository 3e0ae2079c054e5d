"""A slow sub-topology holds back those that write what it reads, and no others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import wiring
from headrace.core.topology.sub_topologies import upstream_names_of
from headrace.driver.rounds.scheduling import RoundScheduler
from headrace.wiring import config_of
from headrace.wiring.launch import launched
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

RECORDS, PER_ROUND, MAX_LAG = 400, 20, 60
ENGINE = InlineEngine(run_container)


def application(folder: Path, pause_s: float = 0.0, **keys: Any) -> hr.App:
    """`source` writes `slow` and `other`; `slow` writes `last`."""
    app = hr.App(
        "lagging",
        system=f"log:{folder / 'log'}",
        state_uri=str(folder / "state"),
        local_store_dir=str(folder / "stores"),
        max_records_per_round=PER_ROUND,
        max_lag=MAX_LAG,
        trigger_interval_ms=5,
        **keys,
    )

    def slowly(record: Any) -> str:
        time.sleep(pause_s)
        return str(record.value)

    records = app.stream("in", key=hr.String(), value=hr.String())
    slow = records.repartition(name="slow").map_values(slowly, value=hr.String())
    slow.repartition(name="last").to("out")
    records.repartition(name="other").to("other-out")
    return app


def fill(folder: Path) -> None:
    with hr.open_system(f"log:{folder / 'log'}") as system:
        system.create_stream("in", 2)
        system.produce("in", [(f"k{n % 7}", str(n)) for n in range(RECORDS)], key=hr.String(), value=hr.String())


def test_the_writer_waits_until_its_reader_has_come_after_and_nobody_else_does(tmp_path: Path) -> None:
    fill(tmp_path)
    app = application(tmp_path)
    job = launched(app, config_of(app), ENGINE, lambda line: None)
    try:
        by_name = {rounds.sub.name: rounds for rounds in job.prepared.runners}
        following = RoundScheduler(by_name, upstream_names_of(job.prepared.plan.subs), 30.0, MAX_LAG)

        def step(name: str | None) -> bool:
            rounds = by_name[name]
            planned = following.next(rounds, time.monotonic(), 0)
            if planned is not None:
                rounds.commit(planned, rounds.run(planned))
            return planned is not None

        written = 0
        while not following.held_back(by_name[None]):
            assert step(None)
            written += PER_ROUND
            while step("other"):  # it keeps up
                pass
        assert MAX_LAG <= written < MAX_LAG + PER_ROUND
        assert following.held_back(by_name[None]) == f"slow, which is {written} records behind (max_lag {MAX_LAG})"
        assert [following.held_back(by_name[name]) for name in ("slow", "other", "last")] == ["", "", ""]
        assert step("slow")
        assert following.held_back(by_name[None]) == ""
        while step("slow"):
            pass
        assert following.held_back(by_name["slow"]).startswith("last, which is ")
        assert following.held_back(by_name[None]) == ""  # what waits further below is not its affair
    finally:
        job.backend.store.release(job.prepared.plan.epoch)
        job.close()


def test_a_job_with_a_slow_part_comes_to_its_end_and_says_what_it_waits_for(tmp_path: Path) -> None:
    fill(tmp_path)
    job = wiring.start(application(tmp_path, pause_s=0.002), "caught-up", engine=ENGINE)
    said, most = set(), 0
    while job.is_running:
        status = job.status()["sub_topologies"]
        said.add(status["source"]["waiting_for"].partition(",")[0])
        most = max(most, status["source"]["records"] - status["slow"]["records"])
        time.sleep(0.002)
    job.wait(60)
    assert "slow" in said
    assert most <= MAX_LAG + 2 * PER_ROUND  # one round over, and one that the status has not counted yet
    with hr.open_system(f"log:{tmp_path / 'log'}") as system:
        for stream in ("out", "other-out"):
            found = [r.value for r in system.consume(stream, key=hr.String(), value=hr.String())]
            assert sorted(found, key=int) == [str(n) for n in range(RECORDS)]
