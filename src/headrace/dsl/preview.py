"""The records that a preview shows, as a table: on a terminal, in a notebook, or as a pandas DataFrame."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.model.durations import time_text, time_us
from headrace.record import Record
from headrace.serdes.windowed import WindowedKey
from headrace.terminal_text import safe_line, safe_text

if TYPE_CHECKING:
    import pandas as pd

_CELL_CHARACTERS_MAX = 60
WINDOW, SESSION = "window", "session"


@dataclass(frozen=True, slots=True)
class Preview:
    """Records of a bounded read. `records`: `hr.Record`s in order of time; `notes`: what else there is to know.

    Of an application, a record's `stream` is the output that it would go to. It prints as a table. `windows`: of outputs
    with windowed keys, whether these are windows (`WINDOW`) or sessions (`SESSION`), where that is known.
    """

    title: str
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    windows: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def to_df(self) -> pd.DataFrame:
        """The records as a pandas DataFrame with the columns that are shown."""
        import pandas as pd

        return pd.DataFrame([self._row(record) for record in self.records], columns=self._columns())

    def _columns(self) -> list[str]:
        several = len({record.stream for record in self.records}) > 1
        return [*(["stream"] if several else []), "key", "value", "timestamp", "partition"]

    def _row(self, record: Record) -> list[Any]:
        return [getattr(record, name) for name in self._columns()]

    def _cells(self) -> list[list[str]]:
        kinds = [self.windows.get(record.stream or "", "") for record in self.records]
        return [[_cell(value, kind) for value in self._row(record)] for record, kind in zip(self.records, kinds, strict=True)]

    def __repr__(self) -> str:
        names, rows = self._columns(), self._cells()
        widths = [max(len(name), *(len(row[i]) for row in rows), 0) for i, name in enumerate(names)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [names, ["-" * width for width in widths], *rows]
        ]
        return "\n".join([safe_line(self.title), *lines, *map(safe_text, self.notes)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self._columns())
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in self._cells())
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        caption = f"<caption>{html.escape(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _cell(value: Any, windows: str = "") -> str:
    if isinstance(value, WindowedKey):
        return f"{_cell(value.key)} {_window_text(value, windows)}"
    if isinstance(value, datetime):
        return time_text(time_us(value))
    text = value if isinstance(value, str) else "" if value is None else str(value)
    text = safe_line(text)
    return text if len(text) <= _CELL_CHARACTERS_MAX else f"{text[: _CELL_CHARACTERS_MAX - 1]}…"


def _window_text(key: WindowedKey, windows: str) -> str:
    """A window as [start, end), a session, in which its last record is, as [start, end]; bare where it may be either."""
    start, end = time_text(key.start_us), time_text(key.end_us)
    if windows == SESSION or key.start_us == key.end_us:
        return f"[{start}, {end}]"
    return f"[{start}, {end})" if windows == WINDOW else f"{start} to {end}"
