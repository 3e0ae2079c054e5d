"""Kafka's `MetadataStore`: reading an application's named values, and leaving requests for its driver.

Values are records of the compacted topic `<application>-metadata`. A request is one too, under a key of its own, written
outside of any transaction: an open one there would hold back what the driver reads (protocol.md 6).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Sequence

from headrace.adapters.kafka.application_topics import ApplicationTopics
from headrace.adapters.kafka.names import entries_of

REQUESTS = "/requests"  # after a namespace


class KafkaMetadataStore:
    """See `headrace.ports.MetadataStore`."""

    def __init__(self, topics: ApplicationTopics, application: str) -> None:
        self._topics, self._application = topics, application

    def get(self, namespace: str, key: str) -> bytes | None:
        return self.all(namespace).get(key)

    def all(self, namespace: str) -> dict[str, bytes]:
        """Every value of the namespace, by key; empty where the application never ran."""
        if not self._topics.are_there(self._application):
            return {}
        return entries_of(self._topics.metadata(self._application).refresh(), namespace)

    def stamp(self) -> object:
        """How far the topic was read, None where there is none."""
        if not self._topics.are_there(self._application):
            return None
        return self._topics.metadata(self._application).refreshed_to()

    def request(self, namespace: str, value: bytes) -> str:
        return self.request_all(namespace, [value])[0]

    def request_all(self, namespace: str, values: Sequence[bytes]) -> tuple[str, ...]:
        if not values:
            return ()
        self._topics.make(self._application)
        now_ns = time.time_ns()
        ids = [f"{now_ns + nth:020d}-{uuid.uuid4().hex[:12]}" for nth in range(len(values))]  # in the order of their making
        entries = {id_: bytes(value) for id_, value in zip(ids, values, strict=True)}
        self._topics.write(self._application, namespace + REQUESTS, entries)
        return tuple(ids)

    def requests(self, namespace: str) -> dict[str, bytes]:
        return self.all(namespace + REQUESTS)

    def withdraw(self, namespace: str, ids: Collection[str]) -> None:
        if ids and self._topics.are_there(self._application):
            self._topics.write(self._application, namespace + REQUESTS, dict.fromkeys(ids))
