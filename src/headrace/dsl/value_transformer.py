"""What a user writes for an operator of their own on a table: `ValueTransformer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from headrace.dsl.builder import operator_text
from headrace.dsl.processor import AnyStore, Declared, Processor, check_methods, declared_stores, value_serde_of
from headrace.dsl.rekeying import check_rows_by_key
from headrace.dsl.stream_cursor import SerdeSlot, StreamCursor, checked_serde
from headrace.errors import TopologyError
from headrace.model.serde import Serde
from headrace.model.table_operators import TransformValues
from headrace.serdes.typed import KIn, VIn, VOut

if TYPE_CHECKING:
    from headrace.dsl.processor_context import ProcessorContext, Timer

_METHODS = {"init": ("context",), "transform": ("record",), "on_timer": ("timer",), "close": ()}


class ValueTransformer(Generic[KIn, VIn, VOut]):
    """Gives each update of a table another value. Give the class to `KTable.transform_values`, not an object of it.

    An object is made per task and worker process, and again after any restart: its attributes are a cache, state is in stores.
    `stores` lists declarations as those of a `Processor`; the context is that of a `Processor` too, but `forward` is refused.
    No method is `async def`.
    """

    stores: ClassVar[Sequence[AnyStore]] = ()

    def init(self, context: ProcessorContext[KIn]) -> None:
        """Called once before the first update. Keep the context: it gives stores and timers."""
        self.context = context

    def transform(self, record: Any) -> VOut | None:
        """Called with the `Record` of each update, in order; gives the value of its key, None for none. Of a deletion the value
        of the record is None."""
        raise TypeError(f"{type(self).__name__} does not define transform")

    def on_timer(self, timer: Timer[KIn]) -> None:
        """Called when a timer is due, to change what is in the stores."""

    def close(self) -> None:
        """Called when the task leaves this process, as far as that can be promised: a killed process calls nothing."""


def _declared_by(transformer: Any) -> Declared:
    """Check the class given to `transform_values` and read its declarations."""
    if isinstance(transformer, ValueTransformer):
        name = type(transformer).__name__
        raise TopologyError(
            f"transform_values({name}(...)): an object was given, expected the class",
            f"write transform_values({name}): each task makes its own object",
        )
    if not isinstance(transformer, type) or not issubclass(transformer, ValueTransformer):
        is_processor = isinstance(transformer, type) and issubclass(transformer, Processor)
        hint = "derive it from hr.ValueTransformer, and return the value in place of forwarding it"
        raise TopologyError(
            f"transform_values({transformer!r:.60}): expected a class derived from hr.ValueTransformer",
            hint if is_processor else "for a function over records use map_values",
        )
    if transformer.transform is ValueTransformer.transform:
        raise TopologyError(f"{transformer.__name__} does not define transform", "define transform(self, record)")
    check_methods("transform_values", transformer, _METHODS, (), "return the value")
    timers = transformer.on_timer is not ValueTransformer.on_timer
    return Declared(declared_stores(transformer), timers, value_serde_of(transformer, ValueTransformer))


def with_transformer(flow: StreamCursor, transformer: Any, value: Serde | None, name: str | None) -> StreamCursor:
    """The flow of a table behind the transformer of its values."""
    declared, kind = _declared_by(transformer), "transform_values"
    if declared.stateful:
        own = flow.builder.lasting_name_of(kind, flow.anchor, name)
        check_rows_by_key(f"{operator_text(kind, own)} has state", flow)
    else:
        own = flow.name_of(kind, name)
    text = operator_text(kind, own)
    for store in declared.stores:
        flow.builder.checked_store(text, store.name)
    given = declared.value if value is None else checked_serde(text, value)
    values = SerdeSlot(given, None if given else f"{text} ({transformer.__qualname__})")
    node = TransformValues(
        name=own,
        parents=(flow.node,),
        processor=transformer,
        stores=tuple(store.spec(flow.key.form) for store in declared.stores),
        timers=declared.timers,
        key=flow.key.serde,
        value=values.serde,
    )
    return flow.put(kind, node, name, value=values)
