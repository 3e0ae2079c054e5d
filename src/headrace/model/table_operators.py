"""The operators of tables that send rows on to other tasks: nodes of the topology as those in `model.topology`."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.serde import Serde
from headrace.model.topology import Function, Node, StoreSpec
from headrace.model.windows import AnyWindows


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GroupTable(Node):
    """Sends each row of a table to the group whose key `function` gives, of serde `key`, and takes it out of the one where it
    was: its store remembers for each key of the table where its row was sent, and with which value.

    `windows`: those that the table's keys belong to, where results of windows come as they change. `by_inner_key`: the task
    has read its records by the key within these windowed keys.
    """

    store: StoreSpec
    function: Function
    key: Serde | None = None
    value: Serde | None = None
    windows: AnyWindows | None = None
    by_inner_key: bool = False
