"""Owns writing one record outside of any transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer

from headrace.adapters.kafka.client_log import CLIENT_LOG


def write_one(client: Mapping[str, Any], topic: str, key: bytes, value: bytes, wait_s: float) -> str | None:
    """Write one record to partition 0; why it failed, or None when it is durable.

    Not by an idempotent producer, which would wait for its number longer than all the rest takes.
    """
    failed: list[str] = []
    settings = {**client, "acks": "all", "linger.ms": 0, "message.timeout.ms": int(wait_s * 1000)}
    producer = Producer({**settings, "allow.auto.create.topics": False, "logger": CLIENT_LOG})
    producer.produce(
        topic, key=key, value=value, partition=0, on_delivery=lambda error, _: failed.append(error.str()) if error else None
    )
    unanswered = producer.flush(wait_s + 1)
    return failed[0] if failed else "no answer" if unanswered else None
