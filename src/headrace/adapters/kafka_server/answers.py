"""Whether a broker answers, asked without a Kafka client."""

from __future__ import annotations

import socket
import struct

_METADATA, _VERSION = 3, 1
_ANSWER_BYTES_MAX = 1 << 20


def brokers_known_to(host: str, port: int, timeout_s: float) -> frozenset[int]:
    """The ids of the brokers that the one at `host`:`port` knows to be up; empty if it gives no answer in time. A real
    Metadata request: only a broker that the controller has let in is in the answer; a port that is open says less."""
    asks = struct.pack(">hhih8si", _METADATA, _VERSION, 1, 8, b"headrace", 0)  # with a number, our name, and no topic
    try:
        with socket.create_connection((host, port), timeout_s) as connection, connection.makefile("rb") as answers:
            connection.sendall(struct.pack(">i", len(asks)) + asks)
            (length,) = struct.unpack(">i", answers.read(4))
            return _broker_ids(answers.read(length)) if 8 <= length <= _ANSWER_BYTES_MAX else frozenset()
    except (OSError, struct.error):
        return frozenset()


def _broker_ids(answer: bytes) -> frozenset[int]:
    """Of `correlation id, count, then (node id, host, port, rack) each`; a text has its length first, -1 is none."""
    (count,) = struct.unpack_from(">i", answer, 4)
    at, found = 8, []
    for _ in range(count):
        node_id, length = struct.unpack_from(">ih", answer, at)
        at += 6 + length + 4
        (rack_length,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(0, rack_length)
        found.append(node_id)
    return frozenset(found)
