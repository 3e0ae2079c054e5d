"""Whether an application that was edited may continue with the state and positions that it has stored. Operators may come and
go around a store: state is found under the store's name, in the task that its sub-topology gives it, as bytes of one form. What
changes the place or the form of a store that stays is refused, with how to recover."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from headrace.core.topology.store_forms import changes_of
from headrace.core.topology.sub_topologies import stores_of, sub_topologies_of
from headrace.errors import IncompatibleChangeError
from headrace.model.job_model import JobModel
from headrace.model.serde import Serde
from headrace.model.topology import StoreSpec, Topology


def store_forms(topology: Topology) -> Mapping[str, str]:
    """Store to `<sub-topology>|<form>`, as `JobModel.stores` keeps it; the source sub-topology is `source`."""
    return {
        store.name: f"{sub.title}|{store.form}"
        for sub in sub_topologies_of(topology)
        for node in sub.nodes
        for store in stores_of(node)
    }


def with_spark_types(store: StoreSpec, key: Serde | None = None, value: Serde | None = None) -> StoreSpec:
    """The store with the serdes that Spark's types turned out to be, in its form too, wherever it says `spark`."""
    known = {f"{side}=spark": f"{side}={serde.form}" for side, serde in (("key", key), ("value", value)) if serde is not None}
    form = " ".join(known.get(part, part) for part in store.form.split(" "))
    return replace(store, form=form, value=store.value or value)


REMOVED = "gone:"  # before the place and form of a store that the application no longer has


def in_use(stores: Mapping[str, str]) -> dict[str, str]:
    """Of a job model's stores those that its application has."""
    return {name: form for name, form in stores.items() if not form.startswith(REMOVED)}


def remembered(previous: JobModel | None, stores: Mapping[str, str]) -> dict[str, str]:
    """The stores for the next job model: those of now, and for ever the names of those that were there before."""
    before = {} if previous is None else previous.stores
    return {name: REMOVED + form.removeprefix(REMOVED) for name, form in before.items() if name not in stores} | dict(stores)


def refusals(previous: JobModel | None, stores: Mapping[str, str]) -> list[str]:
    """Why stored state cannot follow: one text per store, sorted by name. `stores` is what `store_forms` gives now. Of stores
    whose serdes are not known yet (`spark`) these are not compared."""
    found: list[str] = []
    before = {} if previous is None else previous.stores
    for name in sorted(before.keys() & stores.keys()):
        old, new = before[name], stores[name]
        if old.startswith(REMOVED):
            found.append(
                f"store {name!r} was removed from the application before, and has missed all records since: it cannot continue"
            )
            continue
        if _place(old) != _place(new):
            found.append(
                f"store {name!r} was in sub-topology {_place(old)!r} and is now in {_place(new)!r}: its tasks are others, "
                "and its state would not be found"
            )
        if changes := changes_of(_form(old), _form(new)):
            found.append(f"store {name!r}: {', '.join(changes)}: what it holds cannot be read as that")
    return found


def lost(previous: JobModel | None, stores: Mapping[str, str], begun: Collection[str] = ()) -> dict[str, str | None]:
    """The stores that hold state and are no longer in the application, while others are new: they may have been renamed.

    Each to the new one that it may have become, if any is alike. A store that is taken out with nothing in its place is none.
    `begun`: stores that begin again as requested, which no other store has become.

    >>> lost(JobModel("a", 1, (), stores={"old": "source|f", "other": "x|f"}), {"new": "source|f"})
    {'old': 'new', 'other': None}
    """
    if previous is None:
        return {}
    held = in_use(previous.stores)
    new = sorted(stores.keys() - previous.stores.keys() - set(begun))
    if not new:
        return {}
    found: dict[str, str | None] = {}
    for name in sorted(held.keys() - stores.keys()):
        alike = [other for other in new if not changes_of(_form(held[name]), _form(stores[other]))]
        alike = [other for other in alike if _place(held[name]) == _place(stores[other])] or alike
        found[name] = next(iter(difflib.get_close_matches(name, alike, 1, 0)), None)
        new = [other for other in new if other != found[name]]
    return found


def notes(previous: JobModel | None, stores: Mapping[str, str]) -> list[str]:
    """What continues, but should be said: stores that were removed, and stores that begin empty at the stored positions."""
    if previous is None:
        return []
    removed, new = sorted(in_use(previous.stores).keys() - stores.keys()), sorted(stores.keys() - previous.stores.keys())
    return [f"store {name!r} was removed; its state is dropped" for name in removed] + [
        f"store {name!r} is new and begins empty, at the stored positions" for name in new
    ]


