"""Which updates of a table a stream of them takes: all that come, or the last of each key in a round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.model import topology as t
from headrace.worker.operators.base import Context, Operator
from headrace.worker.rows import Rows


class ToStreamOperator(Operator):
    """Passes a table's updates on. With `takes_last_of` it is given every update of a table, and emits the last ones."""

    node: t.ToStream
    takes_last_of: Operator | None = None

    def __init__(self, node: t.ToStream, context: Context) -> None:
        super().__init__(node, context)
        self._held: list[Rows] = []

    def push(self, rows: Rows) -> None:
        if self.takes_last_of is None:
            self.forward(rows)
            return
        rows = self.without(rows, rows.key.bytes()[1])
        if len(rows):
            self._held.append(last_per_key(rows))

    def finish(self) -> None:
        if not self._held:
            return
        held, self._held = self._held, []
        rows = last_per_key(Rows.concat(held))
        assert self.takes_last_of is not None
        if passing := self.takes_last_of.passing:
            spoken_of = [key not in passing for key in rows.key.bytes()[0].to_pylist()]
            rows = rows.where(np.array(spoken_of, bool))
        self.forward(rows)


def last_per_key(rows: Rows) -> Rows:
    """Of each key the last row, in the order of these; `rows` are not empty, and their keys encode."""
    keys: Any = rows.key.bytes()[0]
    table = pa.table({"key": keys, "at": pa.array(np.arange(len(rows)))})
    last = table.group_by("key", use_threads=False).aggregate([("at", "max")])["at_max"].to_numpy()
    return rows.take(np.sort(last))
