"""The way between many JSON values and one buffer of lines, which msgspec reads and writes by one call.

For `json_serde` only, imported by it inside functions, since numpy and pyarrow take 0.2 s to import.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.serdes.binary_arrays import nulled, offsets_of

_NEWLINE = ord("\n")


def joined(data: Any) -> Any:
    """All values of a binary array without nulls, a line each; None where it is not certain that each has its own line.

    Each value must begin with `{` or `[` and end with `}` or `]`. Then, if as many values are read as there are lines,
    there is one in each: a `}` or `]`, a line's end, and then a `{` or `[` cannot be inside a value (a comma would
    be missing, and a string has no line's end in it), so that no value goes beyond its line.
    """
    if len(data) == 0:
        return b""
    offsets = offsets_of(data)
    if not bool((np.diff(offsets) > 0).all()):
        return None
    memory = np.frombuffer(data.buffers()[2], dtype=np.uint8)
    if not (_among(memory[offsets[:-1]], b"{[") and _among(memory[offsets[1:] - 1], b"}]")):
        return None
    lines = pa.ListArray.from_arrays(pa.array([0, len(data)], pa.int32()), data)
    return pa.compute.binary_join(lines, b"\n")[0].as_buffer()


def _among(found: Any, two: bytes) -> bool:
    return bool(((found == two[0]) | (found == two[1])).all())


def parted(text: bytes, nulls: list[bool]) -> Any:
    """Lines of JSON as a binary array; null where `nulls` is true. JSON as written has no line's end in it."""
    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == _NEWLINE)
    assert len(ends) == len(nulls), "a value was written in several lines"
    offsets = np.zeros(len(nulls) + 1, dtype=np.int32)
    offsets[1:] = ends + 1
    with_ends = pa.Array.from_buffers(
        pa.binary(), len(nulls), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text)]
    )
    array = pa.compute.binary_slice(with_ends, 0, -1)
    return nulled(array, [index for index, null in enumerate(nulls) if null]) if any(nulls) else array
