"""Owns errors on their way from a container to the driver: as text in its summary there, as exceptions again here."""

from __future__ import annotations

import traceback

import msgspec

from headrace import errors
from headrace.errors import HeadraceError, RecordError, RoundFailedError
from headrace.runtime.plan import Failure


def record_error(failure: Failure) -> RecordError:
    where = f"{failure.stream}, partition {failure.partition}, offset {failure.offset}"
    if failure.offset < 0:
        where = f"a timer of a task that reads {failure.stream}"
    return RecordError(
        f"a record could not be processed: {where}\n  in {failure.operator}: {failure.error_class}: {failure.message}",
        "nothing of this round was committed; mend the function or the data, or set `dead_letter_stream` so that such "
        "records are put aside and the job goes on",
        stream=failure.stream,
        partition=failure.partition,
        offset=failure.offset,
        error_class=failure.error_class,
        error_message=failure.message,
        user_traceback=failure.traceback,
    )


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
    return msgspec.json.encode((type(error).__name__, message, hint, trace)).decode()
