"""The operators of streams that are not in `model.topology`, which is long enough: nodes of the topology as those there."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.topology import Function, Node


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SetHeaders(Node):
    """The function gives the headers of each record, in place of those that it has."""

    function: Function
