"""Plans over random histories of one application: judged one by one, and made twice, as by a driver that was killed."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from headrace.core.job_plan.draft import Draft
from headrace.core.job_plan.planner import Refusal
from headrace.core.job_plan.text import difference, text_of
from headrace.model.startpoint import Startpoint
from planning.judging import judge
from planning.planned_model import EARLIEST, LATEST, STRINGS, PlannedModel, offset
from planning.scenarios import two_inputs, two_parts

REPARTITION = "tally-by-page-repartition"
BUILDS = (two_parts, two_inputs, lambda app: app.stream("clicks", **STRINGS).to("clicks-out"))
STARTPOINTS: tuple[Startpoint, ...] = (EARLIEST, LATEST, offset(3), offset(8))
ACTIONS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(["clicks", "views"]), st.integers(0, 9)),
    st.tuples(st.just("run"), st.just(""), st.integers(1, 6)),
    st.tuples(st.just("expand"), st.sampled_from(["clicks", "views"]), st.integers(1, 3)),
    st.tuples(st.just("request"), st.sampled_from(["clicks", "views"]), st.integers(0, len(STARTPOINTS) - 1)),
    st.tuples(st.just("edit"), st.just(""), st.integers(0, len(BUILDS) - 1)),
    st.tuples(st.just("slots"), st.just(""), st.integers(1, 5)),
)


@given(st.lists(ACTIONS, min_size=1, max_size=12), st.booleans())
def test_every_plan_of_a_history_holds_what_it_must(actions: list[tuple[str, str, int]], is_replan: bool) -> None:
    world = run(actions, is_replan)
    assert world.snapshot.model is not None


def run(actions: list[tuple[str, str, int]], is_replan: bool) -> PlannedModel:
    """Play a history, and judge each of its plans."""
    world = PlannedModel(two_parts, {"clicks": 2, "views": 2})
    world.start()
    for number, (action, stream, value) in enumerate(actions):
        act(world, action, stream, value, f"{number}")
        made = world.plan(is_replan and action != "edit")
        if isinstance(made, Refusal):
            world.snapshot = replace(world.snapshot, startpoints=replace(world.snapshot.startpoints, requests={}))
            if action == "edit":
                world.edit(two_parts)
            continue
        judge(made, world.snapshot)
        assert text_of(made) == text_of(world.plan(made.terms.is_replan)), "the same again, from the same snapshot"
        world.commit(made)
        again = world.plan(made.terms.is_replan)
        assert not isinstance(again, Refusal)
        assert is_settled(again), "\n".join(difference(made, again))
        assert again.checkpoints == made.checkpoints
    return world


def is_settled(again: Draft) -> bool:
    """Whether the plan that comes right after a plan changes nothing that is stored."""
    changes = (again.creates, again.changed_startpoints, again.rewind_changes.versions, again.rewind_changes.rewinds)
    return not any(changes) and again.done == ()


def act(world: PlannedModel, action: str, stream: str, value: int, id_: str) -> None:
    match action:
        case "write":
            world.write(stream, value)
        case "run":
            world.run(value)
        case "expand":
            count = world.snapshot.streams[stream].partitions
            if count * value <= 16:
                world.expand(stream, count * value)
        case "request":
            world.request(id_, stream, STARTPOINTS[value])
        case "edit":
            world.edit(BUILDS[value])
        case "slots":
            world.terms = replace(world.terms, slots=value)


def test_offsets_are_looked_up_within_the_snapshot_only() -> None:
    """A plan that is made twice from one snapshot asks the same questions: nothing else leads to the system."""
    world = PlannedModel(two_parts, {"clicks": 2})
    world.start()
    world.offsets.asked.clear()
    world.plan()
    first = list(world.offsets.asked)
    world.offsets.asked.clear()
    world.plan()
    assert world.offsets.asked == first != []
