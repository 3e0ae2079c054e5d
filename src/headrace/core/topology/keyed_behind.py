"""Which processors have an operator behind them that meets records by their keys, with no repartition stream in between.

A processor that is not said to give other keys (`Process.rekeys`) has its records where the keys are that it was given. Were it
to forward another key to such an operator, the records of that key would be in several tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.core.topology.sub_topologies import meets_by_key
from headrace.model import topology as t


def keyed_behind(nodes: Sequence[t.Node]) -> dict[str, dict[str, str]]:
    """Of the processors of a sub-topology that give the keys that they are given: by the name of each operator that follows one
    directly, the nearest that meets its records by key, itself or behind it. `nodes`: parents before children."""
    children: dict[str, list[t.Node]] = {}
    for node in nodes:
        for parent in node.parents:
            children.setdefault(parent, []).append(node)
    nearest: dict[str, str] = {}  # operator -> the nearest that meets by key what it is given
    for node in reversed(nodes):
        if meets_by_key(node):
            nearest[node.name] = node.name
        elif not _gives_other_keys(node):
            found = (nearest[child.name] for child in children.get(node.name, ()) if child.name in nearest)
            if (name := next(found, None)) is not None:
                nearest[node.name] = name
    return {
        node.name: behind
        for node in nodes
        if isinstance(node, t.Process) and not node.rekeys and (behind := _of(children.get(node.name, ()), nearest))
    }


def _of(children: Sequence[t.Node], nearest: Mapping[str, str]) -> dict[str, str]:
    return {child.name: nearest[child.name] for child in children if child.name in nearest}


def _gives_other_keys(node: t.Node) -> bool:
    """What meets its records by key has a repartition stream in between: the DSL puts it there."""
    return isinstance(node, t.SelectKey | t.Map | t.FlatMap | t.Transform) or (isinstance(node, t.Process) and node.rekeys)
