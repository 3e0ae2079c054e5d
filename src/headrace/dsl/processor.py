"""What a user writes for one operator of their own: `Processor`, and the stores it declares."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, get_args, get_origin

from headrace.dsl.functions import calls_of, check_call, checked_arguments, is_async, is_async_generator, label_of
from headrace.dsl.stream_cursor import checked_serde
from headrace.errors import TopologyError
from headrace.model.calls import Calls
from headrace.model.durations import duration_us
from headrace.model.names import checked_own_name
from headrace.model.topology import StoreKind, StoreSpec
from headrace.serdes.serdes import serde_of_annotation
from headrace.serdes.typed import KIn, KOut, Serde, V, VIn, VOut

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.dsl.processor_context import ProcessorContext, Timer

_METHODS = {"init": ("context",), "process": ("record",), "process_batch": ("batch",), "on_timer": ("timer",), "close": ()}
_MAY_BE_ASYNC = ("init", "process", "close")


@dataclass(frozen=True, slots=True)
class KeyValueStore(Generic[V]):
    """Declares a store of one value per key (and sub-key). With a `ttl`, an entry is not seen by records that
    are that much later than its last put, or later still, and it is deleted once the watermark is there."""

    name: str
    value: Serde[V]
    ttl: str | timedelta | None = None

    def __post_init__(self) -> None:
        _check_store(self, "ttl", self.ttl)

    def spec(self, key_form: str) -> StoreSpec:
        """The store in a topology; `key_form` is the form of the keys of the stream that the operator reads."""
        expiring = "" if self.ttl is None else " expiring"
        form = f"key-value{expiring} key={key_form} value={self.value.form}"
        ttl_us = None if self.ttl is None else duration_us(self.ttl)
        return StoreSpec(self.name, StoreKind.KEY_VALUE, form, self.value, ttl_us)


@dataclass(frozen=True, slots=True)
class WindowStore(Generic[V]):
    """Declares a store of values by time under each key. A value is not seen by records that are `retention` later than its
    time, or later still, and it is deleted once the watermark is there."""

    name: str
    value: Serde[V]
    retention: str | timedelta = "7 days"

    def __post_init__(self) -> None:
        _check_store(self, "retention", self.retention)

    def spec(self, key_form: str) -> StoreSpec:
        form = f"window key={key_form} value={self.value.form}"
        return StoreSpec(self.name, StoreKind.WINDOW, form, self.value, duration_us(self.retention))


SUB_KEYS = (str, bytes, int)
MayWait: TypeAlias = "Awaitable[None] | None"  # of a method that may be `async def`
AnyStore: TypeAlias = "KeyValueStore | ListStore | MapStore | WindowStore"


@dataclass(frozen=True, slots=True)
class MapStore(Generic[V]):
    """Declares a store of ordered sub-keys under each key, each with a value of its own: an index may grow without its
    entries being read and written as one. `sub` is the class of the sub-keys: `str` or `bytes`, of at most 64 bytes, or
    `int`, of 64 bits."""

    name: str
    value: Serde[V]
    sub: type = str

    def __post_init__(self) -> None:
        _check_store(self, "sub", None)
        if self.sub not in SUB_KEYS:
            raise TopologyError(f"MapStore({self.name!r}): sub={self.sub!r}: expected str, bytes or int")

    def spec(self, key_form: str) -> StoreSpec:
        form = f"map-{self.sub.__name__} key={key_form} value={self.value.form}"
        return StoreSpec(self.name, StoreKind.KEY_VALUE, form, self.value)


@dataclass(frozen=True, slots=True)
class ListStore(Generic[V]):
    """Declares a store of an ordered list of values under each key: to append one, or to take the first ones out, the others
    are neither read nor written."""

    name: str
    value: Serde[V]

    def __post_init__(self) -> None:
        _check_store(self, "value", None)

    def spec(self, key_form: str) -> StoreSpec:
        return StoreSpec(self.name, StoreKind.KEY_VALUE, f"list key={key_form} value={self.value.form}", self.value)


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """One operator written by hand. Give the class to `KStream.process`, not an object of it.

    Define `process(record)` for one record at a time or `process_batch(batch)` for Arrow batches, not both. An object
    is made per task and worker process, and again after any restart: its attributes are a cache, state is in stores.
    `process`, `init` and `close` may be `async def`: then records of several keys are at work at once (`hr.concurrent`).

    `stores` lists the `KeyValueStore`, `ListStore`, `MapStore` and `WindowStore` declarations; inside, `context.store(name)`
    gives the store, which sees the current record's key only. Give it the declaration in place of the name, and type checkers
    know its values.
    """

    stores: ClassVar[Sequence[AnyStore]] = ()

    def init(self, context: ProcessorContext[KIn]) -> MayWait:
        """Called once before the first record. Keep the context: it forwards records, and gives stores and timers."""
        self.context = context
        return None

    def process(self, record: Any) -> MayWait:
        """Called with each `Record`."""
        raise TypeError(f"{type(self).__name__} defines neither process nor process_batch")

    def process_batch(self, batch: pa.RecordBatch) -> None:
        """Called with each pyarrow RecordBatch of records, if defined instead of `process`."""
        raise TypeError(f"{type(self).__name__} defines neither process nor process_batch")

    def on_timer(self, timer: Timer[KIn]) -> None:
        """Called when a timer is due; defining it makes the operator a stateful one, because timers are kept.

        What it sets that is already due fires in the same round, in order of time; past 10,000 of a key in the next one.
        `EndlessTimersError` ends the job where a key's timers are due at once again and again.
        """

    def close(self) -> MayWait:
        """Called when the task leaves this process, as far as that can be promised: a killed process calls nothing."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What the class of a processor says about itself."""

    stores: tuple[AnyStore, ...]
    timers: bool
    value: Serde | None = None  # of VOut, where the class says it
    calls: Calls | None = None  # of one whose `process` is async

    @property
    def stateful(self) -> bool:
        return bool(self.stores) or self.timers


