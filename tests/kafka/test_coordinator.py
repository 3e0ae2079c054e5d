"""The coordinator's transactions where the client says in the middle that they are another driver's now."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.adapters.kafka.coordinator import Coordinator
from headrace.errors import FencedError, UnavailableError


class Client:
    """A producer that fails at its second record, in one call or in the other that comes with it."""

    def __init__(self, code: int, call: str) -> None:
        self._code, self._call, self.produced = code, call, 0

    def begin_transaction(self) -> None: ...

    def poll(self, timeout_s: float) -> None:
        self._fail("poll")

    def produce(self, topic: str, **_: Any) -> None:
        self.produced += 1
        self._fail("produce")

    def _fail(self, call: str) -> None:
        if self.produced == 2 and call == self._call:
            raise KafkaException(KafkaError(self._code, "Failed to add partitions to transaction", True))


@pytest.mark.parametrize("call", ["produce", "poll"])
@pytest.mark.parametrize(("code", "raised"), [(KafkaError._FENCED, FencedError), (KafkaError._FATAL, UnavailableError)])
def test_what_a_record_is_refused_for_says_whether_another_driver_has_taken_over(
    code: int, raised: type[Exception], call: str
) -> None:
    coordinator, client = Coordinator({}, "delays", lambda: None), Client(code, call)
    coordinator._producer = client  # type: ignore[assignment]
    with pytest.raises(raised, match="'delays'"):
        coordinator.transact([("delays-metadata", b"k", b"v")] * 3)
    assert client.produced == 2
