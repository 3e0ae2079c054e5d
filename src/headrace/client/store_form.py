"""Reading the form of a store, the text in the job model, back into what its bytes mean.

The form names everything that the bytes depend on, so stored state can be read where the code that made it is not at
hand. Serdes that the text does not give back (a user's own) are taken from the application where it is; else the bytes
are given as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import msgspec

from headrace.core.keys.key_layout import TIME_BYTES, time_from
from headrace.core.topology.program import Program
from headrace.core.topology.store_forms import aggregates_in, parts_of, scales_in
from headrace.core.topology.sub_topologies import stores_of
from headrace.errors import HeadraceError
from headrace.model.serde import Serde
from headrace.model.topology import NamedAggregate, Topology
from headrace.model.windows import END_US
from headrace.serdes.foreign_keys import VERSION_BYTES
from headrace.serdes.json_serde import Json
from headrace.serdes.messagepack import MessagePack
from headrace.serdes.row_changes import Placements, RowChanges
from headrace.serdes.scalars import Bytes, Long
from headrace.serdes.serdes import BY_FORM, decimal_of
from headrace.serdes.waiting import waiting_record_of
from headrace.serdes.windowed import Windowed, WindowedKey

GLOBAL = "global"  # every task has all of it
JOINED = "joined"  # a record that waits for others: one byte before its value says whether that is null
LIMITED = "limited"  # an update that waits: its time, and a byte that says whether it is a value or a deletion
VERSIONS = "versions"  # newest first: the byte says whether it is a value or a deletion
WAITING = "waiting"  # a record that waits, with its headers
LIST = "list"
_NULL = 2
_SUBS: Mapping[str, Callable[[bytes], Any]] = {
    LIST: time_from,
    "map-int": time_from,
    "map-str": bytes.decode,
    "map-bytes": bytes,
}


@dataclass(frozen=True, slots=True, eq=False)
class StoreForm:
    """What the bytes of a store mean. `result` is the serde of what users see, which `count` and named do not store.

    `size_us`: of an aggregate's windows; `by_time`: sub-keys are times. `times`: how many numbers of 8 bytes precede a value;
    the first of them is when it expires (`expires`), or when the window ends that begins at the sub-key's time (`ends`).
    `is_flagged`: a byte follows them that says whether there is a value.
    """

    place: str
    kind: str
    key: Serde
    result: Serde
    decode: Callable[[bytes], Any]
    size_us: int | None
    by_time: bool
    expires: bool
    ends: bool = False
    times: int = 0
    is_flagged: bool = False

    def value_of(self, data: bytes) -> tuple[Any, int | None]:
        """The value, and when it expires (µs), where the store has a time to live."""
        expires_us = time_from(data[:TIME_BYTES]) if self.expires else None
        own = self.bytes_of(data)
        return None if own is None else self.decode(own), expires_us

    def bytes_of(self, data: bytes) -> bytes | None:
        """The value's own bytes, without the times before them; None for null, as a join of two streams may keep it."""
        if self.kind == WAITING:
            return waiting_record_of(data).value
        own = data[self.times * TIME_BYTES :]
        if self.is_flagged:
            return own[1:] if own[0] else None
        if self.kind != JOINED:
            return own
        return None if data[0] & _NULL else data[1:]

    def time_of(self, sub: bytes) -> int:
        """The time (µs) that a sub-key begins with, of a store that is by time."""
        time_us = time_from(sub[:TIME_BYTES])
        return ~time_us if self.kind == VERSIONS else time_us

    @property
    def has_named_subs(self) -> bool:
        """Whether each entry is under a sub-key of a class that is known: a sub-key of a map, or a number of a list."""
        return self.kind in _SUBS

    def sub_of(self, sub: bytes) -> Any:
        """A sub-key as it was given; of a list the number of an entry, which rises by 1 from one to the next."""
        return _SUBS.get(self.kind, bytes)(sub)

    def is_value(self, sub: bytes) -> bool:
        """Whether an entry is a value, and not the numbers that a list keeps of itself."""
        return self.kind != LIST or sub != b""

    @property
    def has_states(self) -> bool:
        """Whether its values are computed of what is stored, rather than stored as they are."""
        return self.kind.removeprefix("table-") in ("count", "named")

    @property
    def has_windows(self) -> bool:
        """Whether its entries are of windows, and have a start and an end."""
        return self.size_us is not None or self.ends

    def takes_windows_of(self, key: WindowedKey) -> bool:
        """Whether `key` names a window of this store and the key within, rather than being a key of the store itself."""
        return self.has_windows and (not isinstance(self.key, Windowed) or isinstance(key.key, WindowedKey))

    def window_of(self, start_us: int, data: bytes) -> tuple[int, int] | None:
        """The window (start, end) in µs of an entry at a time, None where the store has no windows."""
        if self.ends:
            return start_us, time_from(data[:TIME_BYTES])
        return None if self.size_us is None else (start_us, start_us + self.size_us)