def declared_by(processor: Any) -> Declared:
    """Check the class given to `process` and read its declarations; `TopologyError` says what does not fit."""
    if isinstance(processor, Processor):
        name = type(processor).__name__
        raise TopologyError(
            f"process({name}(...)): an object was given, expected the class",
            f"write process({name}): each task makes its own object",
        )
    if not isinstance(processor, type) or not issubclass(processor, Processor):
        raise TopologyError(
            f"process({processor!r}): expected a class derived from hr.Processor",
            "for a function over records use map, flat_map or map_values",
        )
    one = processor.process is not Processor.process
    batch = processor.process_batch is not Processor.process_batch
    if one == batch:
        found = "both" if one else "neither"
        raise TopologyError(
            f"{processor.__name__} defines {found} of process and process_batch; expected exactly one",
            "define process(self, record), or process_batch(self, batch) for Arrow batches",
        )
    check_methods("process", processor, _METHODS, _MAY_BE_ASYNC, "send records by context.forward(...)")
    timers = processor.on_timer is not Processor.on_timer
    calls = calls_of(processor.process) if is_async(processor.process) else None
    declared = Declared(declared_stores(processor), timers, value_serde_of(processor, Processor), calls)
    if calls is not None and not calls.by_key and declared.stateful:
        raise TopologyError(
            f'process({label_of(processor)}): order="none" with state: calls for one key would not see what the others store',
            'leave out order="none", or stores and timers',
        )
    return declared


def check_methods(
    operator: str, given: type, methods: Mapping[str, Sequence[str]], may_be_async: Sequence[str], otherwise: str
) -> None:
    """`TopologyError` where a method of a user's class cannot be called, with these arguments; `otherwise`: what to do
    in place of a generator."""
    for method, arguments in methods.items():
        text = f"{operator}({label_of(given)}): {method}"
        body = getattr(given, method)
        check = check_call if method in may_be_async else checked_arguments
        check(text, body, ("self", *arguments))
        if inspect.isgeneratorfunction(body) or is_async_generator(body):
            raise TopologyError(f"{text} is a generator: its body would never run", otherwise)


def declared_stores(given: Any) -> tuple[AnyStore, ...]:
    """The stores that a user's class declares."""
    names: set[str] = set()
    if not isinstance(given.stores, Sequence) or isinstance(given.stores, str):
        raise TopologyError(
            f"{given.__name__}.stores: expected a list, found {type(given.stores).__name__}",
            f"write stores = [...]: {given.stores!r} in brackets",
        )
    for store in given.stores:
        if not isinstance(store, KeyValueStore | ListStore | MapStore | WindowStore):
            raise TopologyError(
                f"{given.__name__}.stores: {store!r} is no store",
                'list declarations such as hr.KeyValueStore("recent", value=hr.Json())',
            )
        if store.name in names:
            raise TopologyError(
                f"{given.__name__}.stores: two stores are named {store.name!r}", "give each store of a Processor its own name"
            )
        names.add(store.name)
    return tuple(given.stores)


def value_serde_of(given: type, generic: type) -> Serde | None:
    """That of VOut, the last one of `class P(hr.Processor[KIn, VIn, KOut, VOut])`; None where it is not said."""
    for base in getattr(given, "__orig_bases__", ()):
        arguments = get_args(base)
        if get_origin(base) is generic and arguments and not isinstance(arguments[-1], TypeVar):
            return serde_of_annotation(arguments[-1])
    return None


def _check_store(store: AnyStore, argument: str, lifetime: str | timedelta | None) -> None:
    text = f"{type(store).__name__}({store.name!r})"
    checked_own_name("store", store.name)
    checked_serde(text, store.value)
    if lifetime is not None and duration_us(lifetime) <= 0:
        raise TopologyError(
            f"{text}: {argument}: {lifetime!r} is no length of time above 0",
            'write a duration such as "30 days"',
        )
