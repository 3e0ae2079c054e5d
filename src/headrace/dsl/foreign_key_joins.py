"""How joins of tables by foreign keys are built: three sub-topologies, of the left table, of the right one, and of the result.

The left table's rows are written, by their foreign keys, to where the right table is; the results, by the left table's keys, to
where they become a table. The right table has to be in another sub-topology than the left one: else its updates are written
there as well.
"""

from __future__ import annotations

from typing import Any

from headrace.dsl import stream_cursor as flows
from headrace.dsl.builder import operator_text
from headrace.dsl.functions import returned
from headrace.dsl.joins import JoinArguments, JoinBuild, LoopError, check_keys, check_partitioners, has_loop
from headrace.dsl.rekeying import behind_table, check_rows_by_key, with_repartition
from headrace.dsl.stream_cursor import SerdeSlot, StreamCursor, checked_function, needed, result_side
from headrace.errors import TopologyError
from headrace.model.serde import Serde
from headrace.model.table_operators import ForeignKeyResults, JoinByForeignKey, SendByForeignKey
from headrace.model.topology import JoinKind, JoinSides, StoreKind, StoreSpec
from headrace.serdes.foreign_keys import Answers, Subscriptions


class ForeignKeyBuild(JoinBuild):
    """One join by foreign keys while it is added to a topology."""

    def __init__(self, arguments: JoinArguments, foreign_key: Any, left: StreamCursor, right: StreamCursor) -> None:
        super().__init__(arguments, left, right)
        self.function = checked_function(f"{arguments.operator}: foreign_key", foreign_key, flows.WORKER, left)

    def built(self) -> StreamCursor:
        if self.right.is_by_key and not has_loop(self.builder):
            try:
                with self.builder.all_or_nothing():
                    joined = self._built(False)
                    if has_loop(self.builder):
                        raise LoopError
                    return joined
            except LoopError:
                pass
        with self.builder.all_or_nothing():
            return self._built(True)

    def _built(self, is_repartitioned: bool) -> StreamCursor:
        arguments, builder = self.arguments, self.builder
        own = builder.lasting_name_of(arguments.operator, self.left.anchor, arguments.name or arguments.store, say="store")
        prefix, text = arguments.store or own, operator_text(arguments.operator, own)
        check_rows_by_key(f"{text} sends the rows of its left side by their keys", self.left)
        key, value = _known(self.left.key, "key", text), _known(self.left.value, "value", text)
        foreign = _known(self.right.key, "key", f"{text}, right side")
        side = result_side(self.joiner, self.arguments.value, returned(self.joiner), text, self.left)
        result = _known(side, "value", text, "value=...")
        sent = self._sent(prefix, text, SerdeSlot(foreign))
        left = with_repartition(sent, f"{prefix}-left", of_table=True)
        right = self._table(self.right, f"{prefix}-right", is_repartitioned)
        check_keys(text, left.key, right.key)
        check_partitioners(self.builder, text, left, right)
        joined = self.builder.checked(self.arguments.operator, f"{prefix}-joined")
        node = JoinByForeignKey(
            name=joined,
            parents=(left.node, right.node),
            kind=self.arguments.kind,
            sides=JoinSides.FOREIGN_KEY,
            joiner=self.joiner,
            with_key=self.with_key,
            value=result,
            table_key=key,
            left_value=value,
            stores=(self._store(f"{prefix}-rows", text, f"foreign key={foreign.form} value=bytes"),),
        )
        answers = SerdeSlot(Answers(result))
        flow = left.put(self.arguments.operator, node, joined, key=SerdeSlot(key), value=answers, rekeyed=True)
        read = with_repartition(flow, prefix, for_operator=own, of_table=True)
        stores = (
            self._store(prefix, text, f"results key={key.form} value={result.form}", result),
            self._store(f"{prefix}-deleted", text, f"deleted key={key.form} value=bytes"),
        )
        results = ForeignKeyResults(name=own, parents=(read.node,), stores=stores, value=result)
        self.builder.add(self.arguments.operator, results)
        return behind_table(read, own, text).with_sides(SerdeSlot(key), SerdeSlot(result))

    def _sent(self, prefix: str, text: str, key: SerdeSlot) -> StreamCursor:
        own = self.builder.checked(self.arguments.operator, f"{prefix}-foreign-key")
        node = SendByForeignKey(
            name=own,
            parents=(self.left.node,),
            store=self._store(f"{prefix}-sent", text, f"sent key={self.left.key.form} value=bytes"),
            function=self.function,
            key=key.serde,
            value=self.left.value.serde,
            keeps_all=self.arguments.kind is JoinKind.LEFT,
        )
        return self.left.put(self.arguments.operator, node, own, key=key, value=SerdeSlot(Subscriptions()), rekeyed=True)

    def _store(self, name: str, text: str, form: str, value: Serde | None = None) -> StoreSpec:
        return StoreSpec(self.builder.checked_store(text, name), StoreKind.KEY_VALUE, form, value)


def _known(side: SerdeSlot, part: str, text: str, argument: str | None = None) -> Serde:
    """The serde of keys or values, which a join by foreign keys writes: they are not taken from Spark's types."""
    serde = needed(side, part, text, None, argument).serde
    if serde is None:
        raise TopologyError(
            f"{text}: the serde of its {part}s would follow from a Spark expression, and a join by foreign keys has to know it",
            f"give {part}=hr.Json() (or another serde) to the operator that makes them",
        )
    return serde