def parsed(stored: str, known: Mapping[str, Serde]) -> StoreForm:
    """The form in the job model, `<sub-topology>|<form>`; `known`: serdes by their forms, such as `serdes_in` gives."""
    place, _, text = stored.partition("|")
    parts = parts_of(text)
    if parts is None:  # written by a version that knows more kinds
        return StoreForm(place, "", Bytes(), Bytes(), bytes, None, False, False)
    kind, details = parts.kind, parts.details
    key, result = serde_of_form(parts.key, known), serde_of_form(parts.value, known)
    decode: Callable[[bytes], Any] = result.decode
    if kind == "count":
        decode, result = _count, Long()
    elif kind == "named":
        decode = partial(_named, _aggregates(details), scales_in(text))
    elif kind == "table-count":
        decode, result = _table_count, Long()
    elif kind == "table-named":
        decode = partial(_table_named, _aggregates(details), scales_in(text))
    size_us = parts.size_us if parts.length_us is None else parts.length_us
    if parts.begin_us is not None:
        size_us = END_US - parts.begin_us
    is_of_windows = kind in ("suppress", "grouped-windows")
    by_window = is_of_windows or kind == "limited-windows"
    if by_window and isinstance(key, Windowed):  # stored under the key that the windows are of
        key = key.inner
    ends = parts.gap_us is not None or is_of_windows
    by_time = size_us is not None or ends or kind in ("window", JOINED, VERSIONS, WAITING, "limited-windows")
    expires = kind == "window" or details == "expiring"
    is_flagged = kind == VERSIONS or kind.startswith(LIMITED) or parts.length_us is not None
    times = {"suppress": 2, VERSIONS: 0, "results": VERSION_BYTES // TIME_BYTES}.get(kind, int(expires or ends or is_flagged))
    return StoreForm(place, kind, key, result, decode, size_us, by_time, expires, ends, times, is_flagged)


def form_of(program: Program, store: str) -> StoreForm | None:
    """The form of a store of a sub-topology, None if it has none of that name."""
    forms = {spec.name: spec.form for node in program.nodes for spec in stores_of(node)}
    return parsed(f"|{forms[store]}", serdes_in(program)) if store in forms else None


def serde_of_form(form: str, known: Mapping[str, Serde] = BY_FORM) -> Serde:
    """The serde whose `form` it is; `Bytes()` where it is unknown.

    >>> serde_of_form("windowed<json<a int>>"), serde_of_form("my-own")
    (Windowed(Json('a int')), Bytes())
    """
    if form in known:
        return known[form]
    if (found := BY_FORM.get(form) or decimal_of(form)) is not None:
        return found
    outer, _, inner = form.removesuffix(">").partition("<")
    if inner and outer in ("change", "placed"):
        return _of_rows(outer, inner, known)
    if inner and outer == "windowed":
        return Windowed(serde_of_form(inner, known))
    if inner and outer == "json":
        with suppress(HeadraceError):  # of a type that DDL has no word for: its values are JSON all the same
            return Json(inner)
        return Json()
    return MessagePack() if inner and outer == "messagepack" else Bytes()


def _of_rows(outer: str, inner: str, known: Mapping[str, Serde]) -> Serde:
    """That of changes of rows, `change<value>`, or of rows in their groups, `placed<group's key;value>`."""
    if outer == "change":
        return RowChanges(serde_of_form(inner, known))
    depths = accumulate((character in "<(") - (character in ">)") for character in inner)
    at = next((at for at, depth in enumerate(depths) if depth == 0 and inner[at] == ";"), len(inner))
    return Placements(serde_of_form(inner[:at], known), serde_of_form(inner[at + 1 :], known))


def serdes_in(place: Topology | Program) -> dict[str, Serde]:
    """All serdes of its operators by their forms."""
    return {serde.form: serde for node in place.nodes for serde in _serdes_of(node)}


def _serdes_of(value: Any) -> Iterator[Serde]:
    if isinstance(value, Serde) and not isinstance(value, type):
        yield value
        yield from _serdes_of(getattr(value, "inner", None))
    elif isinstance(value, tuple):
        for one in value:
            yield from _serdes_of(one)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _serdes_of(getattr(value, field.name))


def _count(data: bytes) -> int:
    return int.from_bytes(data[:8], "little", signed=True)  # a time may follow


def _aggregates(details: str) -> dict[str, NamedAggregate]:
    """
    >>> [(name, a.kind, a.field) for name, a in _aggregates("n=count,m=max(value.a:decimal(4,2))").items()]
    [('n', 'count', None), ('m', 'max', 'value.a')]
    """
    found = {}
    for name, aggregate in aggregates_in(details).items():
        kind, bracket, rest = aggregate.partition("(")
        field = rest.removesuffix(")").partition(":")[0] if bracket else None
        found[name] = NamedAggregate(kind, field)
    return found


def _named(aggregates: Mapping[str, NamedAggregate], scales: Mapping[str, int], data: bytes) -> dict[str, Any]:
    from headrace.codec.aggregate_states import decoded_states
    from headrace.core.accumulators import accumulators_of, exact_of_stored

    accumulators = accumulators_of(aggregates, scales)
    stored = exact_of_stored(accumulators)(decoded_states(data))[: len(aggregates)]  # a time may follow
    states = zip(aggregates, accumulators, stored, strict=True)
    return {name: accumulator.result(state) for name, accumulator, state in states}


def _table_count(data: bytes) -> int:
    count: int = _table_named({"count": NamedAggregate("count")}, {}, data)["count"]
    return count


def _table_named(aggregates: Mapping[str, NamedAggregate], scales: Mapping[str, int], data: bytes) -> dict[str, Any]:
    from headrace.core.retractable import restored, retractable_of

    own = {name: retractable_of(aggregate, scales.get(name)) for name, aggregate in aggregates.items()}
    states = zip(own.items(), restored(msgspec.msgpack.decode(data)), strict=True)
    return {name: each.result(each.exact(state)) for (name, each), state in states}
