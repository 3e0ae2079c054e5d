"""Reads committed state by itself, as `checker` reads the log: no code of the runtime, only its formats.

State is what the files of the current checkpoints make, one after the other (protocol.md, "Terms").
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa


def state_of(checkpoints: Mapping[str, dict], state_dir: Path, store: str) -> dict[tuple[bytes, bytes], bytes]:
    """(key, sub-key) to value over all tasks; a key that two tasks hold is an `AssertionError`."""
    found: dict[tuple[bytes, bytes], bytes] = {}
    for task, checkpoint in checkpoints.items():
        entries: dict[bytes, bytes] = {}
        for file in (checkpoint["head"] or {"files": ()})["files"]:
            table = pa.ipc.open_file(state_dir / file["name"]).read_all()
            for row in table.to_pylist():
                if row["db"] != store or not _counts(file, row["key"]):
                    continue
                if row["value"] is None:
                    entries.pop(row["key"], None)
                else:
                    entries[row["key"]] = row["value"]
        for layout, value in entries.items():
            length = int.from_bytes(layout[8:10], "big")
            key = layout[10 : 10 + length], layout[10 + length :]
            assert key not in found, f"{key!r} of store {store!r} is in two tasks, one of them {task}"
            found[key] = value
    return found


def _counts(file: Mapping[str, Any], layout: bytes) -> bool:
    """Whether a task has an entry of a file that it shares with others: those of its slots, the top ten bits of a layout."""
    slots = file.get("slots")
    return slots is None or slots["low"] <= int.from_bytes(layout[:2], "big") >> 6 < slots["high"]


def checkpoints_of(log_dir: Path, application: str) -> dict[str, dict]:
    """Every task's checkpoint, as it is stored."""
    database = sqlite3.connect(f"file:{quote(str(log_dir / 'catalog.sqlite'))}?mode=ro", uri=True)
    try:
        rows = database.execute("SELECT task, checkpoint FROM checkpoints WHERE application = ?", (application,))
        return {task: json.loads(text) for task, text in rows}
    finally:
        database.close()


def stored_count(value: bytes) -> int:
    """What a store of counts holds, without the time of the last record behind it."""
    return int.from_bytes(value[:8], "little", signed=True)


def stored_fields(value: bytes) -> tuple[Any, ...]:
    """What a store of an aggregate holds, field by field, without the time of the last record behind them."""
    return tuple(msgspec.msgpack.decode(value)[:-1])


def stored_time_us(sub_key: bytes) -> int:
    """The start of a window, as a store has it behind the key."""
    return int.from_bytes(sub_key, "big") - 2**63
