"""State files as tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from headrace.model.checkpoint import StateFile, StateFileKind
from headrace.state_files.batches import SCHEMA, batches_of, binary_array
from headrace.state_files.files import FilePlace, StateFiles


def table_in(files: StateFiles, file: StateFile) -> pa.Table:
    return pa.Table.from_batches(files.batches(file), SCHEMA)


def write_table(files: StateFiles, folder: str, kind: StateFileKind, version: int, rows: Any) -> StateFile:
    """`rows`: the columns db, key and value, sorted by db and key."""
    return files.write_batches(FilePlace(folder, 1), kind, version, _batches(rows))


def _batches(rows: Any) -> Iterator[pa.RecordBatch]:
    for db, found in groupby(pa.table(rows).to_pylist(), itemgetter("db")):
        entries = list(found)
        yield from batches_of(db, *(binary_array([row[name] for row in entries]) for name in ("key", "value")))
