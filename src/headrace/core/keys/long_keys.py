"""How entries of long keys are stored: under a digest of the key, with the key itself before the value.

    layout    head with the digest | length and key | sub-key          value
    stored    head with the digest | sub-key                           length and key | value

LMDB, segments and snapshots hold what is stored; operators and readers of state see layouts. So the key that an entry
belongs to is always known in full, and is compared wherever a digest led to an entry (protocol.md 21). Entries of other
keys, and of time indexes, are stored as they are.
"""

from __future__ import annotations

from headrace.core.keys.key_layout import DIGEST_HEAD_BYTES, LAYOUT_BYTES_MAX, LONG_LENGTH_BYTES, is_digest


def is_long(layout: bytes) -> bool:
    """Whether an entry of this layout is stored in another form."""
    return len(layout) > LAYOUT_BYTES_MAX and is_digest(layout)


def parted(layout: bytes) -> tuple[bytes, bytes, bytes]:
    """A long layout as head, length and key, and sub-key."""
    assert is_long(layout), layout[:DIGEST_HEAD_BYTES]
    start = DIGEST_HEAD_BYTES + LONG_LENGTH_BYTES
    end = start + int.from_bytes(layout[DIGEST_HEAD_BYTES:start], "big")
    assert end <= len(layout), layout[:start]
    return layout[:DIGEST_HEAD_BYTES], layout[DIGEST_HEAD_BYTES:end], layout[end:]


def stored_key(layout: bytes) -> bytes:
    """What an entry is stored under. Layouts of two keys with one digest give the same."""
    if not is_long(layout):
        return layout
    head, _, sub = parted(layout)
    return head + sub


def stored_entry(layout: bytes, value: bytes) -> tuple[bytes, bytes]:
    if not is_long(layout):
        return layout, value
    head, key, sub = parted(layout)
    return head + sub, key + value


def entry_of(stored: bytes, data: bytes) -> tuple[bytes, bytes]:
    """The layout and the value of what is stored.

    >>> from headrace.core.keys.key_layout import state_key
    >>> layout = state_key(b"k" * 1000, b"sub")
    >>> len(layout), len(stored_key(layout)), entry_of(*stored_entry(layout, b"v")) == (layout, b"v")
    (1081, 77, True)
    """
    if not is_digest(stored):
        return stored, data
    end = LONG_LENGTH_BYTES + int.from_bytes(data[:LONG_LENGTH_BYTES], "big")
    assert end <= len(data), (stored, end, len(data))
    return stored[:DIGEST_HEAD_BYTES] + data[:end] + stored[DIGEST_HEAD_BYTES:], data[end:]
