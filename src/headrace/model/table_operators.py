"""The operators of tables that send rows on to other tasks: nodes of the topology as those in `model.topology`."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.serde import Serde
from headrace.model.topology import Function, Join, Node, Process, StoreSpec, Table
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SendByForeignKey(Node):
    """Sends each row of a table to where its foreign key is: a key of another table, of serde `key`, which `function` gives.

    Its store remembers under which foreign key a row was sent. `keeps_all`: rows without a foreign key have a result too.
    """

    store: StoreSpec
    function: Function
    key: Serde | None = None
    value: Serde | None = None
    keeps_all: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JoinByForeignKey(Join):
    """Parents: what `SendByForeignKey` said of the left table's rows, whose values are of `left_value` and whose keys are of
    `table_key`; and the right table."""

    left_value: Serde | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ForeignKeyResults(Node):
    """The table that a join by foreign keys gives: of each row the newest result, whichever task it came from.

    `stores`: the results; and what is known of rows that have none, as long as an older result may still come.
    """

    stores: tuple[StoreSpec, ...]
    value: Serde | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LimitUpdates(Node):
    """Gives of each key of a table at most one update in `limit_us` of event time.

    `by_inner_key`: the task has read its records by the key within these windowed keys. `key`, `value`: serdes of both sides.
    """

    store: StoreSpec
    limit_us: int
    key: Serde | None = None
    value: Serde | None = None
    by_inner_key: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VersionedTable(Table):
    """Keeps the newest value of each key in its store, and in `versions` all that records may ask for by their times: a version
    that another one follows until the watermark is `history_us` past that one."""

    versions: StoreSpec
    history_us: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WaitingJoin(Join):
    """Of a stream with a table that keeps versions: a record waits, in the only one of `stores`, until the watermark is more
    than `grace_us` past its time, so that what the table was then is known."""

    grace_us: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TransformValues(Process):
    """Of a table: `processor` is a user's `ValueTransformer` class, which gives the value of each update."""
