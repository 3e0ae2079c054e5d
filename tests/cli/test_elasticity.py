"""`headrace elasticity`: what it shows, what it asks, what it refuses; on stopped jobs and on one that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.commands import application
from headrace.codec.documents import encode
from headrace.codec.job_records import SCALES
from headrace.model.scale import ScaleRequest
from support.world import caught_up, started, waited

APP = """
import headrace as hr

app = hr.App("shop", system="log:./data", containers=2)
rows = app.stream("sales", key=hr.String(), value=hr.Long())
rows.group_by_key().count(store="counts")
rows.group_by(lambda record: "all", hr.Repartitioned(name="by-all"), key=hr.String()).count(store="sums")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(APP)
    with hr.open_system("log:./data") as system:
        system.create_stream("sales", 2)
        system.produce("sales", [hr.Record(f"k{n}".encode(), bytes(8), 0) for n in range(50)])
    return tmp_path


def app() -> hr.App:
    names: dict[str, Any] = {}
    exec(APP, names)
    found = names["app"]
    assert isinstance(found, hr.App)
    return found


def run(*arguments: str) -> Any:
    return CliRunner().invoke(application, ["elasticity", *arguments])


def shown() -> Any:
    return json.loads(run("show", "shop.py", "--json").stdout)


def factors() -> dict[str, int]:
    return {one["sub_topology"]: one["factor"] for one in shown()["scales"]}


def test_a_stopped_job_takes_it_at_its_next_start_and_keeps_it(place: Path) -> None:
    caught_up(app())
    asked = run("set", "4", "shop.py", "--yes", "--reason", "more keys")
    assert asked.exit_code == 0, asked.output
    assert "factor 1, 2 containers  factor 4, 2 containers          2          8" in asked.stdout
    assert "it takes effect at the next start" in asked.stdout
    assert factors() == {"source": 1, "by-all": 1} and len(shown()["requests"]) == 1
    for _ in range(2):
        caught_up(app())
        assert factors() == {"source": 4, "by-all": 4} and shown()["requests"] == []
    entry, other = shown()["history"]
    assert (entry["from"], entry["to"], entry["why"]) == ("factor 1, 2 containers", "factor 4, 2 containers", "more keys")
    assert {entry["what"], other["what"]} == {"source", "by-all"}
    assert run("set", "4", "shop.py").stdout == "application shop has factor 4 already\n"


def test_a_request_is_withdrawn_by_what_is_in_force(place: Path) -> None:
    caught_up(app())
    run("set", "4", "shop.py", "--yes")
    back = run("set", "1", "shop.py", "--yes")
    assert "which is not in force yet, is withdrawn" in back.stdout, back.output
    caught_up(app())
    assert factors() == {"source": 1, "by-all": 1} and shown()["requests"] == []
    assert [one["outcome"] for one in shown()["history"]] == ["superseded"]


def test_what_is_requested_already_is_not_requested_again(place: Path) -> None:
    caught_up(app())
    run("set", "4", "shop.py", "--yes", "--reason", "more keys")
    again = run("set", "4", "shop.py", "--yes")
    assert again.stdout == "application shop: factor 4 is requested already; it takes effect at the next start\n"
    assert len(shown()["requests"]) == 1
    other = run("set", "8", "shop.py", "--yes")
    assert "is withdrawn" in other.stdout, other.output
    back = run("set", "4", "shop.py", "--yes")
    assert back.stdout.count("is withdrawn") == 1, "the first was before"
    assert [one["is_superseded"] for one in shown()["requests"]] == [True, True, False]
    assert [one["why"] for one in shown()["requests"]] == ["more keys", None, None]
    text = run("show", "shop.py").stdout
    assert text.count(", superseded by a later one (") == 2 and text.count("): more keys\n") == 1
    assert run("set", "4", "shop.py", "--containers", "1", "--yes").stdout.count("requested factor 4, 1 container: ") == 1
    caught_up(app())
    assert factors() == {"source": 4, "by-all": 4} and shown()["requests"] == []
    superseded = [one["why"] for one in shown()["history"] if one["outcome"] == "superseded"]
    assert sorted(superseded, key=str) == [None, None, "more keys"]


def test_one_that_has_not_run_is_not_mistaken_for_another(place: Path) -> None:
    found = run("set", "2", "shop.py", "--yes")
    assert found.exit_code != 0
    assert "hint: its first start has the elasticity_factor of its configuration" in found.output


