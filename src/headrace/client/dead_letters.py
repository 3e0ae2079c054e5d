"""The dead letters of an application as users see them, whether the job runs or not: listed, put back, discarded.

Which are dealt with is stored with the application, in the transaction that puts records back: none is put back twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any

from headrace.adapters.common.dead_letter_marks import expired_marks, foreign_ids, mark_key, marks_of
from headrace.client.application_client import ApplicationClient, named
from headrace.client.letters import DeadLetter, LetterFilter, LetterStatus, letter_of, put_back
from headrace.codec.job_records import DEAD_LETTERS
from headrace.errors import ConfigError
from headrace.model.serde import Serde
from headrace.model.whole_numbers import whole_number_of
from headrace.record import Record

AT_ONCE = 500  # letters in one transaction
Corrected = tuple[bytes | None, bytes | None]  # key and value


def dead_letters(application: Any, system: str | None = None) -> DeadLetters:
    """The dead letters of an application, by its `App` or by its name.

    `system` is the URL of where it runs, as configured if None. Use it in a `with`.
    """
    return DeadLetters(*named(application, system))


class DeadLetters(ApplicationClient):
    """The dead letters of one application: records that it could not process. Use it in a `with`."""

    @property
    def stream(self) -> str:
        """Where they are; `ConfigError` where the application has no such stream."""
        found = self._config.dead_letter_stream
        if found is None:
            raise ConfigError(
                f"application {self.application!r} has no dead-letter stream",
                "set dead_letter_stream in its configuration: without it a record that fails ends the job",
            )
        return found

    def list(self, chosen: LetterFilter | None = None, *, open_only: bool = False) -> Iterator[DeadLetter]:
        """Those that `chosen` takes, None for all, partition after partition, oldest first."""
        wanted, marks = chosen or LetterFilter(), self.marks()
        for record in self._system.consume(self.stream):
            letter = letter_of(record, marks, self.application)
            if letter is not None and wanted.takes(letter) and not (open_only and letter.status is not LetterStatus.OPEN):
                yield letter

    def newest(self, most: int, chosen: LetterFilter | None = None, *, open_only: bool = True) -> Sequence[DeadLetter]:
        """The last so many that were written, of those that `chosen` takes, newest first. It reads the whole stream."""
        return nlargest(most, self.list(chosen, open_only=open_only), key=lambda one: one.order)

    def since(self, starts: Mapping[int, int], marks: Mapping[str, bytes]) -> Iterator[tuple[Record, DeadLetter | None]]:
        """What the stream has from these offsets on, partition after partition; None for a record that is no letter
        of the application."""
        for record in self._system.consume(self.stream, None, None, sorted(starts), starts):
            yield record, letter_of(record, marks, self.application)

    def marks(self) -> dict[str, bytes]:
        """By id what has become of letters of this very stream that are dealt with."""
        return marks_of(self._stored_marks(), self._stream_id())

    def _stored_marks(self) -> dict[str, bytes]:
        found: dict[str, bytes] = self._system.metadata_store(self.application).all(DEAD_LETTERS)
        return found

    def _stream_id(self) -> str:
        found: str = self._system.describe_stream(self.stream).id
        return found

    def bounds(self) -> dict[int, range]:
        """Per partition the offsets that the stream holds."""
        beginnings, ends = self._system.beginning_offsets(self.stream), self._system.end_offsets(self.stream)
        return {number: range(beginnings.get(number, 0), end) for number, end in ends.items()}

    def get(self, id: str) -> DeadLetter:
        """One by its id, PARTITION:OFFSET; `ConfigError` if there is none."""
        partition, _, offset = id.partition(":")
        number, start = whole_number_of(partition), whole_number_of(offset)
        if number is not None and start is not None and start in self.bounds().get(number, range(0)):
            for record in self._system.consume(self.stream, None, None, [number], {number: start}):
                letter = letter_of(record, self.marks(), self.application) if record.offset == start else None
                if letter is not None:
                    return letter
                break
        raise ConfigError(f"stream {self.stream!r} has no dead letter {id!r}", "`headrace dead-letters list` shows their ids")

    def count(self, chosen: LetterFilter | None = None) -> Counter[tuple[str, str]]:
        """How many are open, by operator and class of the error."""
        return Counter((one.operator, one.error_class) for one in self.list(chosen, open_only=True))

    def serdes(self, letter: DeadLetter) -> tuple[Serde | None, Serde | None]:
        """Those of the stream that its record came from, as far as the application's file is at hand."""
        sources = () if self._topology is None else self._topology.sources
        found = next((one for one in sources if one.stream == letter.stream), None)
        return (None, None) if found is None else (found.key, found.value)

    def retry(
        self,
        letters: Iterable[DeadLetter],
        corrected: Mapping[str, Corrected] | None = None,
        said: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Put their records back into the partitions that they came from, each once, with a header that counts the tries; how
        many. `corrected`: by id another key and value, as bytes. `said` is called with how many are done. `ConfigError`, before
        anything is written, for one that cannot be put back; `FencedError` where somebody else deals with letters meanwhile:
        what is done by then stays, once."""
        chosen, other = list(letters), corrected or {}
        for one in chosen:
            is_whole = one.id in other and one.status is LetterStatus.OPEN and one.source_offset >= 0
            if one.why_not_retried and not is_whole:
                why = one.why_not_retried
                raise ConfigError(f"dead letter {one.id} cannot be put back: {why}", "leave it out, or correct it")

        def record_of(letter: DeadLetter) -> Record:
            return put_back(letter, *other.get(letter.id, (letter.key, letter.value)))

        return self._dealt_with(chosen, LetterStatus.RETRIED, record_of, said)

    def discard(self, letters: Iterable[DeadLetter], said: Callable[[int], None] = lambda count: None) -> int:
        """Note that nothing is to be done about them; how many. They stay in the stream."""
        open_ = [one for one in letters if one.status is LetterStatus.OPEN]
        return self._dealt_with(open_, LetterStatus.DISCARDED, None, said)

    def _dealt_with(
        self,
        letters: Sequence[DeadLetter],
        status: LetterStatus,
        record_of: Callable[[DeadLetter], Record] | None,
        said: Callable[[int], None],
    ) -> int:
        done, stream_id = 0, self._stream_id()
        marks: dict[str, bytes | None] = dict.fromkeys(self._expired(stream_id))  # with the first of the batches these go
        for first in range(0, len(letters), AT_ONCE):
            batch = letters[first : first + AT_ONCE]
            records: dict[str, list[Record]] = {}
            for one in batch if record_of is not None else ():
                assert record_of is not None
                records.setdefault(one.stream, []).append(record_of(one))
            marks |= {mark_key(stream_id, one.id): status.value.encode() for one in batch}
            self._system.put_back(self.application, records, marks)
            marks = {}
            done += len(batch)
            said(done)
        return done

    def _expired(self, stream_id: str) -> Sequence[str]:
        """The marks of letters that the stream does not hold any more, and those of streams that are deleted. Another stream,
        which was the application's before, may be so again."""
        stored = self._stored_marks()
        foreign = foreign_ids(stored, stream_id)
        there = {one.id for one in self._system.streams(of=self.application)} if foreign else set()
        return expired_marks(stored, stream_id, self.bounds(), foreign - there)
