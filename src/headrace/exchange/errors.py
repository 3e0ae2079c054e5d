"""Errors on their way from a container to the driver: as text in its summary there, as exceptions again here."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence

import msgspec

from headrace import errors
from headrace.core.rounds.offset_ranges import OffsetRange
from headrace.errors import HeadraceError, RecordError, RoundFailedError
from headrace.exchange.messages import Failure
from headrace.exchange.texts import TRACEBACK_CHARS_MAX, cut, message_of
from headrace.model.checkpoint import RoundId

_RANGES_SHOWN_MAX = 8
_RECORD_AS_VALUE = re.compile(
    r"'Record' object is not \w+|'Record' object has no attribute '(\w+)'|'Record' object does not support"
    r"|unsupported operand type.*'Record'|not supported between.*'Record'|argument of type 'Record'|of type 'Record' has no"
)


def record_error(failure: Failure) -> RecordError:
    place = f"{failure.stream}, partition {failure.partition}, offset {failure.offset}"
    where = place if failure.offset >= 0 else f"a timer of a task that reads {failure.stream}"
    return RecordError(
        f"a record could not be processed: {where}\n  in {failure.operator}: {failure.error_class}: {failure.message}",
        f"{_advice(failure.message)}nothing of this round was committed; fix the function or the data, or set "
        "`dead_letter_stream` to send such records there and keep the job running",
        stream=failure.stream,
        partition=failure.partition,
        offset=failure.offset,
        error_class=failure.error_class,
        error_message=failure.message,
        user_traceback=failure.traceback,
    )


def worker_death(
    sub_topology: str, ranges: Sequence[OffsetRange], found: str, who: str = "a worker process died"
) -> tuple[str, str]:
    """What to say of a worker process, or of `who` it was, that died over a round: message and advice."""
    pieces = [f"{r.ssp.stream} partition {r.ssp.partition}, offsets {r.start} to {r.end - 1}" for r in ranges if r.records]
    left = len(pieces) - _RANGES_SHOWN_MAX
    places = "; ".join(pieces[:_RANGES_SHOWN_MAX]) + (f"; and {left} more" if left > 0 else "")
    hint = (
        "a function may have ended it on one of these records (os._exit, a crash in native code), or the system for lack"
        " of memory: with max_records_per_round=1 the range is the record"
    )
    return f"{who} while sub-topology {sub_topology!r} worked on {places or 'its timers'} ({found})", hint


def engine_loss(round_id: RoundId, found: str) -> RoundFailedError:
    return RoundFailedError(
        f"round {round_id} cannot end: {found}",
        "earlier commits are unaffected: restart the job, and it resumes from there; if it was killed for lack of "
        "memory, give the machine more, or the JVM less (spark.driver.memory)",
    )


def _advice(message: str) -> str:
    """What to write instead, where a function takes its record for the record's value."""
    found = _RECORD_AS_VALUE.search(message)
    if found is None:
        return ""
    field = found[1] or "field"
    return f'a function is given the whole record: write record.value["{field}"] (or record.key); '


def error_of(text: str) -> HeadraceError:
    """The error that a container reported as text: `Class|message|hint|traceback`, as `worker_error` made it."""
    name, message, hint, trace = msgspec.json.decode(text, type=tuple[str, str, str | None, str])
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, HeadraceError) and kind is not RecordError:
        return kind(message, hint)
    return RoundFailedError(f"a container failed: {name}: {message}", hint, user_traceback=trace)


def worker_error(error: BaseException) -> str:
    """An error of a container as text that `error_of` reads; no pickle of what others may write."""
    hint = error.hint if isinstance(error, HeadraceError) else None
    own = error.message if isinstance(error, HeadraceError) else None
    message = message_of(error) if own is None else cut(own)
    trace = cut("".join(traceback.format_exception(error)), TRACEBACK_CHARS_MAX)
    known = next((each for each in type(error).__mro__ if each.__module__ == errors.__name__), type(error))
    return msgspec.json.encode((known.__name__, message, hint, trace)).decode()
