"""The built-in controller at running jobs, in this process: a loaded one goes up, a quiet one comes down, each with the reason
on record; and what other processes see of it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.commands import application
from support.world import source_of, started, waited

KEYS = {
    "autosizing": "on",
    "autosizing_interval_s": 0.05,
    "autosizing_catch_up_s": 0.5,
    "autosizing_quiet_s": 1.0,
    "autosizing_cool_down_s": 0.1,
    "autosizing_factor_max": 8,
    "max_round_ms": 200,
    "trigger_interval_ms": 10,
}


def sleepy(folder: Path, records: int, **keys: Any) -> hr.App:
    """An application that waits for 1 ms per record, and its input."""
    app = hr.App("sleepy", f"log:{folder / 'log'}", **{**KEYS, "local_store_dir": str(folder / "stores"), **keys})
    with hr.open_system(f"log:{folder / 'log'}") as log:
        if "in" not in {stream.name for stream in log.streams()}:
            log.create_stream("in", partitions=1)
            log.create_stream("out", partitions=1)
        log.produce("in", [(f"k{n % 200}", n) for n in range(records)], key=hr.String(), value=hr.Long())

    def looked_up(record: hr.Record) -> int:
        time.sleep(0.001)
        return record.value

    app.stream("in", key=hr.String(), value=hr.Long()).map_values(looked_up).to("out")
    return app


@contextmanager
def running(app: hr.App) -> Iterator[Any]:
    job = started(app)
    try:
        yield job
    finally:
        job.stop()


def changes_of(app: hr.App) -> list[tuple[str, str, str, str]]:
    with hr.elasticity(app) as scales:
        return [(one.before, one.after, one.requested_by, one.why) for one in scales.history()]


def is_measured(seen: Any) -> bool:
    """Whether the plan of an observation has measured something: a new one has not at once."""
    return seen.observed_s > 0 and len(seen.tasks) == seen.elasticity_factor


def test_a_loaded_job_goes_up_and_a_quiet_one_comes_down(tmp_path: Path) -> None:
    app = sleepy(tmp_path, 15_000)
    with running(app) as job:
        waited(lambda: source_of(job)["elasticity_factor"] == 8, job)
        waited(lambda: source_of(job)["records"] == 15_000, job)
        assert job.observations()[0].last_60_s.written_per_s > 0
        waited(lambda: source_of(job)["elasticity_factor"] < 8, job)
        status = source_of(job)["autosizing"]
        assert status is not None and status["cause"] and status["reason"] and status["at_us"] > 0
        with hr.autosizing(app) as scales:  # as any other process
            seen = waited(lambda: next((one for one in scales.observations() if is_measured(one)), None), job)
            assert seen.sub_topology == "source" and seen.slots > 0 and seen.lag == 0 and seen.observed_s > 0
    arguments = ["elasticity", "show", "--application", "sleepy", "--system", f"log:{tmp_path / 'log'}"]
    shown = json.loads(CliRunner().invoke(application, [*arguments, "--json"]).stdout)
    assert [one["sub_topology"] for one in shown["autosizing"]] == ["source"] and shown["autosizing"][0]["reason"]
    assert "autosizing of source " in CliRunner().invoke(application, arguments).stdout
    up, down = changes_of(app)[:2]
    assert up[:3] == ("factor 1, containers automatic", "factor 8, containers automatic", "autosizing")
    assert up[3].startswith("lag ") and "busy for" in up[3]
    assert down[:3] == ("factor 8, containers automatic", "factor 4, containers automatic", "autosizing")
    assert "would have been busy for at most" in down[3]
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        found = Counter(record.value for record in log.consume("out", value=hr.Long()))
    assert found == dict.fromkeys(range(15_000), 1)


def test_of_a_job_that_does_not_run_the_lag_of_now_is_observed_and_a_scale_can_be_set(tmp_path: Path) -> None:
    app = sleepy(tmp_path, 50, autosizing="off")
    with pytest.raises(hr.ConfigError, match="has not run on"), hr.autosizing(app) as scales:
        scales.observations()
    with running(app) as job:
        waited(lambda: source_of(job)["records"] == 50, job)
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.produce("in", [("k", n) for n in range(7)], key=hr.String(), value=hr.Long())
    with hr.autosizing(app) as scales:
        (seen,) = scales.observations()
        assert (seen.lag, seen.last_10_s.busy_share, seen.slots, [one.lag for one in seen.tasks]) == (7, 0.0, 0, [7])
        scales.set(factor=2 * seen.elasticity_factor, sub_topology=seen.sub_topology, reason="more is coming")
    with running(app) as job:
        waited(lambda: source_of(job)["records"] == 7, job)
        assert [one.elasticity_factor for one in job.observations()] == [2]
    assert changes_of(app)[-1][3] == "more is coming"
    with running(sleepy(tmp_path, 0, autosizing_cool_down_s=1_000)) as job:  # a start knows of changes before it
        waited(lambda: (source_of(job)["autosizing"] or {}).get("cause") == "cool-down", job)


def test_off_is_the_default_and_a_sub_topology_may_be_left_out(tmp_path: Path) -> None:
    app = sleepy(tmp_path, 3_000, **{"autosizing.source": "off"})
    with running(app) as job:
        waited(lambda: source_of(job)["records"] == 3_000, job)
        assert source_of(job)["autosizing"] is None
    assert changes_of(app) == []
