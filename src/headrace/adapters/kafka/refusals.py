"""What to say of a record that a topic does not take, and whether another try of the round may succeed."""

from __future__ import annotations

from confluent_kafka import KafkaError

from headrace.errors import HeadraceError, RecordTooLargeError, RoundFailedError, StorageError

_SIZE = "let the topic take larger ones (its max.message.bytes, and kafka.message.max.bytes here), or write smaller records"
# By what brokers answer as long as the record and the topic's settings are what they are.
_FOR_GOOD = {
    KafkaError.MSG_SIZE_TOO_LARGE: _SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE: _SIZE,
    KafkaError.INVALID_TIMESTAMP: "give records other times (timestamp=), or the topic another "
    "message.timestamp.before.max.ms or message.timestamp.after.max.ms",
    KafkaError.INVALID_RECORD: "a compacted topic takes no record without a key",
}
_RIGHT = "with the right DESCRIBE_CONFIGS on the topic, the record is named, or goes to the dead letters"


def undelivered(round_id: str, topic: str, error: KafkaError) -> HeadraceError:
    """That `topic` did not take a record: an error that ends the job, where the next try would meet the same."""
    said = f"{error.name()}: {error.str()}"
    hint = _FOR_GOOD.get(error.code())
    if hint is None:
        return RoundFailedError(
            f"round {round_id}: topic {topic!r} does not take a record: {said}",
            "nothing of the round is committed; it is planned again from what is committed",
        )
    kind = RecordTooLargeError if hint is _SIZE else StorageError
    return kind(f"round {round_id}: topic {topic!r} refuses a record: {said}", f"{hint}; {_RIGHT}")
