"""Reads what a broker holds, for judging: committed records only, each once. Imports nothing of Headrace.

Tests here look often, and a topic only grows: what was read before is kept.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from support.checker import Row

READ_S_MAX = 60.0


class TopicReader:
    """One topic. `rows()`: partition after partition, in the order of their offsets, which may have holes."""

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                **settings,
                "group.id": f"judge-{uuid.uuid4().hex}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # on a broker's connection all that is asked waits behind a fetch
            }
        )
        self._rows: dict[int, list[Row]] = {}
        self._reached: dict[int, int] = {}

    def rows(self) -> list[Row]:
        """All that can be read at the time of the call, or a little more."""
        self._take_new_partitions()
        places = [TopicPartition(self._topic, partition) for partition in self._rows]
        ends = {place.partition: self._consumer.get_watermark_offsets(place, READ_S_MAX)[1] for place in places}
        deadline_s = time.monotonic() + READ_S_MAX
        while left := [partition for partition, end in ends.items() if self._reached[partition] < end]:
            assert time.monotonic() < deadline_s, f"topic {self._topic!r}: the ends of partitions {left} were not reached"
            for message in self._consumer.consume(1000, 0.02):
                self._take(message)
        return [row for _, rows in sorted(self._rows.items()) for row in rows]

    def close(self) -> None:
        self._consumer.close()

    def _take_new_partitions(self) -> None:
        found = self._consumer.list_topics(self._topic, timeout=READ_S_MAX).topics[self._topic]
        assert found.error is None, f"topic {self._topic!r}: {found.error}"
        new = found.partitions.keys() - self._rows.keys()
        if new:
            self._consumer.incremental_assign([TopicPartition(self._topic, partition, 0) for partition in sorted(new)])
        self._rows |= {partition: [] for partition in new}
        self._reached |= dict.fromkeys(new, 0)

    def _take(self, message: Any) -> None:
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is None:
            row = {"partition": partition, "offset": offset, "key": message.key(), "value": message.value()}
            self._rows[partition].append(row | {"timestamp_us": message.timestamp()[1] * 1000})
            self._reached[partition] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._reached[partition] = max(offset, self._reached[partition])
        else:
            raise KafkaException(error)
