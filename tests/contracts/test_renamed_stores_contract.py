"""Stores that are renamed with their state, or given up, on every system: also where a start dies before its plan is stored."""

from __future__ import annotations

from typing import ClassVar

import pytest

import headrace as hr
from headrace.driver.planning import job_planner as startup
from support.world import World

KEYS = [f"k{number}" for number in range(8)]


class Counting(World):
    """An input, and a job that counts by key in a store of any name."""

    STREAMS: ClassVar = {"in": 2}
    KEYS: ClassVar = {}

    def app(self, store: str) -> hr.App:
        app = super().app()
        rows = app.stream(self.stream("in"), key=hr.String(), value=hr.Long())
        rows.repartition(name="again").group_by_key().count(store=store).to_stream().to(f"{self.name}-out")
        return app

    def run(self, store: str, *overrides: str) -> dict[str, int]:
        """Another record of each key, then a run of the job; what the store holds after it."""
        self.produce_to("in", [(key, 1) for key in KEYS])
        app = self.app(store)
        super().run(app, overrides=overrides)
        return {key: app.state(store).get(key) for key in KEYS}


WORLD = Counting


def of_all(count: int) -> dict[str, int]:
    return dict.fromkeys(KEYS, count)


def test_a_renamed_store_keeps_its_state_and_one_that_is_given_up_begins_empty(world: Counting) -> None:
    assert world.run("old") == of_all(1)
    with pytest.raises(hr.IncompatibleChangeError, match="store 'old' is no longer in the application"):
        world.run("new")
    assert world.run("new", "rename_stores=old=new") == of_all(3)  # with what came before the start that was refused
    assert world.run("new", "rename_stores=old=new") == of_all(4)
    assert world.run("third", "drop_stores=new") == of_all(1)
    assert world.run("third") == of_all(2)


@pytest.mark.parametrize("asked", ["rename_stores=old=new", "drop_stores=old"])
def test_a_start_that_dies_before_its_plan_is_stored_has_renamed_and_dropped_nothing(
    world: Counting, asked: str, monkeypatch: pytest.MonkeyPatch
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
