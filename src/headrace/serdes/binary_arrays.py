"""The handling of Arrow binary arrays as numpy memory: fixed-width values in and out, and nulling what failed.

For the serdes only; imported by them inside functions, since numpy and pyarrow take 0.2 s to import.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa


def as_binary(data: Any) -> Any:
    """`data` as one binary array with 32-bit offsets, without a copy where it is one already."""
    if isinstance(data, pa.ChunkedArray):
        data = data.combine_chunks()
    return data if data.type == pa.binary() else data.cast(pa.binary())


def valid_of(data: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which elements are not null."""
    if data.null_count == 0:
        return np.ones(len(data), dtype=np.bool_)
    return np.asarray(data.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def offsets_of(data: Any) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The len + 1 offsets of a binary array into its own memory, whatever slice of it `data` is."""
    if len(data) == 0:
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(data.buffers()[1], dtype=np.int32)[data.offset : data.offset + len(data) + 1]


def unpacked(data: Any, dtype: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The elements of a binary array as fixed-width numbers of `dtype` (such as `>i8`), in native byte order.

    Gives (values, present, wrong): `present` are those that are not null and of the right width, `wrong` the others
    that are not null; values are 0 where not present.
    """
    width = np.dtype(dtype).itemsize
    native = np.dtype(dtype).newbyteorder("=")
    valid = valid_of(data)
    lengths = np.diff(offsets_of(data))
    wrong = valid & (lengths != width)
    present = valid & ~wrong
    good = data if bool(present.all()) else data.filter(pa.array(present))
    values = np.zeros(len(data), dtype=native)
    if len(good):
        begin = int(offsets_of(good)[0])
        values[present] = np.frombuffer(good.buffers()[2], dtype=dtype, count=len(good), offset=begin)
    return values, present, wrong


def packed(values: np.ndarray[Any, Any], present: np.ndarray[Any, Any], dtype: str) -> Any:
    """The binary array of `values` as fixed-width numbers of `dtype`; null where not `present`."""
    width = np.dtype(dtype).itemsize
    everywhere = bool(present.all())
    body = (values if everywhere else values[present]).astype(dtype).tobytes()
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(present, out=offsets[1:])
    offsets *= width
    bitmap = None if everywhere else pa.py_buffer(np.packbits(present, bitorder="little").tobytes())
    buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32).tobytes()), pa.py_buffer(body)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def nulled(data: Any, indices: Iterable[int]) -> Any:
    """`data` with nulls at `indices`."""
    mask = np.zeros(len(data), dtype=np.bool_)
    mask[list(indices)] = True
    return pa.compute.if_else(pa.array(mask), pa.scalar(None, data.type), data)
