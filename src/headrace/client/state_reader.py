"""Reading state from outside, as committed (protocol.md 15): by key, or a store as a whole.

It reads the state files that the current checkpoints name, never the local stores: a job that runs is not disturbed, and
what is committed but not yet applied is there.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from headrace import wiring
from headrace.adapters.common.consistent_reads import plan_and_checkpoints
from headrace.client.application_client import named
from headrace.client.kept_system import KeptSystem, closing_unless_kept
from headrace.client.store_form import GLOBAL, LIST, StoreForm, parsed, serdes_in
from headrace.config.loading import Config
from headrace.core.keys.hashing import partition_of
from headrace.core.keys.key_layout import bucket_range, split_state_key, state_key
from headrace.core.keys.long_keys import entry_of, stored_key
from headrace.core.topology.compatibility import in_use
from headrace.errors import HeadraceError, StateError
from headrace.model.checkpoint import Checkpoint, Head
from headrace.model.job_model import JobModel, TaskModel
from headrace.model.serde import Serde, routing_key
from headrace.model.topology import Topology
from headrace.serdes.typed import V
from headrace.serdes.windowed import WindowedKey
from headrace.wiring.folders import state_uri_of, whole_file

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

SubKey: TypeAlias = str | bytes | int
_TRIES_MAX = 5  # a job that runs may replace files between the look at its checkpoints and the reading
_T = TypeVar("_T")
_D = TypeVar("_D")


def open_state(app: Any, name: str) -> StateView:
    """The state of the store `name` of an application."""
    return StateView(name, app.name, wiring.config_of(app), serdes_in(app.topology()))


def state(application: Any, system: str | None = None) -> JobState:
    """The state of an application, by its `App` or by its name, as committed: `hr.state(app)["counts"]`.

    `system` is the URL of where it runs, as configured if None."""
    return JobState(*named(application, system))


class JobState:
    """The stores of one application. Each look at it is at what is committed then."""

    def __init__(self, application: str, config: Config, topology: Topology | None = None) -> None:
        self.application, self._config = application, config
        self._serdes = {} if topology is None else serdes_in(topology)

    def __getitem__(self, store: str) -> StateView[Any]:
        """A store by its name; what is wrong with that is said when it is read."""
        return StateView(store, self.application, self._config, self._serdes)

    @property
    def stores(self) -> list[str]:
        """The names of its stores."""
        with wiring.open_configured(self._config, create=False, wait_s=wiring.LOOK_UP_WAIT_S) as opened:
            model = opened.job_reader(self.application).job_model()
        return [] if model is None else sorted(in_use(model.stores))


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry under a key. `window` is (start, end) in µs, `at_us` the time in a window store, `sub` a sub-key, or the number
    of an entry of a list."""

    task: str
    value: Any
    window: tuple[int, int] | None = None
    at_us: int | None = None
    sub: SubKey = b""
    expires_us: int | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """What is committed of one store at one moment: its form, and the state of each task that has a part of it, in
    `database`; `checkpoints`: of these and of the other tasks that may have one."""

    database: str
    form: StoreForm
    model: JobModel
    heads: Mapping[TaskModel, Head]
    checkpoints: Mapping[TaskModel, Checkpoint]


