"""Requests to brokers: with a bound on every wait, and errors that say what was waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.adapters.kafka.clients import CLIENT_LOG, quiet
from headrace.adapters.kafka.connection import Connection
from headrace.adapters.kafka.deadline import Deadline
from headrace.errors import ConfigError, StorageError, UnavailableError

T = TypeVar("T")
LOG = logging.getLogger("headrace.kafka")
REQUEST_S = 5.0  # for this long one request is waited for
SAY_AGAIN_S = 60.0  # how often it says the same again
ANSWERED_S_MAX = 30.0  # librdkafka gives up after the time of each request, which is less
SETTLE_S = 5.0  # how long errors that may be temporary are retried: a refused user, an unknown topic
SAY_S = 2.0  # after this long a wait says what it waits for
RIGHTS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)  # fmt: skip
# What brokers answer as long as rights and settings are what they are, and what to do about it.
_LASTING = dict.fromkeys(RIGHTS, "this user has not the right to; docs/kafka.md lists the rights that a job needs") | {
    **dict.fromkeys(
        (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE),
        "raise max.message.bytes of the topic; where the job makes it, leave out kafka.topic.max.message.bytes",
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "raise transaction.max.timeout.ms of the broker",
}
_NO_CONNECTION = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN})
# May be so for a moment, while a broker starts; else for ever.
SETTLES = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART})
# What is known of a partition's leader is of before it went away.
_STALE = frozenset({KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH})
# Not retriable by librdkafka's word, but temporary: until the broker is back, or its leader has just come back. It knows its
# topics first, and their leaders later (_NOENT); when it goes down, it breaks handshakes off, too (_SSL). Brokers that are
# listed may not take topics for a while, as the controller has not heard of them (INVALID_REPLICATION_FACTOR).
WAIT = _NO_CONNECTION | _STALE | {
    KafkaError._RESOLVE, KafkaError._NOENT, KafkaError._SSL, KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.INVALID_REPLICATION_FACTOR,
}  # fmt: skip
_NOT_REACHED = "cannot reach Kafka at "
_PLAIN = {
    "Connection refused": "connection refused",
    "Failed to resolve": "unknown host name",
    "No route to host": "no route to host",
}


class _Heard:
    """Why there is no connection: a request says only that there is none. librdkafka calls it; it knows no `Admin`, which a
    client would keep alive otherwise."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # what that comes from has been heard before it
            self.error = error


