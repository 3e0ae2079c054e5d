"""Dead letters as people see them: what each says of its record, which are chosen, and the record as it is put back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.model.durations import time_text
from headrace.record import Headers, Record

PREFIX, TRIES = "headrace.", "headrace.tries"
_FIRST_FACT = f"{PREFIX}stream"  # what is said of a record begins with it, behind the record's own headers


class LetterStatus(StrEnum):
    OPEN = "open"
    RETRIED = "retried"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record of a dead-letter stream. `stream`, `source_partition`, `source_offset`: of the record that could not be
    processed; the offset is -1 for a timer, which has none. `at_us`: the record's own time; `failed_at_us`: when the round
    began that could not process it, None in letters of older versions. `cut`: what was left out of it, empty for nothing;
    `tries`: how often it was put back before."""

    partition: int
    offset: int
    stream: str
    source_partition: int
    source_offset: int
    operator: str
    error_class: str
    message: str
    key: bytes | None
    value: bytes | None
    at_us: int | None
    headers: Headers = ()
    cut: str = ""
    tries: int = 0
    status: LetterStatus = LetterStatus.OPEN
    failed_at_us: int | None = None

    @property
    def id(self) -> str:
        return f"{self.partition}:{self.offset}"

    @property
    def order(self) -> tuple[int, int, int]:
        """By this letters are sorted, oldest first: when they were written, and their places among those of one round."""
        return self.failed_at_us or 0, self.partition, self.offset

    @property
    def reason(self) -> str:
        return f"{self.error_class}: {self.message}"

    @property
    def why_not_retried(self) -> str:
        """Why it cannot be put back as it is; empty where it can."""
        if self.status is not LetterStatus.OPEN:
            return f"it was {self.status} already"
        if self.source_offset < 0:
            return "it is of a timer: there is no record"
        return f"a part was left out, as it was too large: {self.cut}" if self.cut else ""


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters are meant; what is empty or None says nothing. `reason`: the class of the error, or text in its message.
    `since_us` and `until_us`: of the record's time, the end not included."""

    ids: frozenset[str] = frozenset()
    reason: str = ""
    operator: str = ""
    stream: str = ""
    since_us: int | None = None
    until_us: int | None = None

    @property
    def says_something(self) -> bool:
        return self != LetterFilter()

    def takes(self, letter: DeadLetter) -> bool:
        """Whether it is one of these."""
        time_us = letter.at_us or 0
        return (
            (not self.ids or letter.id in self.ids)
            and (not self.reason or self.reason == letter.error_class or self.reason in letter.message)
            and (not self.operator or self.operator == letter.operator)
            and (not self.stream or self.stream == letter.stream)
            and (self.since_us is None or time_us >= self.since_us)
            and (self.until_us is None or time_us < self.until_us)
        )


def letter_of(record: Record, marks: Mapping[str, bytes], application: str) -> DeadLetter | None:
    """What a record of the stream says, read as bytes; None for one that no job has written as a dead letter, and for one of
    another application. A letter of an older version does not say whose it is, and counts for any. `marks`: by id what has
    become of letters."""
    names = [name for name, _ in record.headers]
    if _FIRST_FACT not in names or record.partition is None or record.offset is None:
        return None
    first = len(names) - 1 - names[::-1].index(_FIRST_FACT)
    own = record.headers[:first]
    facts = {name.removeprefix(PREFIX): (data or b"").decode(errors="replace") for name, data in record.headers[first:]}
    if facts.get("application", application) != application:
        return None
    id_ = f"{record.partition}:{record.offset}"
    return DeadLetter(
        record.partition,
        record.offset,
        facts["stream"],
        _number(facts.get("partition"), 0),
        _number(facts.get("offset"), -1),
        facts.get("operator", ""),
        facts.get("error-class", ""),
        facts.get("error-message", ""),
        record.key,
        record.value,
        _number(facts["timestamp-us"], 0) if "timestamp-us" in facts else record.timestamp_us,
        tuple((name, data) for name, data in own if name != TRIES),
        facts.get("cut", ""),
        _number((dict(own).get(TRIES) or b"0").decode(errors="replace"), 0),
        LetterStatus(marks[id_].decode()) if id_ in marks else LetterStatus.OPEN,
        _number(facts["failed-at-us"], 0) if "failed-at-us" in facts else None,
    )


def put_back(letter: DeadLetter, key: bytes | None, value: bytes | None) -> Record:
    """The record for its own partition again, with the count of tries."""
    headers = (*letter.headers, (TRIES, str(letter.tries + 1).encode()))
    return Record(key, value, letter.at_us, headers, letter.source_partition)


def described(letter: DeadLetter) -> dict[str, object]:
    """For programs, without its key and value."""
    return {
        "id": letter.id,
        "when": None if letter.at_us is None else time_text(letter.at_us),
        "failed_at": None if letter.failed_at_us is None else time_text(letter.failed_at_us),
        "source": f"{letter.stream}/{letter.source_partition}",
        "offset": letter.source_offset,
        "operator": letter.operator,
        "error_class": letter.error_class,
        "reason": letter.reason,
        "tries": letter.tries,
        "status": letter.status.value,
        "cut": letter.cut or None,
    }


def _number(text: str | None, default: int) -> int:
    try:
        return int(text or "")
    except ValueError:
        return default
