"""`headrace run` of an edited application: what is refused before Spark starts, and how stores are renamed or given up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.wiring import launch
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

Run = Callable[..., Any]
APP = """
import headrace as hr

app = hr.App("visits", system="log:./data")
rows = app.stream("clicks", key=hr.String(), value=hr.Long()){before}
rows.repartition(hr.Repartitioned(name="by-user", number_of_partitions=2)).group_by_key().windowed_by(
    hr.Session("{gap}")).count(store="{store}").to_stream().to("out")
"""


@pytest.fixture
def edited(fresh: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A job that has run once on four clicks; gives a run of it as it is edited, without Spark."""
    monkeypatch.setattr(launch, "spark_engine", lambda app, config: InlineEngine(run_container))
    with hr.open_system("log:./data") as system:
        system.create_stream("clicks", 2)
        clicks = [hr.Record(f"u{n % 2}", 1, n * 60_000_000) for n in range(4)]
        system.produce("clicks", clicks, key=hr.String(), value=hr.Long())

    def run(*options: str, gap: str = "5 minutes", store: str = "visits", before: str = "") -> Any:
        (tmp_path / "visits.py").write_text(APP.format(gap=gap, store=store, before=before))
        return fresh("run", "visits.py", "--until", "caught-up", "--no-progress", *options)

    assert run().exit_code == 0
    return run


def held(fresh: Run, store: str) -> dict[str, list[int]]:
    found = {}
    for user in ("u0", "u1"):
        shown = fresh("state", "get", store, user, "visits.py", "--json")
        found[user] = [entry["value"] for entry in json.loads(shown.stdout)["entries"]]
    return found


@pytest.fixture
def no_spark(edited: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(app: Any, config: Any) -> Any:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(launch, "spark_engine", started)


@pytest.mark.parametrize("before", ["", '.filter("value > 0")'], ids=["all serdes known", "Spark knows the types"])
@pytest.mark.usefixtures("no_spark")
def test_a_refusal_is_in_words_and_comes_before_spark(edited: Run, before: str) -> None:
    result = edited(gap="10 minutes", before=before)
    assert result.exit_code == 1
    message = "store 'visits': its gap was 5 minutes, is 10 minutes: what it holds cannot be read as that"
    assert f"error: application 'visits' is incompatible with its stored state: {message}\n" in result.stderr
    assert "hint: undo that edit; or drop the state: `headrace run ... --drop-store visits`" in result.stderr
    assert "us/" not in result.stderr.partition("hint")[0]
    assert "starting Spark" not in result.stderr


@pytest.mark.usefixtures("no_spark")
def test_a_renamed_store_is_refused_before_spark_with_the_operators_that_were_renamed(edited: Run) -> None:
    result = edited(store="sessions", before=".filter(lambda r: True)")
    assert result.exit_code == 1
    assert "operators since the last run: added clicks-filter; renamed visits to sessions, " in result.stderr
    assert "store 'visits' is no longer in the application, and its state would be lost" in result.stderr
    assert "hint: keep the old name 'visits'; or rename with the state: " in result.stderr
    assert "undo that edit" not in result.stderr


def test_a_renamed_store_keeps_its_state(edited: Run, fresh: Run) -> None:
    before = held(fresh, "visits")
    result = edited("--rename-store", "visits=sessions", store="sessions")
    assert result.exit_code == 0, result.stderr
    assert "store 'visits' is now 'sessions', with its state" in result.stderr
    assert held(fresh, "sessions") == before
    assert "has no store 'visits'" in fresh("state", "get", "visits", "u0", "visits.py").stderr
    assert edited(store="sessions").exit_code == 0, "the option is for one start"
    assert held(fresh, "sessions") == before


def test_state_that_is_given_up_is_rebuilt_by_a_rewind(edited: Run, fresh: Run) -> None:
    before = held(fresh, "visits")
    result = edited("--drop-store", "visits", store="sessions")
    assert result.exit_code == 0, result.stderr
    assert "the state of store 'visits' was given up, as requested" in result.stderr
    assert fresh("state", "get", "sessions", "u0", "visits.py").exit_code == 1, "it begins empty"
    command = "startpoint set clicks --application visits --system log:./data --earliest --state rewind --yes"
    assert fresh(*command.split()).exit_code == 0
    assert edited(store="sessions").exit_code == 0
    assert held(fresh, "sessions") == before


def test_a_store_whose_form_changed_begins_again_under_its_name(edited: Run, fresh: Run) -> None:
    assert edited("--drop-store", "visits", gap="30 seconds").exit_code == 0
    command = "startpoint set clicks --application visits --system log:./data --earliest --state rewind --yes"
    assert fresh(*command.split()).exit_code == 0
    assert edited(gap="30 seconds").exit_code == 0
    assert held(fresh, "visits") == {"u0": [1, 1], "u1": [1, 1]}
    undone = edited()
    assert undone.exit_code == 1
    assert "its gap was 30 seconds, is 5 minutes" in undone.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--drop-store", "visit"), "has no store 'visit'"),
        (("--rename-store", "visits"), "expected OLD=NEW, found 'visits'"),
        (("--rename-store", "visit=sessions"), "has no store 'visit'"),
        (("--rename-store", "visits=gone"), "the application has no store 'gone'"),
        (("--rename-store", "visits=sessions", "--drop-store", "visits"), "in drop_stores and in rename_stores"),
        (("--drop-store", ""), "expected a text that is not empty"),
        (("--rename-store", ""), "expected a text that is not empty"),
    ],
)
@pytest.mark.usefixtures("no_spark")
def test_wrong_names_are_refused_before_spark(edited: Run, options: tuple[str, ...], words: str) -> None:
    result = edited(*options, store="sessions")
    assert result.exit_code != 0
    assert words in result.stderr
    assert "Traceback" not in result.stderr
