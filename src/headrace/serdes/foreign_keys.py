"""What tasks tell each other in a join of tables by foreign keys: `Subscription`, of a row where its foreign key is, and
`Answer`, of the result that was found there. MessagePack arrays. Their serdes are put in by `KTable.join(foreign_key=...)`."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Any

import msgspec

from headrace.errors import SerdeError
from headrace.model.serde import Serde
from headrace.serdes.row_changes import NOT_OURS, Pairs

_VERSION = Struct(">QQQ")
VERSION_BYTES = _VERSION.size
NEVER_US = -(1 << 62)  # before all times of records


class RowIs(IntEnum):
    """Where a row is, as a subscription says."""

    IS_HERE = 1  # it has this foreign key, and wants its results
    HAS_MOVED = 2  # it has another one
    IS_NOWHERE = 3  # it has none, or is deleted: that is a result too


class Subscription(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`row`: the bytes of its key; `version` orders what is said of a row, and `value` is None for one that is deleted. At the
    watermark `settled_us` all that was said before has been answered, and the answers have been read."""

    row_is: RowIs
    row: bytes
    version: bytes
    settled_us: int
    value: bytes | None = None


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The result for the version of a row that it answers; None: it has none."""

    version: bytes
    settled_us: int
    value: Any = None


class AnswerBytes(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An answer whose value is not decoded."""

    version: bytes
    settled_us: int
    value: bytes | None = None


packed = msgspec.msgpack.Encoder().encode
_subscription = msgspec.msgpack.Decoder(Subscription).decode
_answer = msgspec.msgpack.Decoder(AnswerBytes).decode


def version_of(epoch: int, number: int, count: int) -> bytes:
    """A later round's is greater, and within a round that of a later update.

    >>> version_of(3, 9, 7) < version_of(3, 10, 0) < version_of(4, 0, 0)
    True
    """
    return _VERSION.pack(epoch, number, count)


def subscription_of(data: bytes) -> Subscription:
    try:
        return _subscription(data)
    except msgspec.MsgspecError as error:
        raise SerdeError(f"a row that is joined by its foreign key: {error}", NOT_OURS) from None


def answer_of(data: bytes) -> AnswerBytes:
    """The answer with its value's bytes."""
    try:
        return _answer(data)
    except msgspec.MsgspecError as error:
        raise SerdeError(f"a result of a join by foreign keys: {error}", NOT_OURS) from None


class Subscriptions(Pairs):
    """The serde of subscriptions, whose rows' values stay bytes."""

    form = "subscription"

    def encode(self, value: Subscription) -> bytes:
        return packed(value)

    def decode(self, data: bytes) -> Subscription:
        return subscription_of(data)


class Answers(Pairs):
    """The serde of answers whose values `inner` encodes."""

    def __init__(self, inner: Serde) -> None:
        self.inner = inner
        self.form = f"answer<{inner.form}>"

    def encode(self, value: Answer) -> bytes:
        inner = None if value.value is None else self.inner.encode(value.value)
        return packed(AnswerBytes(value.version, value.settled_us, inner))

    def decode(self, data: bytes) -> Answer:
        answer = answer_of(data)
        return Answer(answer.version, answer.settled_us, None if answer.value is None else self.inner.decode(answer.value))
