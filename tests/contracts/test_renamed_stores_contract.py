"""Stores that are renamed with their state, or given up, on every system: also where a start dies before its plan is stored."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.driver.planning import plan_job as startup
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

KEYS = [f"k{number}" for number in range(8)]


class World:
    """A system with an input, and a job on it under a name of its own that counts by key in a store of any name."""

    def __init__(self, url: str, system: Any, folder: Path) -> None:
        self.url, self.system, self.folder = url, system, folder
        self.name = f"j{uuid.uuid4().hex[:8]}"
        self.stream = f"{self.name}-in"
        system.create_stream(self.stream, 2)

    def app(self, store: str) -> hr.App:
        folders = {"state_uri": str(self.folder / "state"), "local_store_dir": str(self.folder / "stores")}
        app = hr.App(self.name, self.url, **folders)
        rows = app.stream(self.stream, key=hr.String(), value=hr.Long())
        rows.repartition(name="again").group_by_key().count(store=store).to_stream().to(f"{self.name}-out")
        return app

    def run(self, store: str, *overrides: str) -> dict[str, int]:
        """Another record of each key, then a run of the job; what the store holds after it."""
        self.system.produce(self.stream, [(key, 1) for key in KEYS], key=hr.String(), value=hr.Long())
        app = self.app(store)
        wiring.start(app, "caught-up", overrides=overrides, engine=InlineEngine(run_container)).wait(60)
        return {key: app.state(store).get(key) for key in KEYS}


@pytest.fixture
def world(url: str, tmp_path: Path) -> Iterator[World]:
    with hr.open_system(url) as system:
        yield World(url, system, tmp_path)


def of_all(count: int) -> dict[str, int]:
    return dict.fromkeys(KEYS, count)


def test_a_renamed_store_keeps_its_state_and_one_that_is_given_up_begins_empty(world: World) -> None:
    assert world.run("old") == of_all(1)
    with pytest.raises(hr.IncompatibleChangeError, match="store 'old' is no longer in the application"):
        world.run("new")
    assert world.run("new", "rename_stores=old=new") == of_all(3)  # with what came before the start that was refused
    assert world.run("new", "rename_stores=old=new") == of_all(4)
    assert world.run("third", "drop_stores=new") == of_all(1)
    assert world.run("third") == of_all(2)


@pytest.mark.parametrize("asked", ["rename_stores=old=new", "drop_stores=old"])
def test_a_start_that_dies_before_its_plan_is_stored_has_renamed_and_dropped_nothing(
    world: World, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert world.run("old") == of_all(1)

    def dies(name: str, step: int) -> None:
        if (name, step) == ("start", 8):
            raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(startup, "reached", dies)
        with pytest.raises(RuntimeError, match="killed"):
            world.run("new", asked)
    assert world.run("old") == of_all(3)
