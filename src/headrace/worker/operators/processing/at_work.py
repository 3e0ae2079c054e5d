"""What a `Processor` is at work on, of which its context says key, time and place: a record, a batch or a timer. Records of an
async one are at work at the same time, each with a view of its own (`RecordAtWork`): it alone sees what it writes,
until its call has ended well and all of it is applied at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.core.topology.description import kind_of
from headrace.errors import TopologyError
from headrace.exchange.texts import shown
from headrace.worker.operators.processing.schedules import Schedule
from headrace.worker.operators.processing.timer_store import Timers
from headrace.worker.state.overlay import Overlay

if TYPE_CHECKING:
    from headrace.record import Record
    from headrace.worker.operators.base import Context
    from headrace.worker.operators.processing.process import ProcessOperator

Place = tuple[int, int, int]  # SSP number, offset, rank
Held = tuple[str | None, Any, Any, int, Any, Place]  # a record to forward: to, key, value, time, headers, where it came of


class AtWork:
    """`time_us`: of a record, or of a timer. `held`, `held_counts`: what is forwarded and counted once it has ended."""

    context: Any
    key_bytes: bytes | None = None
    key: Any = None
    time_us = 0
    node: Any
    is_event_time = True  # `time_us` is that of one record, or of an event timer
    is_punctuating = False
    where: Place = (0, -1, -1)
    keyed_behind: Mapping[str, str] = {}  # `core.topology.keyed_behind`: of operators that follow
    _key_serde: Any

    def __init__(self) -> None:
        self.held: list[Held] = []
        self.held_counts: list[tuple[str, int]] = []

    @property
    def text(self) -> str:
        """How errors call it."""
        return f"{kind_of(self.node)}({self.node.name!r})"

    @property
    def event_time_us(self) -> int | None:
        """How far event time has come for what is at work: its own time, or the watermark from before the round if later. By
        its own time too, so that an entry has expired for a record wherever the round before it ended."""
        watermark_us: int | None = self.context.watermark_us
        if not self.is_event_time:
            return watermark_us
        return self.time_us if watermark_us is None else max(self.time_us, watermark_us)

    def schedule(self, interval: Any, callback: Callable[[int], object], clock: str) -> Schedule:
        raise TopologyError(
            f"{self.text}: schedule({interval!r}) outside of init: a restart would not know of it",
            "call it in init(self, context); for one key set a timer",
        )

    def set_key(self, key: Any) -> None:
        raise TopologyError(
            f"{self.text}: set_key outside of a punctuation",
            "a record and a timer have a key; forward(key=...) sends a record with another one",
        )

    def check_key(self, key: Any, to: str | None) -> None:
        """`TopologyError` where `key`, which is forwarded, is another than that of what is at work, and an operator behind this
        one meets records by key. A punctuation has no key: what it forwards is not looked at."""
        behind = self.keyed_behind.get(to) if to is not None else next(iter(self.keyed_behind.values()))
        if behind is None or key is None or self.is_punctuating or (type(key) is type(self.key) and key == self.key):
            return
        try:
            key_bytes = self._key_serde.encode(key)
        except Exception:  # no key of this serde: its record is rejected where it is written
            return
        if key_bytes not in self.keys_at_work:
            given = f"is given the key {shown(self.key)}" if self.key_bytes is not None else "is not given that key"
            raise TopologyError(
                f"{self.text}: forward(key={shown(key)}), but it {given}, and {behind!r} behind it meets "
                "records by key: those of one key would come to several tasks",
                "give the serde of the new keys to process(..., key=...): a repartition stream then brings equal keys together",
            )

    @property
    def keys_at_work(self) -> Collection[bytes | None]:
        """The keys of what is at work, as bytes."""
        return (self.key_bytes,)

    def current(self, name: str) -> Any:
        if name == "key":
            return self.key
        if name == "timestamp_us":
            return self.time_us
        if self.where[1] < 0:
            return None
        if name == "offset":
            return self.where[1]
        stream, partition = self.context.streams[self.where[0]]
        return stream if name == "stream" else partition


class RecordAtWork(AtWork):
    """A record whose call runs while others do. `due`: None, no timer fires."""

    due = None

    def __init__(self, operator: ProcessOperator, key: bytes | None, record: Record, where: Place) -> None:
        super().__init__()
        assert record.timestamp_us is not None
        self.node, self.children, self.timer_owner = operator.node, operator.children, operator.timer_owner
        self.keyed_behind, self._key_serde = operator.keyed_behind, operator._key_serde
        self.context = TaskView(operator.context)
        self.key_bytes, self.key, self.time_us, self.where = key, record.key, record.timestamp_us, where
        self.has_ended = False
        self._thread = threading.get_ident()

    def checked(self) -> RecordAtWork:
        """Itself, while its context may be used."""
        if self.has_ended:
            raise TopologyError(
                f"{self.text}: the context was used for a record whose process() had ended",
                "await what process() starts, for example in an asyncio.TaskGroup",
            )
        if threading.get_ident() != self._thread:
            raise TopologyError(
                f"{self.text}: the context was used in another thread than that of process()",
                "use it before or after `await asyncio.to_thread(...)`: give the function what it needs, use what it returns",
            )
        return self


class TaskView:
    """A task (`TaskRun`) as one record sees it: with what it has written itself, which `apply` makes the task's."""

    batch_keys: frozenset[bytes] = frozenset()

    def __init__(self, task_run: Context) -> None:
        self._task_run = task_run
        self._overlays: dict[str, Overlay] = {}
        self.watermark_us, self.now_us, self.streams = task_run.watermark_us, task_run.now_us, task_run.streams
        self.resources = task_run.resources

    @cached_property
    def times_us(self) -> dict[str, int | None]:
        return dict(self._task_run.times_us)

    @cached_property
    def timers(self) -> Timers:
        return Timers(self, self.times_us)

    def database(self, name: str) -> Overlay:
        if name not in self._overlays:
            self._overlays[name] = Overlay(self._task_run.database(name))
        return self._overlays[name]

    def apply(self) -> None:
        """All that was written, or, where that fails, nothing."""
        if not self._overlays:
            return
        task_run = self._task_run
        mark = task_run.savepoint()
        try:
            for overlay in self._overlays.values():
                overlay.apply()
        except BaseException:
            task_run.roll_back(mark)
            raise
        if "times_us" in self.__dict__:  # it set a timer, or had something expire
            for name, at_us in self.times_us.items():
                times_us = [each for each in (at_us, task_run.times_us[name]) if each is not None]
                task_run.times_us[name] = min(times_us, default=None)
            task_run.timers.include(self.timers)


RECORD: ContextVar[RecordAtWork | None] = ContextVar("headrace record at work", default=None)
