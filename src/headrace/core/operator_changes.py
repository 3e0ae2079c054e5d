"""Owns which operators of an application were added, removed and renamed since it last ran, and whose timers an operator has.

The operators of a run are on record with its job model. Two operators are taken for one that was renamed where they are of
one kind, hold the same stores or read from the same operators, and one is missing and the other new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.described import kind_of
from headrace.core.sub_topologies import SubTopology, stores_of
from headrace.model.topology import Join, Process, Repartition, Sink, Source

_KINDS_WITH_TIMERS = (Process, Join)


@dataclass(frozen=True, slots=True)
class RunOperator:
    """An operator as it was run. `about`: the stream that it reads or writes. `databases`: of its stores.

    `timers`: the name that its timers are kept under.
    """

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
        said = []
        if self.added:
            said.append(f"added {', '.join(self.added)}")
        if self.removed:
            said.append(f"removed {', '.join(self.removed)}")
        if self.renamed:
            said.append("renamed " + ", ".join(f"{old} to {new}" for old, new in self.renamed.items()))
        return [f"operators since the last run: {'; '.join(said)}"] if said else []


def run_operators(
    subs: Iterable[SubTopology], databases: Mapping[str, str], before: Sequence[RunOperator] | None
) -> tuple[RunOperator, ...]:
    """The operators of an application. `databases`: of stores that are kept under other names; `before`: those on record."""
    owner_of = {database: one.timers for one in before or () for database in one.databases}
    found = []
    for sub in subs:
        for node in sub.nodes:
            held = tuple(databases.get(store.name, store.name) for store in stores_of(node))
            owner = node.name
            if isinstance(node, _KINDS_WITH_TIMERS) and held:
                owner = owner_of.get(held[0]) or _owner_without_record(node, held[0], before)
            about = node.stream if isinstance(node, Source | Sink | Repartition) and isinstance(node.stream, str) else ""
            found.append(RunOperator(node.name, kind_of(node), sub.title, node.parents, about, held, owner))
    return tuple(found)


def _owner_without_record(node: Process | Join, database: str, before: Sequence[RunOperator] | None) -> str:
    """Of a job that an older version ran: stores of a join were named after it."""
    if before is None and isinstance(node, Join) and database != node.stores[0].name:
        return database.removesuffix("-left")
    return node.name


def timer_owners(operators: Iterable[RunOperator]) -> dict[str, str]:
    """The operators whose timers are kept under another name than their own."""
    return {one.name: one.timers for one in operators if one.timers not in ("", one.name)}


def changes_between(before: Sequence[RunOperator] | None, now: Sequence[RunOperator]) -> OperatorChanges:
    """What an edit did. `before` None: not known, and nothing is said."""
    if before is None:
        return OperatorChanges()
    old_names, new_names = {one.name for one in before}, {one.name for one in now}
    gone = [one for one in before if one.name not in new_names]
    renamed: dict[str, str] = {}
    for one in now:  # parents first: so their new names are known
        if one.name in old_names:
            continue
        match = next((other for other in gone if _is_same(other, one, renamed)), None)
        if match is not None:
            gone.remove(match)
            renamed[match.name] = one.name
    return OperatorChanges(
        tuple(one.name for one in now if one.name not in old_names and one.name not in renamed.values()),
        tuple(one.name for one in gone),
        renamed,
    )


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
