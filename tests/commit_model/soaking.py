"""Searches that take too long for a test, for `make soak`."""

from __future__ import annotations

from commit_model.explore import explore
from commit_model.group_model import GroupBounds, GroupModel

STATES_MAX = 5_000_000
GROUPS = (
    GroupBounds(leaders=2, attempts=3),
    GroupBounds(leaders=2, attempts=3, lane_to=2),
    GroupBounds(leaders=2, attempts=3, restarts=True),
    GroupBounds(leaders=2, attempts=2, delays=2),
    GroupBounds(records=2, attempts=4),
)


def search_groups() -> int:
    """All schedules of larger groups; the number of states. `AssertionError` with the schedule that breaks an invariant."""
    states = 0
    for bounds in GROUPS:
        found = explore(GroupModel(bounds), STATES_MAX)
        print(f"  a group, {bounds}: {found}", flush=True)
        assert found.counterexample is None and found.complete and found.finishes, f"{bounds}: {found}"
        states += found.states
    return states
