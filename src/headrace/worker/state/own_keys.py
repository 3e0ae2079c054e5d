"""A virtual task's state is of its own key bucket only: entries of other keys would be lost to their task at the next change of
the elasticity factor, and to those who look up a key. So a round that would commit such an entry fails."""

from __future__ import annotations

from typing import Any

from headrace.core.keys.key_layout import OF_THE_TASK, TIME_INDEXES, range_in, slots_of, split_state_key
from headrace.core.topology.sub_topologies import broadcast_databases, stores_of
from headrace.errors import StateError


def check_own_keys(task_run: Any, state: Any) -> None:
    """`StateError` where a round of a virtual task has changed an entry under a key that is not of its bucket. Stores of what
    is broadcast are whole in every task."""
    bucket = task_run.bucket
    slots = slots_of(bucket)
    if slots is None:
        return
    shared = broadcast_databases(task_run.program.nodes)
    for name, first, last in state.changed_bounds():
        if name == OF_THE_TASK or name in shared:
            continue
        low, high = range_in(name, slots)
        for layout in (first, last):
            if layout < low or (high is not None and layout >= high):
                raise StateError(
                    f"task {task_run.task}: {_operator_of(name, task_run.program)} has changed state under "
                    f"{_shown(name, layout)}, which is not of key bucket {bucket.index} of {bucket.factor}",
                    "state is kept under the key of the record as it was read: where a function gives records other keys, use "
                    "select_key, or name them in the operator (key=), so that they are repartitioned",
                )


def _operator_of(database: str, program: Any) -> str:
    for node in program.nodes:
        for store in stores_of(node):
            if store.kept_in == database:
                return f"operator {node.name!r}, in store {store.name!r},"
    return f"an operator, in {database},"


def _shown(database: str, layout: bytes) -> str:
    return "a time of a key" if database in TIME_INDEXES else f"key {split_state_key(layout)[0]!r:.120}"
