"""Writing records outside of any transaction, each call's durable when it returns."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException, Producer

from headrace.adapters.kafka.clients import CLIENT_LOG


class SingleRecords:
    """Writes to partition 0 of topics. Threads may share it: they write one after the other.

    The producer is made at the first write and kept: a new one takes longer than all the rest. Not an idempotent one, which
    would wait for its number. `wait_s`: how long a broker may take.
    """

    def __init__(self, client: Mapping[str, Any], wait_s: float) -> None:
        self._client, self._wait_s = dict(client), wait_s
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    def write(self, topic: str, records: Sequence[tuple[bytes, bytes | None]]) -> str | None:
        """Write these (key, value); None when all are durable, else why the first that failed is not."""
        failed: list[str] = []
        with self._lock:
            producer = self._producer = self._producer or self._made()
            for key, value in records:
                self._send(producer, topic, key, value, failed)
            unanswered = producer.flush(self._wait_s + 1)
            if failed or unanswered:
                producer.purge()  # what has failed is not written later
                self._producer = None
        return failed[0] if failed else "no answer" if unanswered else None

    def close(self) -> None:
        with self._lock:
            self._producer = None

    def _made(self) -> Producer:
        settings = {"acks": "all", "linger.ms": 0, "message.timeout.ms": int(self._wait_s * 1000)}
        return Producer({**self._client, **settings, "allow.auto.create.topics": False, "logger": CLIENT_LOG})

    def _send(self, producer: Producer, topic: str, key: bytes, value: bytes | None, failed: list[str]) -> None:
        def told(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error.str())

        while True:
            try:
                return producer.produce(topic, key=key, value=value, partition=0, on_delivery=told)
            except BufferError:  # its queue is full: what is in it is answered, or fails, within `wait_s`
                producer.poll(0.1)
            except KafkaException as error:  # such as one that is larger than it sends
                failed.append(error.args[0].str())
                return None
