"""Which operators of an application were added, removed and renamed since it last ran, and whose timers an operator has. The
operators of a run are on record with its job model. Two operators are taken for one that was renamed where they are of one
kind, hold the same stores or read from the same operators, and one is missing and the other new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.core.topology.description import kind_of
from headrace.core.topology.store_changes import free_name
from headrace.core.topology.sub_topologies import SubTopology, stores_of
from headrace.model.topology import Join, Node, Process, Repartition, Sink, Source


@dataclass(frozen=True, slots=True)
class RunOperator:
    """An operator as it was run. `about`: the stream that it reads or writes. `databases`: of its stores. `timers`: the name
    that its timers are kept under."""

    name: str
    kind: str
    sub_topology: str
    parents: tuple[str, ...]
    about: str = ""
    databases: tuple[str, ...] = ()
    timers: str = ""


@dataclass(frozen=True, slots=True)
class OperatorChanges:
    """Names, in the order of the topology. `renamed`: old name to new name."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    renamed: Mapping[str, str] | None = None

    def notes(self) -> list[str]:
        """For people: nothing where nothing changed.

        >>> OperatorChanges(("peek",), (), {"counts": "totals"}).notes()
        ['operators since the last run: added peek; renamed counts to totals']
        """
        renamed = [f"{old} to {new}" for old, new in (self.renamed or {}).items()]
        changes = (("added", self.added), ("removed", self.removed), ("renamed", renamed))
        listed = "; ".join(f"{change} {', '.join(names)}" for change, names in changes if names)
        return [f"operators since the last run: {listed}"] if listed else []


def run_operators(
    subs: Iterable[SubTopology], databases: Mapping[str, str], before: Sequence[RunOperator] | None
) -> tuple[RunOperator, ...]:
    """The operators of an application. `databases`: of stores that are kept under other names; `before`: those on record."""
    nodes, found = {}, []
    for sub in subs:
        for node in sub.nodes:
            held = tuple(databases.get(store.name, store.name) for store in stores_of(node))
            about = node.stream if isinstance(node, Source | Sink | Repartition) and isinstance(node.stream, str) else ""
            nodes[node.name] = node
            found.append(RunOperator(node.name, kind_of(node), sub.title, node.parents, about, held))
    owners = _owners_of_timers(nodes, found, before)
    return tuple(replace(one, timers=owners.get(one.name, one.name)) for one in found)


def _owners_of_timers(
    nodes: Mapping[str, Node], now: Sequence[RunOperator], before: Sequence[RunOperator] | None
) -> dict[str, str]:
    """The name that each operator with timers has them under: no two have one. An operator whose name is on record keeps its
    own, one that was renamed those of its old name, and a new one has none: where another operator has the name of a new one,
    that gets a free one."""
    was = {one.name: one for one in before or ()}
    old_names = {new: old for old, new in (changes_between(before, now).renamed or {}).items()}
    owners: dict[str, str] = {}
    timed = [one for one in now if _has_timers(nodes[one.name])]
    continuing = [one for one in timed if one.name in was and _are_timers_alike(was[one.name], one)]
    for one in continuing:
        owners[one.name] = was[one.name].timers or one.name
    taken = set(owners.values())
    for one in timed:
        if one.name in owners:
            continue
        old = was.get(old_names.get(one.name, ""))
        wanted = _owner_without_record(nodes[one.name], one, before) if old is None else old.timers or old.name
        owners[one.name] = free_name(wanted if wanted not in taken else one.name, taken)
        taken.add(owners[one.name])
    return owners


def _has_timers(node: Node) -> bool:
    return node.timers if isinstance(node, Process) else isinstance(node, Join) and bool(node.stores)


def _are_timers_alike(one: RunOperator, other: RunOperator) -> bool:
    """Of two joins of any kinds, or of two others."""
    return one.kind.endswith("join") == other.kind.endswith("join")


def _owner_without_record(node: Node, one: RunOperator, before: Sequence[RunOperator] | None) -> str:
    """Of a job that an older version ran: stores of a join were named after it."""
    if before is None and isinstance(node, Join) and one.databases[0] != node.stores[0].name:
        return one.databases[0].removesuffix("-left")
    return one.name


def timer_owners(operators: Iterable[RunOperator]) -> dict[str, str]:
    """The operators whose timers are kept under another name than their own."""
    return {one.name: one.timers for one in operators if one.timers not in ("", one.name)}


def changes_between(before: Sequence[RunOperator] | None, now: Sequence[RunOperator]) -> OperatorChanges:
    """What an edit did. `before` None: not known, and nothing is said."""
    if before is None:
        return OperatorChanges()
    old_names, new_names = {one.name for one in before}, {one.name for one in now}
    removed = [one for one in before if one.name not in new_names]
    added: list[str] = []
    renamed: dict[str, str] = {}
    for one in now:  # parents first: so their new names are known
        if one.name in old_names:
            continue
        alike = [other for other in removed if _is_same(other, one, renamed)]
        # of several that shared a store the one that reads the same
        match = next((other for other in alike if _reads_alike(other, one, renamed)), alike[0] if alike else None)
        if match is None:
            added.append(one.name)
        else:
            removed.remove(match)
            renamed[match.name] = one.name
    return OperatorChanges(tuple(added), tuple(one.name for one in removed), renamed)


def _is_same(old: RunOperator, new: RunOperator, renamed: Mapping[str, str]) -> bool:
    if old.kind != new.kind:
        return False
    if old.databases or new.databases:
        if set(old.databases) & set(new.databases):
            return True
        return len(old.databases) == len(new.databases) and _reads_alike(old, new, renamed)
    return old.about == new.about and _reads_alike(old, new, renamed)


def _reads_alike(old: RunOperator, new: RunOperator, renamed: Mapping[str, str]) -> bool:
    return tuple(renamed.get(parent, parent) for parent in old.parents) == new.parents
