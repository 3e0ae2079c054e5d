"""Owns Kafka's `MetadataStore`: reading an application's named values, and leaving requests for its driver.

Values are records of the compacted topic `<application>-metadata`. A request is one too, under a key of its own, written
outside of any transaction: an open one there would hold back what the driver reads (protocol.md 6).
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from headrace.adapters.kafka.entries import entries_of

REQUESTS = "/requests"  # after a namespace


class KafkaMetadataStore:
    """See `headrace.ports.MetadataStore`. `system` is the `KafkaSystem`."""

    def __init__(self, system: Any, application: str) -> None:
        self._system, self._application = system, application

    def get(self, namespace: str, key: str) -> bytes | None:
        return self.all(namespace).get(key)

    def all(self, namespace: str) -> dict[str, bytes]:
        """Every value of the namespace, by key; empty where the application never ran."""
        if not self._system.has_books(self._application):
            return {}
        return entries_of(self._system.metadata_of(self._application).refresh(), namespace)

    def request(self, namespace: str, value: bytes) -> str:
        self._system.ensure_job_topics(self._application)
        id_ = f"{time.time_ns():020d}-{uuid.uuid4().hex[:12]}"  # in the order of their making
        self._system.write_entry(self._application, namespace + REQUESTS, id_, bytes(value))
        return id_

    def requests(self, namespace: str) -> dict[str, bytes]:
        return self.all(namespace + REQUESTS)
