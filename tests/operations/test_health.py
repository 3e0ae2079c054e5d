"""How a job is, for scripts: `headrace status --exit-code`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace import wiring
from headrace.cli.commands import application
from headrace.core.health import Health, health_of
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from support.world import waited

NOW_US = 1_000_000_000
WELL: dict[str, Any] = {"running": True, "sub_topologies": {"source": {"updated_us": NOW_US, "lag": 5, "stopped_by": ""}}}


def with_source(**changed: Any) -> dict[str, Any]:
    return {**WELL, "sub_topologies": {"source": {**WELL["sub_topologies"]["source"], **changed}}}


@pytest.mark.parametrize(
    ("status", "expected", "said"),
    [
        (WELL, Health.WORKS, "works"),
        ({**WELL, "running": False}, Health.DOES_NOT_RUN, "does not run"),
        ({**WELL, "running": False, "holder": {"pid": 7, "host": "h"}}, Health.DOES_NOT_RUN, "process 7 on h"),
        (with_source(stopped_by="it was deleted"), Health.HAS_STOPPED, "source has stopped: it was deleted"),
        (with_source(updated_us=NOW_US - 61_000_000), Health.IS_SILENT, "source, for 61 s"),
        (with_source(processors={"a": {"updated_us": NOW_US - 90_000_000}}), Health.IS_SILENT, "processor a, for 90 s"),
        (with_source(processors={}, tasks_by_processor={"a": 2}), Health.IS_SILENT, "do not report: a"),
        ({**WELL, "sub_topologies": {"by": {"lag": 0}}}, Health.IS_SILENT, "not reported of by"),
        (with_source(lag=11), Health.IS_BEHIND, "behind by 11"),
    ],
)
def test_each_way_to_be(status: dict[str, Any], expected: Health, said: str) -> None:
    health, why = health_of(status, NOW_US, 10, 60)
    assert (health, said in why) == (expected, True), why


def test_a_lag_is_no_fault_unless_it_is_said_to_be_one() -> None:
    assert health_of(with_source(lag=10**9), NOW_US, None, 60)[0] is Health.WORKS


def test_the_command(tmp_path: Path) -> None:
    app = hr.App("shop", config={"system": f"log:{tmp_path / 'log'}", "local_store_dir": f"{tmp_path}/s"})
    app.stream("in", key=hr.String(), value=hr.String()).to("out")
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        for stream in ("in", "out"):
            log.create_stream(stream, 1)

        def asked(*options: str) -> Any:
            named = ["--application", "shop", "--system", f"log:{tmp_path / 'log'}"]
            return CliRunner().invoke(application, ["status", "--exit-code", *named, *options])

        assert asked().exit_code == 1, "it has not run yet"
        job = wiring.start(app, engine=InlineEngine(run_container))
        try:
            works = waited(lambda: (found := asked("--json")).exit_code == 0 and found, job)  # once it has reported
            assert (works.exit_code, json.loads(works.stdout)["why"]) == (0, "it works")
        finally:
            job.stop()
        assert asked().exit_code == Health.DOES_NOT_RUN and asked().stdout == "shop: it does not run\n"


def test_a_processor_whose_rounds_have_ended_is_named_while_it_has_tasks() -> None:
    ended = {"updated_us": 0, "records": 1, "waiting_for": "new records", "ended_by": "ZooKeeper"}
    sub = {"updated_us": 0, "lag": 0, "processors": {"a": ended}, "tasks_by_processor": {"a": 2}}
    found = {"running": True, "sub_topologies": {"source": sub}}
    assert health_of(found, 0, None, 60) == (Health.HAS_STOPPED, "processor a waits for ZooKeeper")
    sub["tasks_by_processor"] = {"b": 2}
    sub["processors"] = {"a": ended, "b": {**ended, "ended_by": ""}}
    assert health_of(found, 0, None, 60) == (Health.WORKS, "it works")


def test_the_status_says_with_which_error_the_last_run_ended(tmp_path: Path) -> None:
    app = hr.App("shop", system=f"log:{tmp_path / 'log'}", local_store_dir=f"{tmp_path}/s", on_lost_offsets="earliest")
    app.stream("in", key=hr.String(), value=hr.Long()).to("out")
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        for stream in ("in", "out"):
            log.create_stream(stream, 1)
        log.produce("in", [(b"a", b"no number")])

    def asked(*options: str) -> Any:
        named = ["--application", "shop", "--system", f"log:{tmp_path / 'log'}"]
        return CliRunner().invoke(application, ["status", *named, *options])

    with pytest.raises(hr.HeadraceError, match="could not be processed"):
        wiring.start(app, engine=InlineEngine(run_container)).wait(60)
    assert "its last run ended with: a record could not be processed" in asked().stdout
    why = json.loads(asked("--exit-code", "--json").stdout)["why"]
    assert why.startswith("it does not run; its last run ended with: a record could not be processed")
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.purge("in", {0: 1})
    job = wiring.start(app, "caught-up", engine=InlineEngine(run_container))
    job.wait(60)
    assert "ended with" not in asked().stdout