def test_a_running_job_takes_it_within_a_moment(place: Path) -> None:
    job = started(app())
    try:
        waited(lambda: job.status()["sub_topologies"]["source"]["records"] == 50, job)
        asked = run("set", "8", "--sub-topology", "by-all", "--application", "shop", "--yes")
        assert "the job is running: it changes within a second" in asked.stdout, asked.output
        waited(lambda: factors() == {"source": 1, "by-all": 8}, job)
        waited(lambda: job.status()["sub_topologies"]["by-all"]["elasticity_factor"] == 8, job)  # on record first
        waited(lambda: shown()["history"][0]["pause_ms"], job)
        assert "expected pause: " in run("set", "2", "shop.py").stdout
        assert run("set", "keep", "shop.py", "--containers", "1", "--yes").exit_code == 0
        waited(lambda: {one["containers"] for one in shown()["scales"]} == {1}, job)
        assert factors() == {"source": 1, "by-all": 8}
    finally:
        job.stop()
    asked = run("set", "2", "shop.py", "--sub-topology", "by-all", "--yes", "--json")
    described = json.loads(asked.stdout)
    assert described["expected_pause_s"] is None, "it does not run"
    assert described["effects"][0]["containers"] == [1, 1]
    stopped = run("set", "keep", "shop.py", "--containers", "auto", "--yes")
    assert "expected pause: none, as the job is not running" in stopped.stdout, stopped.output
    asked = run("set", "4", "shop.py", "--sub-topology", "by-all", "--yes", "--json")
    assert [one["containers"] for one in json.loads(asked.stdout)["effects"]] == [[1, None], [1, None]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["set", "3", "shop.py"], "expected a power of two, 1 to 1,024; the nearest are 2 and 4"),
        (["set", "2048", "shop.py"], "expected a power of two, 1 to 1,024"),
        (["set", "0", "shop.py"], "expected a power of two"),
        (["set", "x", "shop.py"], "expected a whole number, or keep, found 'x'"),
        (["set", "shop.py", "4"], "found 'shop.py'; the application comes after it: N shop.py"),
        (["set", "keep", "shop.py"], "keep alone changes nothing"),
        (["set", "2", "shop.py", "--containers", "0"], "'--containers': expected a whole number, at least 1, or auto, found 0"),
        (["set", "2", "shop.py", "--containers", "some"], "expected a whole number, at least 1, or auto, found 'some'"),
        (["set", "2", "shop.py", "--sub-topology", "by-night"], "no sub-topology 'by-night'; there are: source, by-all"),
        (["set", "2", "--application", "other"], "application 'other' has not run on log:./data yet"),
        (["show", "--application", "other"], "application 'other' has not run"),
        (["set", "2", "shop.py"], "standard input is no terminal to confirm this; nothing was written"),
        (["set", "2", "shop.py", "--json"], "--json does not prompt; nothing was written: add --yes"),
    ],
)
def test_what_cannot_be_done_says_why_and_changes_nothing(place: Path, arguments: list[str], message: str) -> None:
    caught_up(app())
    found = run(*arguments)
    assert found.exit_code != 0 and message in " ".join(found.output.split()), found.output
    assert shown()["requests"] == []


def test_tasks_that_all_read_everything_take_no_factor_by_the_name_alone_either(place: Path) -> None:
    every = hr.App("every", system="log:./data", ssp_grouper="all_ssps_to_every_task", containers=1)
    every.stream("sales", key=hr.String(), value=hr.Long()).to("sold")
    caught_up(every)
    for application_ in ("every", every):
        with hr.elasticity(application_, "log:./data") as scales:
            refusal = scales.preview(4).refusal
            assert refusal is not None and "under ssp_grouper AllSspsToEveryTask: every task reads everything" in refusal
            assert scales.preview(1, containers=2).refusal is None
    found = run("set", "4", "--application", "every", "--yes")
    assert found.exit_code != 0 and "every task reads everything" in found.output, found.output


def test_from_python_wrong_values_and_what_is_not_open_are_named(place: Path) -> None:
    caught_up(app())
    with pytest.raises(hr.ConfigError, match=r"hr\.elasticity of application 'shop' is not open\n.*with hr\.elasticity"):
        hr.elasticity(app()).set(4)
    with pytest.raises(hr.ConfigError, match=r"hr\.autosizing of application 'shop' is not open"):
        hr.autosizing("shop", "log:./data").observations()
    with pytest.raises(hr.ConfigError, match=r"5 is no application"):
        hr.elasticity(5)
    wrong: Any
    with hr.elasticity(app()) as scales:
        for wrong in (True, "4", 4.0, b"4"):
            with pytest.raises(hr.ConfigError, match="expected a whole number, as int"):
                scales.set(wrong)
            with pytest.raises(hr.ConfigError, match="expected a whole number, as int"):
                scales.set(containers=wrong)
        for wrong in (5, None):
            with pytest.raises(hr.ConfigError, match="expected text"):
                scales.set(4, reason=wrong)
        assert not scales.open_requests()


def test_an_observation_says_that_a_change_is_requested_and_only_what_was_applied_has_a_pause(place: Path) -> None:
    job = started(app())
    try:
        waited(lambda: job.status()["sub_topologies"]["source"]["records"] == 50, job)
        with hr.autosizing("shop", "log:./data") as scales:
            scales.set(4, sub_topology="by-all")
            of = {one.sub_topology: one for one in scales.observations()}
            assert of["by-all"].is_changing or of["by-all"].elasticity_factor == 4
            waited(lambda: any(one.pause_us is not None for one in scales.history()), job)
            assert not any(one.is_changing for one in scales.observations())
            unreadable: Any = True
            with hr.open_system("log:./data") as system:
                for factor in (unreadable, 2):
                    system.metadata_store("shop").request(SCALES, encode(ScaleRequest("me", 1, factor=factor)))
            waited(lambda: sum(one.pause_us is not None for one in scales.history()) == 3, job)
            assert {one.outcome.value: one.pause_us is None for one in scales.history()} == {"applied": False, "refused": True}
    finally:
        job.stop()
    with pytest.raises(hr.ConfigError, match="the job has ended"):
        job.set_elasticity(8)
