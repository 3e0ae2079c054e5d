"""Bugs that are put into the planner on purpose: golden files, or the judgement of random plans, must see each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace.core.job_plan import apply_startpoints, history, planner, positions, streams, tasks
from headrace.core.job_plan import startpoints as startpoints_step
from headrace.core.job_plan.checkpoint_inheritance import InheritedPositions
from headrace.core.topology.partition_families import Meetings
from headrace.model.startpoint import StartpointEntry
from planning.scenarios import SCENARIOS, text_of_scenario

DATA = Path(__file__).parent / "testdata"


def returning(change: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function whose result is changed."""
    return lambda function: lambda *args, **kwargs: change(function(*args, **kwargs))


def without(**fields: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The job model with these fields as given."""
    return lambda function: lambda previous, model: function(previous, replace(model, **fields))


def _without_watermarks(carried: InheritedPositions) -> InheritedPositions:
    return replace(carried, watermarks={})


def _in_reverse(entries: list[StartpointEntry], owners: Any) -> Any:
    from headrace.core.rewind.startpoint_rules import places_of

    return {place: entry for entry in reversed(list(entries)) for place in places_of(entry, owners)}


@contextmanager
def unnamed(*args: object) -> Iterator[None]:
    """An error says nothing of the startpoint that it is about."""
    yield


BUGS: dict[str, tuple[ModuleType, str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "positions that were left are forgotten": (tasks, "left_of", returning(lambda found: ())),
    "names of removed stores are forgotten": (tasks, "remembered", lambda function: lambda previous, forms: dict(forms)),
    "an expansion is not put on record": (tasks, "recorded", lambda function: lambda before, *rest: dict(before)),
    "one container less": (tasks, "containers_of", lambda function: lambda made, count: function(made, max(1, count - 1))),
    "a partition is left out": (tasks, "tasks_of", returning(lambda made: made[:-1] or made)),
    "ids of streams are not in the job model": (tasks, "next_job_model", without(stream_ids={})),
    "a renamed store begins in a database of its own": (tasks, "next_job_model", without(databases={})),
    "outputs are not created": (tasks, "_output_counts", returning(lambda found: {})),
    "streams that meet may have any counts": (
        streams,
        "partition_counts_of",
        lambda function: lambda requests, *rest: function(replace(requests, meetings=Meetings()), *rest),
    ),
    "growth that cannot be followed is followed": (
        streams,
        "changes_of",
        lambda function: lambda before, now, otherwise, by_users, **rest: function(before, now, set(before), by_users, **rest),
    ),
    "a recreated stream is taken for the old one": (
        streams,
        "check_same_streams",
        lambda function: lambda previous, ids, counts: None,
    ),
    "partitions are counted from the start of the job": (streams, "counts_before", returning(lambda before: {})),
    "a born partition begins where its source says": (
        positions,
        "_Starts",
        lambda starts: lambda offsets, before: starts(offsets, {}),
    ),
    "watermarks are not inherited": (positions, "inherited_positions_of", returning(_without_watermarks)),
    "a job that runs begins again where its sources say": (
        positions,
        "_starts_over",
        lambda function: lambda source, terms: function(source, replace(terms, is_replan=False)),
    ),
    "lost records are skipped without a word": (positions, "lost_offsets", lambda function: lambda *args: ()),
    "records of a removed repartition are lost": (positions, "_unread", returning(lambda unread: {})),
    "what is read again is late": (
        apply_startpoints,
        "_moved",
        lambda function: lambda checkpoint, ones: replace(function(checkpoint, ones), watermarks=checkpoint.watermarks),
    ),
    "the earlier startpoint wins": (apply_startpoints, "winners", lambda function: _in_reverse),
    "a startpoint moves nothing": (apply_startpoints, "_moved", lambda function: lambda checkpoint, ones: checkpoint),
    "applied startpoints stay pending": (apply_startpoints, "applied_by", lambda function: lambda *args: {}),
    "superseded startpoints stay pending": (apply_startpoints, "_superseded", lambda function: lambda *args: {}),
    "a handed-over range is handed over again": (
        startpoints_step,
        "handovers_set_elsewhere",
        lambda function: lambda *args: {},
    ),
    "a startpoint that cannot be done takes others with it": (
        startpoints_step,
        "_guilty",
        lambda function: lambda draft, snapshot, asked, error: {entry.id: "" for entry in asked.entries},
    ),
    "an error does not say which startpoint it is about": (apply_startpoints, "_named", lambda function: unnamed),
    "a refused expansion is not on record": (history, "_expansions", lambda function: lambda *args: iter(())),
    "who has requested a startpoint is not on record": (
        history,
        "_startpoints",
        returning(lambda changes: (replace(change, requested_by="") for change in changes)),
    ),
    "a job that runs ends where its grouper refuses an expansion": (
        planner,
        "changed_streams",
        lambda function: lambda *args: frozenset(),
    ),
    "a bootstrap begins like any other start": (
        startpoints_step,
        "with_bootstraps",
        lambda function: lambda asked, *rest: asked,
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_seen(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, planted = BUGS[bug]
    monkeypatch.setattr(module, name, planted(getattr(module, name)))
    assert next(differing(), None) is not None, f"nothing sees that {bug}"


def differing() -> Iterator[str]:
    """The scenarios whose plans are not those of their files."""
    for scenario in SCENARIOS:
        try:
            same = text_of_scenario(scenario) == (DATA / f"{scenario.__name__}.txt").read_text(encoding="utf-8")
        except Exception:
            same = False
        if not same:
            yield scenario.__name__


def test_without_a_bug_nothing_differs() -> None:
    assert list(differing()) == []
