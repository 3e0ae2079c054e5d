"""The writer of `produce`: what becomes of it when a step of its transaction fails. The broker is a stub."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.adapters.kafka import records
from headrace.core.secrets import Secrets
from headrace.errors import StorageError


class Stub:
    """A producer that refuses every step but the first until its id is taken."""

    def __init__(self) -> None:
        self.has_id = False

    def begin_transaction(self) -> None:
        if not self.has_id:
            raise KafkaException(KafkaError(KafkaError._STATE, "no id"))

    def purge(self, **_: bool) -> None:
        pass

    def abort_transaction(self, _: float) -> None:
        pass


def test_after_a_start_that_failed_the_next_one_takes_the_id_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([KafkaException(KafkaError(KafkaError._TIMED_OUT, "no coordinator")), None])

    def take_id(producer: Stub, _: float) -> None:
        if (error := next(answers)) is not None:
            raise error
        producer.has_id = True

    sent: list[Any] = []
    monkeypatch.setattr(records, "new_producer", lambda *_: Stub())
    monkeypatch.setattr(records, "take_id", take_id)
    monkeypatch.setattr(records, "retried", lambda function, *arguments, bound_s: function(*arguments))
    monkeypatch.setattr(records, "produce_all", lambda producer, topic, messages, errors, wait_s: sent.extend(messages))
    writer = records.TransactionalWriter({}, "id", Secrets())
    with pytest.raises(StorageError, match="no coordinator"):
        writer.write("t", [])
    writer.abort()
    writer.write("t", [1])
    assert sent == [1]
