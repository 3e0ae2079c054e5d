"""The words for joins that streams and tables have in common; `dsl.joins` builds them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headrace.model.serde import Serde
from headrace.model.topology import JoinKind

if TYPE_CHECKING:
    from headrace.dsl.app_declaration import AppDeclaration
    from headrace.dsl.global_table import GlobalTable
    from headrace.dsl.kstream import KStream
    from headrace.dsl.ktable import KTable
    from headrace.dsl.stream_cursor import StreamCursor

Duration = str | timedelta
_KINDS = {"join": JoinKind.INNER, "left_join": JoinKind.LEFT, "outer_join": JoinKind.OUTER}


@dataclass(frozen=True, slots=True)
class JoinArguments:
    """What the user said of a join. `operator`: the method's name; `within` to `key` are for joins of streams."""

    operator: str
    joiner: Any
    name: str | None
    value: Serde | None
    store: str | None
    within: Duration | None = None
    grace: Duration | None = None
    retention: Duration | None = None
    key: Any = None

    @property
    def kind(self) -> JoinKind:
        return _KINDS[self.operator]


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
        grace: Duration | None = None,
        retention: Duration | None = None,
        key: Any = None,
        name: str | None = None,
        value: Serde | None = None,
        store: str | None = None,
    ) -> KStream:
        """Join each record with the value of its key in a table, or with the records of a stream that are `within` of it.

        `joiner` is a function of (left, right) or (key, left, right), or one marked `@hr.batch`, whose batch has the columns
        key, left, right and timestamp; the serde of its result is `value`, or follows from its return annotation. Records
        without a match are left out. With a table a record sees what came before it in time, and keeps its headers. Of two
        streams a pair has the later time; a record's window ends `within` after it, and closes `grace` later by the
        watermark (without a grace `retention` later, by default 7 days): from then on nothing joins with it, and a record
        that comes after its window has closed is late. `key` gives the key of a global table to look up, by default the
        record's own. Where the sides are not partitioned alike, a repartition stream is put in, named after the join, or
        after `store`.
        """
        asked = JoinArguments("join", joiner, name, value, store, within, grace, retention, key)
        return _joined_stream(self, other, asked)

    def left_join(
        self,
        other: KTable | GlobalTable | KStream,
        joiner: Any,
        *,
        within: Duration | None = None,
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
        asked = JoinArguments("left_join", joiner, name, value, store, within, grace, retention, key)
        return _joined_stream(self, other, asked)

    def outer_join(
        self,
        other: KStream,
        joiner: Any,
        *,
        within: Duration,
        grace: Duration | None = None,
        retention: Duration | None = None,
        name: str | None = None,
        value: Serde | None = None,
        store: str | None = None,
    ) -> KStream:
        """Join two streams as `join` does, and give the joiner None for whichever side has no match, when its window closes."""
        asked = JoinArguments("outer_join", joiner, name, value, store, within, grace, retention)
        return _joined_stream(self, other, asked)


class TableJoins:
    """What a table can be joined with: another table."""

    app: AppDeclaration
    flow: StreamCursor

    def join(
        self, other: KTable, joiner: Any, *, name: str | None = None, value: Serde | None = None, store: str | None = None
    ) -> KTable:
        """Join with another table: a table of the keys that both have. `joiner` as that of streams.

        Once per round the joined value of each key that changed on either side; a deletion where there is none any more.
        With `to_stream(emit="each")`, one for each update of either side.
        """
        return _joined_table(self, other, JoinArguments("join", joiner, name, value, store))

    def left_join(
        self, other: KTable, joiner: Any, *, name: str | None = None, value: Serde | None = None, store: str | None = None
    ) -> KTable:
        """Join with another table: a table of all keys that this one has; the joiner is given None for what the other lacks."""
        return _joined_table(self, other, JoinArguments("left_join", joiner, name, value, store))

    def outer_join(
        self, other: KTable, joiner: Any, *, name: str | None = None, value: Serde | None = None, store: str | None = None
    ) -> KTable:
        """Join with another table: a table of the keys that either has; the joiner is given None for the side that lacks it."""
        return _joined_table(self, other, JoinArguments("outer_join", joiner, name, value, store))


def _joined_stream(stream: Any, other: Any, asked: JoinArguments) -> KStream:
    from headrace.dsl.joins import joined_stream  # it builds streams and tables, which have these methods

    return joined_stream(stream, other, asked)


def _joined_table(table: Any, other: Any, asked: JoinArguments) -> KTable:
    from headrace.dsl.joins import joined_table

    return joined_table(table, other, asked)
