"""The part of an operator `process` that is about its task as a whole: what it has scheduled, and calls of that."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from itertools import islice
from operator import itemgetter
from typing import Any

from headrace.core.keys.key_layout import state_key
from headrace.errors import StateError
from headrace.exchange.messages import Reject
from headrace.exchange.texts import shown
from headrace.model.durations import time_text
from headrace.worker.operators.faults import checked_fault
from headrace.worker.operators.processing.at_work import AtWork
from headrace.worker.operators.processing.schedules import Schedule, schedule_of
from headrace.worker.operators.processing.stores import AFTER_ALL_SUBS


class Punctuating(AtWork):
    _key_serde: Any

    def __init__(self) -> None:
        super().__init__()
        self._schedules: list[Schedule] = []
        self._is_in_init = False

    @abstractmethod
    def _mark(self) -> Any: ...

    @abstractmethod
    def _take_back(self, mark: Any) -> None: ...

    @abstractmethod
    def _release(self) -> None: ...

    @property
    def schedules(self) -> list[Schedule]:
        """What the user's object has scheduled and not cancelled, of one that is at work in this round."""
        return [one for one in self._schedules if not one.is_cancelled]

    def schedule(self, interval: Any, callback: Callable[[int], object], clock: str) -> Schedule:
        if not self._is_in_init:
            return super().schedule(interval, callback, clock)
        made = schedule_of(self.text, interval, callback, clock)
        self._schedules.append(made)
        return made

    def punctuate(self, clock: str, from_us: int, until_us: int) -> int:
        """Call what is due by a clock from `from_us` to `until_us`; how many were called."""
        self._key_serde = self.node.key or self.context.program.key_serdes.get(self.node.name)
        due = [(at_us, one) for one in self.schedules if (at_us := one.due_at(clock, from_us, until_us)) is not None]
        for at_us, one in sorted(due, key=itemgetter(0)):
            self.key_bytes, self.key, self.time_us, self.where = None, None, at_us, (0, -1, -1)
            self.is_event_time, self.is_punctuating = clock == "event", True
            mark = self._mark()
            try:
                one.callback(at_us)
            except BaseException as error:  # the user's function: anything may come
                self._take_back(mark)
                checked_fault(error, self.node.name)
                text = f"{self.node.name}, punctuation at {time_text(at_us)} ({clock} clock)"
                self.context.reject(Reject.of(0, -1, text, error))
            self.is_punctuating = False
            self._release()
        return len(due)

    def set_key(self, key: Any) -> None:
        if not self.is_punctuating:
            super().set_key(key)
        serde: Any = self.context.program.key_serdes[self.node.name]
        key_bytes = serde.encode(key)
        low = state_key(key_bytes)
        for spec in self.node.stores:
            if any(True for _ in islice(self.context.database(spec.kept_in).scan(low, low + AFTER_ALL_SUBS), 1)):
                self.key, self.key_bytes = key, key_bytes
                return
        raise StateError(
            f"{self.text}: key {shown(key)} has no state in task {self.context.task}",
            "a punctuation reaches the keys that its own task has state of, such as store.keys() gives",
        )