class BrokerRequests:
    """Requests to one broker. Each is tried again for `connection.wait_s`, while it may help; then `StorageError`."""

    def __init__(self, connection: Connection, deadline: Deadline | None = None) -> None:
        self.connection = connection
        self._deadline = deadline or Deadline()
        self._heard = _Heard()
        self._kept: AdminClient | None = self._connected()

    @property
    def _client(self) -> AdminClient:
        client = self._kept
        if client is None:  # one with nothing to do is false
            client = self._kept = self._connected()
        return client

    def close(self) -> None:
        """Give up the connection; what is asked after this makes another one."""
        self._kept = None

    @property
    def _request_s(self) -> float:
        return 1.0 if self._deadline.is_expedited else min(REQUEST_S, max(1.0, self.connection.wait_s))

    def _connected(self) -> AdminClient:
        settings: dict[str, Any] = {**quiet(self.connection.client), "socket.timeout.ms": 10_000}
        # By default brokers may create a topic that is only looked up, such as one that was just deleted.
        settings |= {"allow.auto.create.topics": False, "error_cb": self._heard, "logger": CLIENT_LOG}
        try:
            return AdminClient(settings)
        except KafkaException as error:
            text = self.connection.secrets.cleaned(error.args[0].str())
            raise ConfigError(f"the kafka.* settings are refused: {text}", "see the configuration's kafka.* keys") from None

    def answer(self, what: str, ask: Callable[[], T]) -> T:
        """The answer of `ask`. `what` completes "cannot ..." for the error, and "waiting to ..." for the log."""
        began_s = said_s = time.monotonic()
        said = ""
        while True:
            try:
                found = ask()
                self._heard.error = None  # not before: what stays as it is is heard once
                return found
            except KafkaException as error:
                cause = error.args[0]
            now_s = time.monotonic()
            self._client.poll(0)  # to hear
            if cause.code() in _STALE:  # librdkafka would ask with what it knows, again and again
                self._kept = self._connected()
            if self._heard.error is not None and (cause.code() in _NO_CONNECTION):
                cause = self._heard.error
            if self._deadline.left_s(began_s, self._bound_s(cause)) <= 0:
                raise self.failed(what, cause, now_s - began_s)
            text = self._text(cause)
            if now_s - began_s > SAY_S and (text != said or now_s - said_s > SAY_AGAIN_S):
                said_s, said = now_s, text
                LOG.warning("waiting to %s, for up to %.0f s: %s", what, self._bound_s(cause), text)
            self._deadline.pause(0.1)

    def _requested(self, request: Callable[[AdminClient], Mapping[Any, Any]]) -> Mapping[Any, Any]:
        """The futures of a request, once all are done: `result()` then gives at once. The client is held meanwhile: another
        thread may put a new one in its place, and what is asked of a client that is no longer referenced is never answered."""
        client, began_s = self._client, time.monotonic()
        futures = request(client)
        while wait(futures.values(), self._deadline.piece_s(began_s, ANSWERED_S_MAX)).not_done:
            if self._deadline.left_s(began_s, ANSWERED_S_MAX) <= 0:
                waited_s = time.monotonic() - began_s
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer within {waited_s:.0f} s"))
        return futures

    def _answers(self, what: str, request: Callable[[AdminClient], Mapping[Any, Any]], *absent: int) -> dict[Any, Any]:
        """What each future of a request gives, without those that failed with the codes `absent`."""

        def ask() -> dict[Any, Any]:
            found = {}
            for key, future in self._requested(request).items():
                try:
                    found[key] = future.result()
                except KafkaException as error:
                    if error.args[0].code() not in absent:
                        raise
            return found

        return self.answer(what, ask)

    def _bound_s(self, cause: KafkaError) -> float:
        """For how long it may help to ask again."""
        if cause.code() in RIGHTS:
            return 0.0
        if cause.code() in SETTLES:
            return min(SETTLE_S, self.connection.wait_s)
        return self.connection.wait_s if cause.retriable() or cause.code() in WAIT else 0.0

    def _text(self, cause: KafkaError) -> str:
        plain = plain_cause(cause.str()) if cause.code() in WAIT else None
        if plain is not None and "," not in self.connection.servers:  # of several others may answer
            return f"cannot reach Kafka at {self.connection.servers}: {plain}"
        return self.connection.secrets.cleaned(f"{cause.name()}: {cause.str()}")

    def failed(self, what: str, cause: KafkaError, after_s: float = 0.0) -> StorageError:
        waited = f" after {after_s:.0f} s" if after_s >= 1 else ""
        hint = f"is the broker at {self.connection.servers} up, and are its address and the kafka.security settings right?"
        if cause.code() in RIGHTS:
            hint = _LASTING[cause.code()]
        kind = UnavailableError if cause.retriable() or cause.code() in WAIT else StorageError
        text = self._text(cause)
        if text.startswith(_NOT_REACHED):
            return kind(text + (f" (tried for {after_s:.0f} s, to {what})" if after_s >= 1 else ""), hint)
        return kind(f"cannot {what}{waited}: {text}", hint)


def lasting_hint(cause: KafkaError) -> str | None:
    """What to do about an error that another try would meet again; None for one that may pass."""
    return _LASTING.get(cause.code())


def plain_cause(text: str) -> str | None:
    """Why there is no connection, in a few words; None where librdkafka's own text says it best.

    >>> plain_cause("127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms)")
    'connection refused'
    """
    return next((plain for words, plain in _PLAIN.items() if words in text), None)
