"""`KTable`: the last value of each key, as an aggregation or a table source keeps it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.dsl import stream_cursor as flows
from headrace.dsl.builder import operator_text
from headrace.dsl.displayable import Displayable
from headrace.dsl.joinable import TableJoins
from headrace.dsl.rekeying import check_rows_by_key, with_table
from headrace.dsl.repartitioned import Repartitioned, checked_options
from headrace.dsl.stream_cursor import StreamCursor, checked_function, needed
from headrace.dsl.value_transformer import with_transformer
from headrace.dsl.windows import UntilTimeLimit, UntilWindowCloses
from headrace.errors import TopologyError
from headrace.model.serde import Serde
from headrace.model.table_operators import LimitUpdates
from headrace.model.topology import Emit, MapValues, StoreKind, StoreSpec, Suppress, TableFilter, ToStream
from headrace.model.windows import AnyWindows, UnlimitedWindows
from headrace.serdes.windowed import Windowed

if TYPE_CHECKING:
    from headrace.dsl.app_declaration import AppDeclaration
    from headrace.dsl.grouped_table import KGroupedTable
    from headrace.dsl.kstream import KStream


class KTable(TableJoins, Displayable):
    """A table of keys and values, kept in a store. It is a value: a method leaves it as it is and gives a new one."""

    def __init__(self, app: AppDeclaration, flow: StreamCursor, windows: AnyWindows | None = None) -> None:
        super().__init__(app, flow)
        self.windows = windows  # that its keys belong to, where the results of these may change

    def filter(self, predicate: Any, *, store: str | None = None, name: str | None = None) -> KTable:
        """Keep the keys for whose value `predicate` holds; a key whose value no longer matches is deleted downstream.

        With a `store` the result is kept there, to be looked up; without, nothing is stored.
        """
        return self._filter("filter", predicate, store, name, negate=False)

    def filter_not(self, predicate: Any, *, store: str | None = None, name: str | None = None) -> KTable:
        """Keep the keys that `filter` would drop."""
        return self._filter("filter_not", predicate, store, name, negate=True)

    def _filter(self, kind: str, predicate: Any, store: str | None, name: str | None, negate: bool) -> KTable:
        function = checked_function(kind, predicate, flows.WORKER, self.flow)
        node = TableFilter(name=self.flow.name_of(kind, name), parents=(self.flow.node,), predicate=function, negate=negate)
        with self.app.builder.all_or_nothing():
            return self._kept(kind, self.flow.put(kind, node, name), store)

    def map_values(
        self, function: Any, *, value: Serde | None = None, store: str | None = None, name: str | None = None
    ) -> KTable:
        """Give each key the value that `function` returns for its record. `store` as that of `filter`."""
        make = partial(MapValues, of_table=True)
        with self.app.builder.all_or_nothing():
            behind = self.flow.apply("map_values", make, function, flows.WORKER, name, value=value)
            return self._kept("map_values", behind, store)

    def transform_values(
        self, transformer: Any, *, value: Serde | None = None, store: str | None = None, name: str | None = None
    ) -> KTable:
        """Give each key the value that `transformer` gives, a class derived from `hr.ValueTransformer`, which may have stores.

        It is called for every update, deletions too, in order: the table gives all of them to what follows, as with
        `to_stream(emit="each")`. `store` as that of `filter`.
        """
        with self.app.builder.all_or_nothing():
            return self._kept("transform_values", with_transformer(self.flow, transformer, value, name), store)

    def _kept(self, kind: str, behind: StreamCursor, store: str | None) -> KTable:
        """The table behind an operator, which makes its updates one by one, in a store where one is named."""
        if store is None:
            return KTable(self.app, behind, self.windows)
        text = operator_text(kind, behind.node)
        check_rows_by_key(f"{text}: store={store!r} keeps rows by their keys", behind)
        key, values = needed(behind.key, "key", text, None), needed(behind.value, "value", text, None, "value=...")
        store_name, own = behind.builder.checked_store(kind, store), behind.builder.checked("table", f"{store}-table")
        return KTable(self.app, with_table(behind, own, store_name, key, values))

    def group_by(
        self,
        selector: Any,
        repartitioned: Repartitioned | None = None,
        *,
        key: Serde | None = None,
        name: str | None = None,
    ) -> KGroupedTable:
        """Group the rows by the key that `selector` gives, a function of a row's record; a row of which it gives None is in no
        group. Aggregates of the groups follow the table: what a row was is taken out, what it has become is put in.

        `key` is the serde of the groups' keys, where an annotation does not say it. `hr.Repartitioned(...)` says how the
        stream is written by which rows come to their groups. To group by what a function makes of the values, `map_values`
        before.
        """
        from headrace.dsl.grouped_table import grouped_table  # a group gives tables, and a table groups

        return grouped_table(self, selector, checked_options("group_by", repartitioned), key, name)

    def to_stream(self, *, emit: str = "round", name: str | None = None) -> KStream:
        """The updates as a stream: the last value of each changed key, once per round, or what `emit` says.

        How many come with `emit="round"`, the default, depends on how many records a round takes; with `"each"`, every
        update, in order, and with `"closed"`, the last value of each window, once, when it has closed, it does not.
        `"closed"` is `suppress(hr.until_window_closes())` written shorter.
        """
        from headrace.dsl.kstream import KStream  # a stream gives tables, and a table streams

        if emit == "closed":
            with self.app.builder.all_or_nothing():
                return self._suppressed('to_stream(emit="closed")', None, None).to_stream(name=name)
        if emit not in ("round", "each"):
            raise TopologyError(f'to_stream(emit={emit!r}): expected "round", "each" or "closed"')
        node = ToStream(name=self.flow.name_of("to_stream", name), parents=(self.flow.node,), emit=Emit(emit))
        return KStream(self.app, self.flow.put("to_stream", node, name))

    def suppress(
        self, until: UntilWindowCloses | UntilTimeLimit, *, store: str | None = None, name: str | None = None
    ) -> KTable:
        """A table with the results of windows that have closed, `suppress(hr.until_window_closes())`, or with fewer updates,
        `suppress(hr.until_time_limit("5 minutes"))`.

        The result of a window comes once, when no record can change it any more: when the watermark has come to the window's
        end and its `grace`, which has to be given. A window that has not closed when the job ends stays open until it resumes.

        With a time limit an update waits until the time of its key's updates, or the watermark, is the limit past it, and the
        next ones of its key take its place: at most one comes in that time, the newest. A deletion is an update too. What waits
        is in the store, one value for a key.
        """
        if isinstance(until, UntilTimeLimit):
            return self._limited(until, store, name)
        if not isinstance(until, UntilWindowCloses):
            raise TopologyError(
                f"suppress({until!r}): expected hr.until_window_closes() or hr.until_time_limit(...)",
                "write suppress(hr.until_window_closes()), or suppress(hr.until_time_limit(\"5 minutes\"))",
            )
        return self._suppressed("suppress", store, name)

    def _limited(self, until: UntilTimeLimit, store: str | None, name: str | None) -> KTable:
        own, text, store_name = self.flow.lasting_names_of("suppress", name, store)
        key, value = needed(self.flow.key, "key", text, None), needed(self.flow.value, "value", text, None)
        by_inner = not self.flow.is_by_key and isinstance(key.serde, Windowed)
        what = "limited-windows" if by_inner else "limited"
        node = LimitUpdates(
            name=own,
            parents=(self.flow.node,),
            store=StoreSpec(store_name, StoreKind.KEY_VALUE, f"{what} key={key.form} value={value.form}", value.serde),
            limit_us=until.limit_us,
            key=key.serde,
            value=value.serde,
            by_inner_key=by_inner,
        )
        return KTable(self.app, self.flow.put("suppress", node, name or store or own, value=value), self.windows)

    def _suppressed(self, operator: str, store: str | None, name: str | None) -> KTable:
        windows = self.windows
        if windows is None:
            raise TopologyError(
                f"{operator} behind {self.flow.node!r}: expected a table of windows whose results still change",
                "write windowed_by(...) before the aggregate, and suppress once; other tables have nothing that closes",
            )
        if isinstance(windows, UnlimitedWindows):
            raise TopologyError(
                f"{operator} behind {self.flow.node!r}: an unlimited window never closes, and has no final result",
                'write to_stream(), or suppress(hr.until_time_limit("5 minutes")) for fewer updates',
            )
        if windows.grace_us is None:
            raise TopologyError(
                f"{operator} behind {self.flow.node!r}: its windows have no grace, so nothing says when one closes",
                'say how late records may be, such as hr.Tumbling("1 hour", grace="5 minutes")',
            )
        own, text, store_name = self.flow.lasting_names_of("suppress", name, store)
        key, value = self.flow.key, needed(self.flow.value, "value", text, None)
        spec = StoreSpec(store_name, StoreKind.WINDOW, f"suppress key={key.form} value={value.form}", value.serde)
        node = Suppress(name=own, parents=(self.flow.node,), store=spec, windows=windows, key=key.serde, value=value.serde)
        return KTable(self.app, self.flow.put("suppress", node, name or store or own, value=value))

    def to(
        self,
        name: Any,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: Any = None,
        headers: Any = None,
        *,
        feedback: bool = False,
    ) -> None:
        """Write the updates to the output `name`: `to_stream()` and `to(...)`."""
        with self.app.builder.all_or_nothing():
            self.to_stream().to(name, key, value, partitioner, headers, feedback=feedback)
