"""Taking lanes from outside of a container: to end what is open there, and to set a position that was lost.

Who takes a lane's transactional id fences its previous owner; only who has taken it last can commit under it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import KafkaException, Producer

from headrace.adapters.kafka.clients import FENCED, error_text, new_producer, retried_in_pieces, send_offsets, take_id
from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.names import lane_id
from headrace.adapters.kafka.positions import Position, offsets_by_group
from headrace.errors import UnavailableError

FENCE_S = 30.0


class LaneFencing:
    """Takes lanes of an application. `client` are librdkafka's settings, `timeout_ms` bounds a transaction."""

    def __init__(self, client: Mapping[str, Any], application: str, timeout_ms: int, deadline: Deadline) -> None:
        self._client, self._application = client, application
        self._timeout_ms, self._deadline = timeout_ms, deadline

    def fence(self, lanes: Mapping[str, Collection[int]]) -> None:
        """End what any container of these lanes has open, and shut out the previous owner of each. `lanes`: by the titles of
        sub-topologies."""
        ids = [lane_id(self._application, title, lane) for title, mine in lanes.items() for lane in mine]
        with ThreadPoolExecutor(max_workers=min(8, max(1, len(ids)))) as pool:
            list(pool.map(self._fence_one, ids))

    def take(self, title: str, lane: int) -> Producer:
        """The lane's producer: its previous owner is fenced."""
        return self._taken(lane_id(self._application, title, lane))

    def _fence_one(self, id_: str) -> None:
        self._taken(id_)

    def _taken(self, id_: str) -> Producer:
        try:
            producer = new_producer(self._client, id_, self._timeout_ms)
            retried_in_pieces(lambda piece_s: take_id(producer, piece_s), FENCE_S, self._deadline)
            return producer
        except KafkaException as error:
            raise UnavailableError(
                f"application {self._application!r}: transactional id {id_!r} could not be fenced: {error.args[0].str()}",
                "is the broker up, and may this user write under that transactional id?",
            ) from None

    def set_positions(self, producer: Producer, positions: Iterable[Position]) -> bool:
        """Commit positions of the lane that `producer` has taken; False where another has taken it since: nothing is set."""
        try:
            producer.begin_transaction()
            for group, offsets in offsets_by_group(positions).items():
                send_offsets(producer, self._client, group, offsets, deadline=self._deadline)
            retried_in_pieces(producer.commit_transaction, FENCE_S, self._deadline)
            return True
        except KafkaException as error:
            if error.args[0].code() in FENCED:
                return False
            raise UnavailableError(
                f"application {self._application!r}: lost positions could not be set again: {error_text(error)}",
                "nothing of it counts unless it was committed after all; it is read again before anything is built on it",
            ) from None
