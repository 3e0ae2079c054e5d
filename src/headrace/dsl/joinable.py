"""The words for joins that streams and tables have in common, and what may be joined with what; `dsl.joins` builds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.dsl.foreign_key_joins import ForeignKeyBuild
from headrace.dsl.joins import JoinArguments, JoinBuild
from headrace.dsl.windows import Duration
from headrace.errors import TopologyError
from headrace.model.serde import Serde
from headrace.model.topology import JoinKind, JoinSides

if TYPE_CHECKING:
    from headrace.dsl.app_declaration import AppDeclaration
    from headrace.dsl.kstream import KStream
    from headrace.dsl.ktable import KTable
    from headrace.dsl.stream_cursor import StreamCursor


class StreamJoins:
    """What a stream can be joined with: a table, a global table, another stream."""

    app: AppDeclaration
    flow: StreamCursor

    def join(
        self,
        other: KTable | GlobalTable | KStream,
        joiner: Any,
        *,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration | None = None,
        retention: Duration | None = None,
        key: Any = None,
        name: str | None = None,
        value: Serde | None = None,
        store: str | None = None,
    ) -> KStream:
        """Join each record with the value of its key in a table, or with the records of a stream that are `within` of it.

        `joiner` is a function of (left, right) or (key, left, right), or one marked `@hr.batch`, whose batch has the
        columns key, left, right and timestamp; the serde of its result is `value`, or follows from its return annotation.
        Records without a match are left out. With a table a record sees what came before it in time, and keeps its headers;
        with one that has a history, the version of its own time. With a `grace`, too, it waits for that table until the
        watermark is more than the grace past its time: what the result is depends on both sides alone then.
        Of two streams a pair has the later time. `before` and `after` say how long before and after a left record the right
        ones may be, where that differs: by default both are `within`, and without that 0. A left record's window ends
        `after` after it, a right one's `before` after it, and closes `grace` later by the watermark (without a grace
        `retention` later, by default 7 days): from then on nothing joins with it, and a record that comes after its window
        has closed is late. `key` gives the key of a global table to look up, by default the record's own. Where the sides
        are not partitioned alike, a repartition stream is put in, named after the join, or after `store`.
        """
        arguments = JoinArguments("join", joiner, name, value, store, within, grace, retention, key, before, after)
        return self._joined(other, arguments)

    def left_join(
        self,
        other: KTable | GlobalTable | KStream,
        joiner: Any,
        *,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration | None = None,
        retention: Duration | None = None,
        key: Any = None,
        name: str | None = None,
        value: Serde | None = None,
        store: str | None = None,
    ) -> KStream:
        """Join as `join` does, and give the joiner None for the right side where there is no match.

        Of two streams that is known when the left record's window closes: its result comes then, with its own time.
        """
        arguments = JoinArguments("left_join", joiner, name, value, store, within, grace, retention, key, before, after)
        return self._joined(other, arguments)

    def outer_join(
        self,
        other: KStream,
        joiner: Any,
        *,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration | None = None,
        retention: Duration | None = None,
        name: str | None = None,
        value: Serde | None = None,
        store: str | None = None,
    ) -> KStream:
        """Join two streams as `join` does, and give the joiner None for whichever side has no match, when its window closes."""
        arguments = JoinArguments("outer_join", joiner, name, value, store, within, grace, retention, None, before, after)
        return self._joined(other, arguments)

    def _joined(self, other: object, arguments: JoinArguments) -> KStream:
        from headrace.dsl.kstream import KStream  # which is one of these

        is_stream, is_global = isinstance(other, StreamJoins), isinstance(other, GlobalTable)
        if not isinstance(other, StreamJoins | TableJoins | GlobalTable):
            raise _not_joinable(other, arguments, "a stream or a table")
        _check_app(self.app, other.app, arguments)
        if is_stream and not arguments.has_window:
            raise TopologyError(
                f"{arguments.operator} of two streams: within= is missing, so each record would be kept for ever",
                f'write {arguments.operator}(other, joiner, within="1 hour"), or join with other.to_table()',
            )
        if not is_stream and arguments.kind is JoinKind.OUTER:
            raise TopologyError(
                "outer_join of a stream with a table: a change of the table alone gives no record",
                "use left_join, or make the stream a table by to_table() and join two tables",
            )
        only_of_streams = (arguments.retention, arguments.grace if is_global else None)
        if not is_stream and (arguments.has_window or only_of_streams != (None, None)):
            also = ", grace=" if is_global else ""
            raise TopologyError(
                f"{arguments.operator} with a table: within=, before=, after={also} and retention= are for two streams",
                "leave them out: a record is joined with what the table has at its time",
            )
        if arguments.key is not None and not is_global:
            raise TopologyError(
                f"{arguments.operator}(key=...): only a global table can be joined by any key",
                "call select_key(...) before the join; or read the other side by app.global_table(...)",
            )
        build = JoinBuild(arguments, self.flow, other.flow)
        if is_global:
            return KStream(self.app, build.with_global())
        return KStream(self.app, build.of(JoinSides.STREAM_STREAM if is_stream else JoinSides.STREAM_TABLE))


class TableJoins:
    """What a table can be joined with: another table."""

    app: AppDeclaration
    flow: StreamCursor

    def join(
        self,
        other: KTable,
        joiner: Any,
        *,
        foreign_key: Any = None,
        name: str | None = None,
        value: Serde | None = None,
        store: str | None = None,
    ) -> KTable:
        """Join with another table: a table of the keys that both have. `joiner` as that of streams.

        Once per round the joined value of each key that changed on either side; a deletion where there is none any more.
        With `to_stream(emit="each")`, one for each update of either side.

        With `foreign_key`, a function of a row's record that gives a key of the other table, each row is joined with the row
        of that key: many with one. The result has this table's keys, and follows both sides and the foreign key. A row for
        which it gives None has no result.
        """
        return self._joined(other, JoinArguments("join", joiner, name, value, store), foreign_key)

    def left_join(
        self,
        other: KTable,
        joiner: Any,
        *,
        foreign_key: Any = None,
        name: str | None = None,
        value: Serde | None = None,
        store: str | None = None,
    ) -> KTable:
        """Join with another table: a table of all keys that this one has; the joiner is given None for what the other lacks.

        `foreign_key` as of `join`; a row for which it gives None is joined with None.
        """
        return self._joined(other, JoinArguments("left_join", joiner, name, value, store), foreign_key)

    def outer_join(
        self, other: KTable, joiner: Any, *, name: str | None = None, value: Serde | None = None, store: str | None = None
    ) -> KTable:
        """Join with another table: a table of the keys that either has; the joiner is given None for the side that lacks it."""
        return self._joined(other, JoinArguments("outer_join", joiner, name, value, store))

    def _joined(self, other: object, arguments: JoinArguments, foreign_key: Any = None) -> KTable:
        from headrace.dsl.ktable import KTable  # which is one of these

        if not isinstance(other, TableJoins):
            raise _not_joinable(other, arguments, "a table")
        _check_app(self.app, other.app, arguments)
        if foreign_key is not None:
            return KTable(self.app, ForeignKeyBuild(arguments, foreign_key, self.flow, other.flow).built())
        return KTable(self.app, JoinBuild(arguments, self.flow, other.flow).of(JoinSides.TABLE_TABLE))


def _not_joinable(other: object, arguments: JoinArguments, expected: str) -> TopologyError:
    hint = "a stream can be joined with a table: stream.join(table, ...)"
    if not isinstance(other, StreamJoins | GlobalTable):
        hint = "give what app.table(), app.stream() or an aggregation gave"
    return TopologyError(f"{arguments.operator}({type(other).__name__}): expected {expected}", hint)


def _check_app(app: AppDeclaration, other: AppDeclaration, arguments: JoinArguments) -> None:
    if other is not app:
        raise TopologyError(
            f"{arguments.operator}: one side is of application {app.name!r}, the other of {other.name!r}",
            "what one App reads can be joined",
        )


class GlobalTable:
    """A table read from a stream by every task, all partitions of it: `stream.join(table, joiner, key=...)`.

    A stream is joined with it where it is, however either is partitioned. At equal times the table's records come first,
    and within a round both are taken in the order of time; the table is not read ahead of the stream.
    """

    def __init__(self, app: AppDeclaration, flow: StreamCursor) -> None:
        self.app = app
        self.flow = flow

    if not TYPE_CHECKING:  # a type checker would take it to mean that any name is there

        def __getattr__(self, name: str) -> object:
            raise AttributeError(
                f"a global table has no {name!r}: every task has all of it, and would give its updates once each; join a "
                "stream with it, or read the stream by app.table()",
                name=name,
                obj=self,
            )

    def __repr__(self) -> str:
        return f"<GlobalTable {self.flow.node!r} of {self.app.name!r}>"
