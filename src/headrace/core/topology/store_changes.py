"""What a user asks for the stores of an edited application: to give the state of one up, or to give one another name.

No entry moves for that. The job model says in which database of the tasks a store is kept: a renamed store keeps its
database, and one that begins again gets another. So either is done when the job model is stored, in one transaction, and what
is kept, rewound to or sealed under a database's name stays as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, count

from headrace.core.keys.key_layout import TIMES
from headrace.core.topology.compatibility import REMOVED, in_use, refusals
from headrace.core.topology.sub_topologies import stores_of
from headrace.errors import ConfigError, IncompatibleChangeError
from headrace.model.job_model import JobModel
from headrace.model.table_operators import ForeignKeyResults, GroupTable, LimitUpdates, SendByForeignKey, VersionedTable
from headrace.model.topology import Aggregate, DropDuplicates, Join, Node, Process, Suppress, Table

_WITH_ONE_STORE = (Aggregate, Table, DropDuplicates, Suppress, GroupTable, SendByForeignKey, LimitUpdates)


@dataclass(frozen=True, slots=True)
class StoreRequests:
    """`drops`: stores whose state is given up where it cannot be used. `renames`: old name to new name."""

    drops: frozenset[str] = frozenset()
    renames: Mapping[str, str] = field(default_factory=dict)


def requests_of(drop_stores: str | None, rename_stores: str | None) -> StoreRequests:
    """The requests in the texts of two configuration keys; `ConfigError` for what is none.

    >>> requests_of("a", "old=new")
    StoreRequests(drops=frozenset({'a'}), renames={'old': 'new'})
    """
    drops = frozenset(_items(drop_stores))
    renames: dict[str, str] = {}
    for item in _items(rename_stores):
        old, _, new = (part.strip() for part in item.partition("="))
        if not old or not new or old == new:
            raise ConfigError(f"rename_stores: expected OLD=NEW, found {item!r}", "for example rename_stores=counts=totals")
        if old in renames or new in renames.values():
            raise ConfigError(f"rename_stores: {item!r} names a store twice", "rename each store once, to a name of its own")
        renames[old] = new
    if both := sorted(drops & {*renames, *renames.values()}):
        raise ConfigError(
            f"store {both[0]!r} is in drop_stores and in rename_stores", "its state is either kept or dropped: leave one out"
        )
    return StoreRequests(drops, renames)


def requested(previous: JobModel | None, stores: Mapping[str, str], requests: StoreRequests) -> JobModel | None:
    """The previous job model with its stores named and given up as `requests` say. `stores`: what `store_forms` gives now.

    A request that was carried out before, or that asks for nothing, changes nothing: so it may stay in a configuration, also
    where the store has been renamed again since.
    Raises `ConfigError` for a store that neither had or has, `IncompatibleChangeError` for a name that cannot be given.
    """
    if previous is None:
        return None
    for old in requests.renames:
        previous = _renamed(previous, stores, old, _name_now(old, previous, stores, requests.renames))
    for name in sorted(requests.drops):
        previous = _dropped(previous, stores, name)
    return previous


def databases_of(previous: JobModel | None, stores: Mapping[str, str]) -> dict[str, str]:
    """The databases of `stores`, where they have other names: one that is new begins in one that nothing is or was in.
    `previous` is what `requested` gives: of its stores those that are not in `stores` keep theirs."""
    if previous is None:
        return {}
    databases = {name: previous.databases.get(name, name) for name in previous.stores}
    taken = {*databases.values(), *previous.dropped}
    for name in sorted(stores.keys() - in_use(previous.stores).keys()):
        databases[name] = free_name(name, taken)
        taken.add(databases[name])
    return {name: database for name, database in databases.items() if database != name}


def emptied_databases(model: JobModel, place: str) -> tuple[str, ...]:
    """The databases whose entries are to be deleted in the tasks of the sub-topology titled `place`."""
    removed = {model.databases.get(name, name) for name, form in model.stores.items() if form.startswith(f"{REMOVED}{place}|")}
    emptied = removed | {database for database, where in model.dropped.items() if where == place}
    return tuple(sorted(emptied | {database + TIMES for database in emptied}))


def change_notes(before: JobModel | None, after: JobModel | None) -> list[str]:
    """What `requested` has made of the stores, for people."""
    if before is None or after is None:
        return []
    was, now = in_use(before.stores), in_use(after.stores)
    kept_in = {before.databases.get(name, name): name for name in was}
    renamed = {name: kept_in.get(after.databases.get(name, name)) for name in sorted(now.keys() - was.keys())}
    notes = [f"store {old!r} is now {new!r}, with its state" for new, old in renamed.items()]
    given_up = sorted(was.keys() - now.keys() - set(renamed.values()))
    return notes + [f"the state of store {name!r} was given up, as requested" for name in given_up]


def in_databases(node: Node, databases: Mapping[str, str]) -> Node:
    """The operator with its stores in the databases that the job model says."""
    stores = tuple(replace(store, database=databases.get(store.name)) for store in stores_of(node))
    if isinstance(node, VersionedTable):
        return replace(node, store=stores[0], versions=stores[1])
    if isinstance(node, _WITH_ONE_STORE):
        return replace(node, store=stores[0])
    return replace(node, stores=stores) if isinstance(node, Process | Join | ForeignKeyResults) else node


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def free_name(name: str, taken: Collection[str]) -> str:
    """`name`, or with a number behind it where it is taken.

    >>> free_name("counts", {"counts", "counts~2"})
    'counts~3'
    """
    numbered = (f"{name}~{number}" for number in count(2))
    return next(one for one in chain([name], numbered) if one not in taken)


def _name_now(old: str, previous: JobModel, stores: Mapping[str, str], renames: Mapping[str, str]) -> str:
    """What a renamed store is called in the end: through names that neither the application nor its state has any more.

    >>> _name_now("a", JobModel("j", 1, (), stores={"c": "source|f"}), {"c": "source|f"}, {"a": "b", "b": "c"})
    'c'
    """
    name, passed = renames[old], {old}
    while name not in stores and name not in in_use(previous.stores) and name in renames and name not in passed:
        passed.add(name)
        name = renames[name]
    return name


def _renamed(previous: JobModel, stores: Mapping[str, str], old: str, new: str) -> JobModel:
    known = in_use(previous.stores)
    if old not in known:
        if new not in known:
            _refuse_unknown(previous, "rename_stores", old, known)
        return previous  # it was done before
    if new not in stores:
        raise ConfigError(
            f"rename_stores: the application has no store {new!r}, which {old!r} is to be named",
            f"its stores are: {', '.join(sorted(stores)) or 'none'}",
        )
    if old in stores or new in known:
        holder = "is still in the application" if old in stores else f"cannot be named {new!r}: that store has state of its own"
        raise IncompatibleChangeError(
            f"rename_stores: store {old!r} {holder}",
            "a store keeps its state under another name only where the old name goes and the new one is new",
        )
    after = _without(previous, new) if new in previous.stores else previous
    database = after.databases.get(old, old)
    forms, databases = _less(after.stores, old), _less(after.databases, old)
    return replace(after, stores=forms | {new: after.stores[old]}, databases=databases | {new: database})


def _dropped(previous: JobModel, stores: Mapping[str, str], name: str) -> JobModel:
    if name not in previous.stores:
        if name not in stores and name not in previous.databases.values() and name not in previous.dropped:
            _refuse_unknown(previous, "drop_stores", name, in_use(previous.stores))
        return previous
    if name in stores:  # given up only where it cannot be used
        return _without(previous, name) if refusals(previous, {name: stores[name]}) else previous
    form = REMOVED + previous.stores[name].removeprefix(REMOVED)
    return replace(previous, stores={**previous.stores, name: form})


def _without(previous: JobModel, name: str) -> JobModel:
    """With nothing under that name: what was there is deleted from its database, and a store of the name is a new one."""
    place = previous.stores[name].removeprefix(REMOVED).partition("|")[0]
    dropped = {**previous.dropped, previous.databases.get(name, name): place}
    return replace(previous, stores=_less(previous.stores, name), databases=_less(previous.databases, name), dropped=dropped)


def _less(named: Mapping[str, str], name: str) -> dict[str, str]:
    return {each: value for each, value in named.items() if each != name}


def _refuse_unknown(previous: JobModel, key: str, name: str, known: Iterable[str]) -> None:
    near = difflib.get_close_matches(name, sorted(known), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"its stores are: {', '.join(sorted(known)) or 'none'}"
    raise ConfigError(f"{key}: application {previous.application!r} has no store {name!r}", hint)
