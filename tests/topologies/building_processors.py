"""The processors of random topologies, built with the public API."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import headrace as hr
from topologies import functions as f
from topologies.spec import Node, Spec


class _Process(hr.Processor):
    """Gives each value with what it has of the key by then. `every`: how long until a timer, or between punctuations."""

    name = ""
    every = timedelta()

    def init(self, context: Any) -> None:
        self.context = context
        self.kept = context.store(self.name) if self.stores else None

    def process(self, record: hr.Record) -> Any:
        kept = -1 if record.key is None else self.keep(record)
        self.context.forward(value=f.counted(record.value, kept))

    def keep(self, record: hr.Record) -> int:
        raise NotImplementedError


class _Counting(_Process):
    def keep(self, record: hr.Record) -> int:
        seen: int = self.kept.get(default=0) + 1
        self.kept.put(seen)
        return seen


class _Listing(_Process):
    def keep(self, record: hr.Record) -> int:
        self.kept.append(f.number(record.value))
        if len(self.kept) > f.LIST_MAX:
            self.kept.pop_first()
        return f.digest(self.kept)


class _Mapping(_Process):
    def keep(self, record: hr.Record) -> int:
        if f.is_removed(record.value):
            self.kept.delete(f.sub_key(record.value))
        else:
            self.kept.put(f.sub_key(record.value), f.number(record.value))
        seen = self.kept.range(*f.SUB_KEYS, reverse=True, limit=f.SUB_KEYS_MAX)
        return f.digest(part for pair in seen for part in pair)


class _Timed(_Counting):
    def keep(self, record: hr.Record) -> int:
        self.context.timer("late", at=record.timestamp_us + self.every // timedelta(microseconds=1))
        return super().keep(record)

    def on_timer(self, timer: Any) -> None:
        self.context.forward(value=f.told(self.kept.get(default=0)))
        self.kept.delete()


class _Punctuated(_Counting):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(self.every, self.tell)

    def tell(self, at_us: int) -> None:
        for key, seen in sorted(self.kept.all()):
            self.context.set_key(key)
            self.context.forward(value=f.told(seen))
            if f.is_forgotten(seen):
                self.kept.delete()


class _Writes(_Process):
    def keep(self, record: hr.Record) -> int:
        self.kept.append(f.number(record.value))
        return f.digest(self.kept)


class _Takes(_Process):
    def keep(self, record: hr.Record) -> int:
        first: int = self.kept.pop_first(-1)
        return first


_MADE: dict[str, tuple[type[_Process], Any]] = {
    "count": (_Counting, hr.KeyValueStore),
    "list": (_Listing, hr.ListStore),
    "map": (_Mapping, hr.MapStore),
    "timed": (_Timed, hr.KeyValueStore),
    "punctuated": (_Punctuated, hr.KeyValueStore),
}


def process(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    made, store = _MADE[node["how"]]
    options = {"sub": int} if store is hr.MapStore else {}
    every = timedelta(microseconds=node["every_us"])
    processor = _own(made, number, store(f"n{number}-seen", value=hr.Long(), **options), every)
    return parents[0].process(processor, name=f"n{number}", value=hr.Json())


def share(app: hr.App, spec: Spec, number: int, node: Node, parents: list[Any]) -> Any:
    left, right = (
        parent.process(_own(made, number, hr.ListStore(f"n{number}-shared", value=hr.Long())), name=name, value=hr.Json())
        for parent, made, name in zip(parents, (_Writes, _Takes), (f"n{number}-writes", f"n{number}-takes"), strict=True)
    )
    return left.merge(right, name=f"n{number}")


def _own(made: type[_Process], number: int, store: Any, every: timedelta = timedelta()) -> type[hr.Processor]:
    """A class of its own; of every other one with an async function, of which some calls take longer."""

    async def later(self: _Process, record: hr.Record) -> None:
        made.process(self, record)
        await asyncio.sleep(f.number(record.value) % 3 / 10_000)

    own: dict[str, Any] = {"stores": [store], "name": store.name, "every": every}
    return type(f"{made.__name__}{number}", (made,), own | ({"process": later} if number % 2 else {}))
