"""Startpoints under every schedule of a small world: each is applied once, never lost, never again after it was spent."""

from __future__ import annotations

import pytest

from commit_model import StartpointBounds, StartpointModel, StartpointSafeguards, explore

BACK = StartpointBounds()
ON = StartpointBounds(asked=("on",))
BOTH = StartpointBounds(asked=("back", "on"), read_before=1)
DELETED = StartpointBounds(deletions=("back",))
BOTH_AND_DELETED = StartpointBounds(asked=("on", "back"), deletions=("on",), drivers=1, epochs=4)
FOUR_EPOCHS = StartpointBounds(epochs=4)

WORLDS = {
    "back": BACK,
    "on to the end": ON,
    "one after the other": BOTH,
    "deleted": DELETED,
    "one after the other, deleted": BOTH_AND_DELETED,
    "four epochs": FOUR_EPOCHS,
}

# Per safeguard: a world in which it is needed, and a word of what breaks there without it.
INDISPENSABLE = {
    "epoch_check": (BACK, "lost"),
    "one_transaction": (ON, "and now to"),
    "taken_up_once": (BACK, "applied again"),
    "removed_after": (BACK, "lost"),
    "removed_by_id": (BACK, "lost"),
    "resolved_once": (ON, "and now to"),
    "per_partition": (BACK, "has moved nothing"),
    "spent_seen_at_planning": (DELETED, "has been applied"),
    "taken_back_unmoved": (DELETED, "takes back"),
}

# Safeguards that are only needed where another one has failed: alone it changes nothing, with the other it does.
COVERED_BY = {"taken_back_unmoved": "spent_seen_at_planning"}


@pytest.mark.parametrize("world", WORLDS)
def test_no_schedule_breaks_an_invariant(world: str) -> None:
    found = explore(StartpointModel(WORLDS[world]))
    print(f"{world}: {found}")
    assert found.counterexample is None, str(found)
    assert found.complete
    assert found.finishes, "no schedule comes to an end"


def test_every_safeguard_is_shown_indispensable_somewhere() -> None:
    assert sorted(INDISPENSABLE) == sorted(StartpointSafeguards.names())


@pytest.mark.parametrize("safeguard", StartpointSafeguards.names())
def test_without_one_safeguard_a_schedule_breaks_an_invariant(safeguard: str) -> None:
    world, what = INDISPENSABLE[safeguard]
    out = [safeguard, *filter(None, [COVERED_BY.get(safeguard)])]
    found = explore(StartpointModel(world, StartpointSafeguards().without(*out)))
    print(f"without {', '.join(out)}: {found}")
    assert found.counterexample is not None, f"nothing breaks without {out}: {found}"
    assert what in found.counterexample.violation, str(found)


@pytest.mark.parametrize("safeguard", COVERED_BY)
def test_a_safeguard_that_another_covers_for_is_not_needed_alone(safeguard: str) -> None:
    found = explore(StartpointModel(INDISPENSABLE[safeguard][0], StartpointSafeguards().without(safeguard)))
    assert found.counterexample is None, str(found)
    assert found.complete
