"""The handling of Arrow binary arrays as numpy memory: fixed-width values and lines of JSON in and out, nulling what failed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.errors import SerdeError
from headrace.serdes.deferred import np, pa

_NEWLINE = ord("\n")


def as_array(data: Any) -> Any:
    return data.combine_chunks() if isinstance(data, pa.ChunkedArray) else data


def as_array_of(wanted: Any, data: Any, form: str) -> Any:
    """`data` as one array of the type `wanted`; `SerdeError` that names the serde's form if it cannot be cast."""
    data = as_array(data)
    try:
        return data if data.type.equals(wanted) else data.cast(wanted)
    except pa.ArrowException as error:
        raise SerdeError(f"{form}: expected an array of {wanted}: {error}") from None


def as_binary(data: Any) -> Any:
    """`data` as one binary array with 32-bit offsets, without a copy where it is one already."""
    data = as_array(data)
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
    with_ends = pa.Array.from_buffers(pa.binary(), len(nulls), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text)])
    array = pa.compute.binary_slice(with_ends, 0, -1)
    return nulled(array, [index for index, null in enumerate(nulls) if null]) if any(nulls) else array
