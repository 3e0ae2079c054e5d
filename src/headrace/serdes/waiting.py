"""What is stored of a record that waits for a table, under its key: a MessagePack array."""

from __future__ import annotations

import msgspec


class WaitingRecord(msgspec.Struct, frozen=True, array_like=True):
    """`value`: its bytes; `headers`: pairs of a name and bytes, None for none at all."""

    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None = None


packed_record = msgspec.msgpack.Encoder().encode
waiting_record_of = msgspec.msgpack.Decoder(WaitingRecord).decode
