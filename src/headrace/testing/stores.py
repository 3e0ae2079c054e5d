"""What a test sees of a store, its entries as of the last commit, and how what it sends and reads is encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, overload

from headrace.client.state_reader import SubKey
from headrace.client.store_form import StoreForm
from headrace.core.keys.key_layout import split_state_key, state_key, time_bytes
from headrace.errors import HeadraceError, SerdeError, StateError
from headrace.model.serde import Serde
from headrace.model.topology import Repartition, Sink, Topology
from headrace.serdes.typed import K, V

D = TypeVar("D")


class StoredView(Generic[K, V]):
    """One store of an application over all its tasks; every call reads what is committed by then.

    `K` and `V` are the types of what `items` gives, to name in annotations: `counts: StoredView[str, int] = d.store("counts")`.
    An entry is missing once it was deleted: what has outlived its time is deleted at the next round of its task.
    """

    def __init__(self, name: str, form: StoreForm, entries: Callable[[], Iterable[tuple[bytes, bytes]]]) -> None:
        self.name, self._form, self._stored = name, form, entries

    @overload
    def get(self, key: object, default: None = None, *, sub: SubKey = b"", at: int | None = None) -> V | None: ...
    @overload
    def get(self, key: object, default: D, *, sub: SubKey = b"", at: int | None = None) -> V | D: ...

    def get(self, key: Any, default: object = None, *, sub: SubKey = b"", at: int | None = None) -> object:
        """The value under `key`; `sub` is a Processor's sub-key, or the number of a list's entry, `at` (µs) the start of a
        window or a time.

        For a windowed aggregate `key` may be the `hr.WindowedKey` of the result.
        """
        start, ends = getattr(key, "start_us", None), [b""]
        if start is not None and self._form.by_time and at is None:
            ends.append(time_bytes(key.end_us))  # of a session that has closed, where another has its start
            key, at = key.key, start
        if self._form.by_time and at is None:
            raise StateError(
                f"store {self.name!r} keeps values by time, and get has no time",
                "give at=, the start of a window or the time in µs, or the hr.WindowedKey of a result; all() has all of them",
            )
        under = time_bytes(at) if at is not None else _bytes_of(sub)
        wanted = [state_key(self._form.key.encode(key), under + end) for end in ends]
        found = {layout: data for layout, data in self._entries() if layout in wanted}
        return next((self._form.value_of(found[layout])[0] for layout in reversed(wanted) if layout in found), default)

    def all(self) -> dict[K, V]:
        """All entries: key to value, or (key, sub-key) and (key, time in µs) to value where there are such."""
        try:
            return dict(self.items())
        except TypeError:  # a key is a list or a dict
            raise StateError(
                f"store {self.name!r} has keys that Python cannot hash, such as lists", "take items() instead of all()"
            ) from None

    def items(self) -> list[tuple[K, V]]:
        """What `all` gives, as pairs: for keys that cannot be those of a dict."""
        found: list[tuple[Any, V]] = []
        for layout, data in self._entries():
            key_bytes, sub = split_state_key(layout)
            key = self._form.key.decode(key_bytes)
            under = self._form.time_of(sub) if self._form.by_time else self._form.sub_of(sub)
            found.append((key if under == b"" else (key, under), self._form.value_of(data)[0]))
        return found

    def __len__(self) -> int:
        return sum(1 for _ in self._entries())

    def _entries(self) -> Iterator[tuple[bytes, bytes]]:
        return ((layout, data) for layout, data in self._stored() if self._form.is_value(split_state_key(layout)[1]))


def _bytes_of(sub: SubKey) -> bytes:
    return time_bytes(sub) if isinstance(sub, int) else sub.encode() if isinstance(sub, str) else sub


def serdes_of(stream: str, topology: Topology, dead_letter_stream: str | None) -> tuple[Serde | None, Serde | None]:
    """Those of what writes the stream: a sink or a repartition, else its source, else a sink that chooses its stream."""
    writers = [n for n in topology.nodes if isinstance(n, (Sink, Repartition)) and n.stream == stream]
    if writers:
        return writers[0].key, writers[0].value
    for source in topology.sources:
        if source.stream == stream:
            return source.key, source.value
    if stream == dead_letter_stream:
        return None, None
    choosing = [n for n in topology.nodes if isinstance(n, Sink) and not isinstance(n.stream, str)]
    return (choosing[0].key, choosing[0].value) if choosing else (None, None)


def encoded(stream: str, part: str, serde: Serde | None, value: Any, raw: bool = False) -> bytes | None:
    """The bytes of a record's key or value (`part`); of `raw` ones as they are."""
    if value is None:
        return None
    if raw and not isinstance(value, bytes):
        raise SerdeError(
            f"send: the {part} of a record for stream {stream!r} is {type(value).__name__}; with raw=True bytes are taken",
            "give both key and value as bytes, or None; without raw=True they are encoded as the application reads them",
        )
    form = "bytes" if serde is None else serde.form
    try:
        data: bytes = value if serde is None else serde.encode(value)
        return data
    except Exception as error:  # a serde of the user's may raise anything
        message = error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
        raise SerdeError(
            f"send: the {part} of a record for stream {stream!r} does not encode as `{form}`: {message}",
            "give what the application reads there, or bytes with raw=True",
        ) from error
