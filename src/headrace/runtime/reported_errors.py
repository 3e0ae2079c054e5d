"""Owns errors on their way from a container to the driver: as text in its summary there, as exceptions again here."""

from __future__ import annotations

import re
import traceback

import msgspec

from headrace import errors
from headrace.errors import HeadraceError, RecordError, RoundFailedError
from headrace.runtime.plan import Failure

_RECORD_AS_VALUE = re.compile(
    r"'Record' object is not \w+|'Record' object has no attribute '(\w+)'|'Record' object does not support"
    r"|unsupported operand type.*'Record'|not supported between.*'Record'|argument of type 'Record'|of type 'Record' has no"
)


def record_error(failure: Failure) -> RecordError:
    where = f"{failure.stream}, partition {failure.partition}, offset {failure.offset}"
    if failure.offset < 0:
        where = f"a timer of a task that reads {failure.stream}"
    return RecordError(
        f"a record could not be processed: {where}\n  in {failure.operator}: {failure.error_class}: {failure.message}",
        f"{_advice(failure.message)}nothing of this round was committed; mend the function or the data, or set "
        "`dead_letter_stream` so that such records are put aside and the job goes on",
        stream=failure.stream,
        partition=failure.partition,
        offset=failure.offset,
        error_class=failure.error_class,
        error_message=failure.message,
        user_traceback=failure.traceback,
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
    return RoundFailedError(f"{trace.rstrip()}\n\na container failed: {name}: {message}", hint)


def worker_error(error: BaseException) -> str:
    """An error of a container as text that `error_of` reads; no pickle of what others may write."""
    hint = getattr(error, "hint", None)
    message = getattr(error, "message", None) or str(error)
    trace = "".join(traceback.format_exception(error))
    known = next((each for each in type(error).__mro__ if each.__module__ == errors.__name__), type(error))
    return msgspec.json.encode((known.__name__, message, hint, trace)).decode()