class StateView(Generic[V]):
    """One store of an application, as committed. Every call looks again; nothing is held open between calls.

    `V` is the type of what `get` gives, to name in annotations: `counts: hr.StateView[int] = app.state("counts")`.
    What has outlived its time is there until the job deletes it, in the next round of its task. `kept`: the application's
    system, where it stays open between calls.
    """

    def __init__(
        self, name: str, application: str, config: Config, serdes: Mapping[str, Serde], kept: KeptSystem | None = None
    ) -> None:
        self.name, self.application = name, application
        self._config, self._serdes, self._kept = config, serdes, kept

    @overload
    def get(self, key: object, default: None = None, *, sub: SubKey = b"") -> V | None: ...
    @overload
    def get(self, key: object, default: _D, *, sub: SubKey = b"") -> V | _D: ...

    def get(self, key: Any, default: object = None, *, sub: SubKey = b"") -> object:
        """The value under `key`, `default` without one.

        Of a windowed aggregate a dict, `WindowedKey` to value, over all windows of the key that are kept (or the value
        of one, if `key` is the `WindowedKey` of a result); of a Processor's window store a dict from times in µs, of its map
        store one from sub-keys, of its list store a list. `sub`: a sub-key, whose value alone is read.
        """
        if isinstance(key, WindowedKey) and self.form().takes_windows_of(key):
            windows: Any = self.get(key.key) or {}
            return {found.start_us: value for found, value in windows.items()}.get(key.start_us, default)
        form, entries = self._retried(lambda committed, files: (committed.form, self._entries(committed, files, key)))
        if any(entry.window for entry in entries):
            return {WindowedKey(key, *entry.window): entry.value for entry in entries if entry.window}
        if any(entry.at_us is not None for entry in entries):
            return {entry.at_us: entry.value for entry in entries}
        if entries and sub == b"" and form.has_named_subs:
            if form.kind == LIST:
                return [entry.value for entry in entries]
            return {entry.sub: entry.value for entry in entries}
        wanted = (sub, sub.encode()) if isinstance(sub, str) else (sub,)
        return next((entry.value for entry in entries if entry.sub in wanted), default)

    def entries(self, key: Any) -> list[StoredEntry]:
        """All entries under `key`, by task, then by sub-key or time."""
        return self.entries_as_of(key)[0]

    def entries_as_of(self, key: Any) -> tuple[list[StoredEntry], list[Checkpoint]]:
        """The same, with the checkpoints of the tasks that may have the key: up to where they had read when that was so."""
        _, entries, asked = self.looked_up(lambda key_serde: key)
        return entries, asked

    def looked_up(self, key_of: Callable[[Serde], object]) -> tuple[object, list[StoredEntry], list[Checkpoint]]:
        """What is under the key that `key_of` makes for the serde of the store's keys: that key, all entries by task, and the
        checkpoints of the tasks that may have it."""

        def read(committed: Committed, files: Any) -> tuple[object, list[StoredEntry], list[Checkpoint]]:
            key = key_of(committed.form.key)
            key_bytes = committed.form.key.encode(key)
            prefix, routing = state_key(key_bytes), routing_key(committed.form.key, key_bytes)
            asked = [one for task, one in committed.checkpoints.items() if _may_hold(task, committed, prefix, routing)]
            return key, self._entries(committed, files, key), asked

        return self._retried(read)

    def form(self) -> StoreForm:
        """What the store's bytes mean."""
        return self._committed().form

    def to_arrow(self) -> pa.Table:
        """The whole store as a pyarrow Table: key, window_start and window_end, at or sub where there are, value,
        expires_at where entries expire."""
        return self.to_arrow_as_of()[0]

    def to_arrow_as_of(self) -> tuple[pa.Table, list[Checkpoint]]:
        """The same, with the checkpoints that it is of."""
        from headrace.client.state_export import table_of

        return self._retried(
            lambda committed, files: (
                table_of(committed.form, entries_of(committed.heads.values(), files, committed.database)),
                list(committed.checkpoints.values()),
            )
        )

    def rows_as_of(self, most: int, is_wanted: Callable[[Any], bool]) -> tuple[list[dict[str, object]], list[Checkpoint]]:
        """At most so many rows of it, of keys that are wanted, in no order of these, with the checkpoints that they are of.
        State is read until there are so many, and memory does not grow with the store."""
        return self.some_rows(most, lambda key_serde: is_wanted)

    def some_rows(
        self, most: int, wanted_by: Callable[[Serde], Callable[[Any], bool]]
    ) -> tuple[list[dict[str, object]], list[Checkpoint]]:
        """The same; `wanted_by` makes what says whether a key is wanted, for the serde of the store's keys."""
        from headrace.client.state_export import rows_of

        def read(committed: Committed, files: Any) -> tuple[list[dict[str, object]], list[Checkpoint]]:
            is_wanted = wanted_by(committed.form.key)
            rows = rows_of(committed.form, entries_of(committed.heads.values(), files, committed.database))
            found = list(islice((row for row in rows if is_wanted(row["key"])), most))
            return found, list(committed.checkpoints.values())

        return self._retried(read)

    def to_df(self) -> pd.DataFrame:
        """The same as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def write_parquet(self, path: Path) -> int:
        """Write the store to a Parquet file, whole or not at all; the number of entries."""
        import pyarrow.parquet as pq

        table = self.to_arrow()
        with whole_file(path) as file:
            pq.write_table(table, file)
        return int(table.num_rows)

    # --- in here ----------------------------------------------------------------------------------------------------

    def _entries(self, committed: Committed, files: Any, key: Any) -> list[StoredEntry]:
        form = committed.form
        key_bytes = form.key.encode(key)
        prefix, routing = state_key(key_bytes), routing_key(form.key, key_bytes)
        found = []
        for task, head in committed.heads.items():
            if not _may_hold(task, committed, prefix, routing):
                continue
            for stored, data in sorted(_under(stored_key(prefix), committed.database, head, files).items()):
                layout, value = (b"", b"") if data is None else entry_of(stored, data)
                if layout.startswith(prefix):  # nothing deleted, and no other key that has the same digest
                    sub = split_state_key(layout)[1]
                    found += [_entry(form, str(task.name), sub, value)] if form.is_value(sub) else []
        return found

    def _retried(self, read: Callable[[Committed, Any], _T]) -> _T:
        """`read` of what is committed; again, of newer commits, where files went away under it."""
        files = _files_of(state_uri_of(self._config))
        committed = self._committed()
        for _ in range(_TRIES_MAX - 1):
            try:
                return read(committed, files)
            except StateError:
                newer = self._committed()
                if list(newer.heads.values()) == list(committed.heads.values()):
                    self._check_place(files)
                    raise
                committed = newer
        return read(committed, files)

    def _committed(self) -> Committed:
        with closing_unless_kept(self._config, self._kept) as system:
            store = system.job_reader(self.application)
            model, checkpoints = plan_and_checkpoints(store)
        if model is None:
            raise StateError(
                f"application {self.application!r} has not run on {self._config.system} yet, and has no state there",
                "run it first, or name the system that it ran on",
            )
        stores = in_use(model.stores)
        if self.name not in stores:
            raise no_such_store(self.application, self.name, stores)
        form = parsed(stores[self.name], self._serdes)
        tasks = model.sub_topology(None if form.place == "source" else form.place).tasks
        known = {task: checkpoints[task.name] for task in tasks if task.name in checkpoints}
        heads = {task: one.head for task, one in known.items() if one.head is not None}
        if form.kind == GLOBAL:
            heads = dict(islice(heads.items(), 1))
        return Committed(model.databases.get(self.name, self.name), form, model, heads, known)

    def _check_place(self, files: Any) -> None:
        """`StateError` where no state is looked for in the right place: only an embedded log says where state is, too."""
        if self._config.state_uri is None and not self._config.system.startswith("log:") and not files.list(self.application):
            raise StateError(
                f"the state of application {self.application!r} is not in {files.uri}, which is where a job that is started "
                f"in this folder keeps it; {self._config.system} does not say where it is",
                "run this in the folder in which the job was started, or say where its state is: --set state_uri=PLACE of a "
                "command, App(state_uri=...), or state_uri in the headrace.toml beside the application's file; for the last "
                "two give that file as APP, or the hr.App itself, not the application's name",
            )


def no_such_store(application: str, name: str, stores: Collection[str]) -> StateError:
    near = difflib.get_close_matches(name, stores, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"its stores are: {', '.join(sorted(stores)) or 'none'}"
    return StateError(f"application {application!r} has no store {name!r}", hint)


@lru_cache(maxsize=4)
def _files_of(uri: str) -> Any:
    """The state files at a URI; the batches of small ones are kept for the next look."""
    from headrace.state_files.files import StateFiles

    return StateFiles(uri, keeps_what_is_read=True)


def _may_hold(task: TaskModel, committed: Committed, prefix: bytes, routing: bytes) -> bool:
    """Whether the task can have state under layout keys that begin with `prefix`, of a key with these bytes to route it by
    (`routing_key`).

    Into a repartition stream every key goes by its hash, unless it has a partitioner; into a user's stream the producer
    may have chosen the partition, so any task may."""
    if committed.form.kind == GLOBAL:
        return True
    if task.name.bucket is not None:
        low, high = bucket_range(task.name.bucket.index, task.name.bucket.factor)
        if prefix < low or (high is not None and prefix >= high):
            return False
    if committed.form.place == "source":
        return True
    if any(ssp.stream in committed.model.partitioned_by_users for ssp in task.partitions):
        return True
    counts = committed.model.partition_counts
    return any(ssp.partition == partition_of(routing, counts[ssp.stream]) for ssp in task.partitions)


def entries_of(heads: Iterable[Head | None], files: Any, database: str) -> Iterator[tuple[bytes, bytes]]:
    """The entries (layout key, bytes) of one database of tasks whose states are `heads`."""
    from headrace.state_files.batches import db_of, merged

    for head in heads:
        for batch in merged([files.batches(file) for file in head.files]) if head is not None else ():
            if db_of(batch) == database:
                for key, value in zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True):
                    if value is not None:
                        yield entry_of(key, value)


def _under(prefix: bytes, database: str, head: Head, files: Any) -> dict[bytes, bytes | None]:
    """The newest value (None: deleted) of every entry that is stored under a key that begins with `prefix`."""
    from headrace.state_files.batches import db_of

    found: dict[bytes, bytes | None] = {}
    for file in reversed(head.files):
        for batch in files.batches(file):
            if db_of(batch) != database:
                continue
            keys, values = batch.column(1), batch.column(2)
            row = bisect_left(range(len(keys)), prefix, key=lambda at, keys=keys: keys[at].as_py())  # type: ignore[misc]
            while row < len(keys) and (layout := keys[row].as_py()).startswith(prefix):
                found.setdefault(layout, values[row].as_py())
                row += 1
    return found


def _entry(form: StoreForm, task: str, sub: bytes, data: bytes) -> StoredEntry:
    try:
        value, expires_us = form.value_of(data)
    except HeadraceError as error:
        raise StateError(
            f"a stored value of task {task} does not decode as `{form.result.form}`: {error.message}",
            "give the application's file: it names the serde that the value was written with",
        ) from None
    if not form.by_time:
        return StoredEntry(task, value, sub=form.sub_of(sub), expires_us=expires_us)
    at = form.time_of(sub)
    window = form.window_of(at, data)
    return StoredEntry(task, value, window, at if window is None else None, expires_us=expires_us)