def check_compatible(
    previous: JobModel | None,
    stores: Mapping[str, str],
    inputs: Collection[str] = (),
    system: str | None = None,
    begun: Collection[str] = (),
) -> None:
    """Raise `IncompatibleChangeError` with all refusals; nothing was changed by then. `inputs`: the streams that the
    application reads, and `system` where: for the commands in hints. `begun` as for `lost`."""
    found, missing = refusals(previous, stores), lost(previous, stores, begun)
    if previous is None or not (found or missing):
        return
    reasons = [*found, *(f"store {name!r} is no longer in the application, and its state would be lost" for name in missing)]
    removed_before = {name for name in stores if previous.stores.get(name, "").startswith(REMOVED)}
    changed = {name for name in stores if name in previous.stores and refusals(previous, {name: stores[name]})} - removed_before
    ways = ["undo that edit"] if changed else []
    if missing:
        ways.append(f"keep the old name{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}")
    moved = [name for name in changed if _place(previous.stores[name]) != _place(stores[name])]
    ways += [_renaming(previous, stores, missing)] if any(missing.values()) else []
    ways += [f"name the repartition before it as it was: {_named(_place(previous.stores[name]))}" for name in moved]
    given_up = sorted({*changed, *removed_before, *missing})
    drops = " ".join(f"--drop-store {name}" for name in given_up)
    ways.append(
        f"drop the state: `headrace run ... {drops}` (in Python: drop_stores={','.join(given_up)!r}), and rebuild the "
        f"empty stores from their input: {_rebuild(previous, inputs, system)}"
    )
    ways.append("run the edited application under another application name, from the beginning")
    raise IncompatibleChangeError(
        f"application {previous.application!r} is incompatible with its stored state: " + "; ".join(reasons), "; or ".join(ways)
    )


def _place(store: str) -> str:
    return store.removeprefix(REMOVED).partition("|")[0]


def _form(store: str) -> str:
    return store.partition("|")[2]


def _renaming(previous: JobModel, stores: Mapping[str, str], missing: Mapping[str, str | None]) -> str:
    """How to rename with the state: what a grouping or a join is named after, its repartition stream is too."""
    pairs = {old: new for old, new in missing.items() if new is not None}
    places = {_place(previous.stores[old]) for old, new in pairs.items() if _place(previous.stores[old]) != _place(stores[new])}
    options = " ".join(f"--rename-store {old}={new}" for old, new in pairs.items())
    before = "".join(f"{_named(place)} in front of it, so that its tasks stay, and " for place in sorted(places))
    return f"rename with the state: {before}`headrace run ... {options}`"


def _named(place: str) -> str:
    return "no repartition" if place == "source" else f"hr.Repartitioned(name={place!r})"


def _rebuild(previous: JobModel, inputs: Collection[str], system: str | None) -> str:
    at = f" --application {previous.application}" + (f" --system {system}" if system else "")
    which = "" if len(inputs) == 1 else f", with the input that it comes of as STREAM, of {', '.join(sorted(inputs))}"
    stream = "STREAM" if which else next(iter(inputs))
    return f"`headrace startpoint set {stream}{at} --earliest --state rewind`{which}"


def check_same_streams(
    previous: JobModel | None, ids: Mapping[str, str | None], counts: Mapping[str, int] | None = None
) -> None:
    """`IncompatibleChangeError` for a stream that was deleted, or deleted and recreated, since `previous` was stored: positions
    and state are of the old one. A stream that the job did not read then has neither, and is not compared.

    `ids`: every stream that the job reads now to its id, None for one that does not exist. `counts`: how many partitions
    they have, for the message.
    """
    known = {} if previous is None else previous.stream_ids
    changed = [name for name in sorted(ids) if name in known and ids[name] != known[name]]
    if previous is None or not changed:
        return
    name = changed[0]
    more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
    happened = "was deleted" if ids[name] is None else "was deleted and recreated"
    before, now = previous.partition_counts.get(name), (counts or {}).get(name)
    if ids[name] is not None and before is not None and now is not None and before != now:
        happened += f", with {now} partitions in place of {before},"
    raise IncompatibleChangeError(
        f"stream {name!r}{more} {happened} since application {previous.application!r} last ran: its positions and "
        "state belong to the deleted stream",
        "run the application under another name, or in another folder, to begin with the streams as they are",
    )


def check_same_partitioning(previous: JobModel | None, by_users: Collection[str], under_state: Iterable[str]) -> None:
    """`IncompatibleChangeError` where a stream came by its keys and now goes by a user's partitioner, or the other way.
    `by_users`: the streams that have a partitioner now; `under_state`: those that operators with state take. Of one partitioner
    that was replaced this is unknown."""
    if previous is None:
        return
    for stream in sorted(under_state):
        before, now = stream in previous.partitioned_by_users, stream in by_users
        if stream in previous.partition_counts and before != now:
            ways = ("the key", "a partitioner")
            raise IncompatibleChangeError(
                f"repartition stream {stream!r} was written by {ways[before]}, and is now by {ways[now]}: a key's records "
                "would come to other tasks than its state",
                "undo that edit; or give the repartition, and the stores behind it, other names, and drop the old stores "
                "(headrace run --drop-store NAME): then they begin empty",
            )
