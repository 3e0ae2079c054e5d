"""Whose fault it is when a user's function raises: the record's, the programmer's, the store's, or none of them.

Whatever the function itself raises is an error of its record, `SystemExit` included: one record must not end the job as
if that had been requested. What Headrace raises because it is used wrongly (an undeclared store) would come with
every record: it stops the job, dead-letter stream or not. So does memory that is used up, and a store that cannot be opened
or read: a full disk, a missing state file."""

from __future__ import annotations

import dis
import os
import re
import signal
import threading
from pathlib import Path
from traceback import walk_tb

from headrace.errors import (
    PACKAGE_FOLDER,
    CallTimeoutError,
    HeadraceError,
    OutOfRangeError,
    RecordTooLargeError,
    SerdeError,
    StateError,
    StorageError,
    StoreDamagedError,
    TopologyError,
)
from headrace.exchange.texts import message_of

_OF_RECORDS = (SerdeError, RecordTooLargeError, OutOfRangeError, StateError, CallTimeoutError)
_OF_STORES = (StoreDamagedError, StorageError)  # who opened the store knows what to do
_KEYS_FOLDER = f"{PACKAGE_FOLDER}worker{os.sep}"  # a `StateError` of ours is about a key there, and about a store elsewhere
_RAISE = dis.opmap["RAISE_VARARGS"]
_OUR_CLASSES = "ProcessorContext|Schedule|KeyValueStoreView|ListStoreView|MapStoreView|WindowStoreView|Metrics"
_MISCALLED = re.compile(rf"({_OUR_CLASSES})\.\w+\(\) (got|takes|missing)|'({_OUR_CLASSES})' object has no attribute")


def checked_fault(error: BaseException, operator: str) -> BaseException:
    """`error` if it counts as an error of the record at work; else raises what ends the round."""
    if is_signal(error):
        raise error
    where = f"operator {operator!r}, {_user_line(error) or 'a place unknown'}"
    if isinstance(error, MemoryError):  # the machine's: the next record would be refused as well
        raise MemoryError(f"{message_of(error)}\n  in {where}") from error
    if not _may_be_ours(error):
        return error
    if isinstance(error, _OF_STORES) or _is_of_a_store(error):
        raise error
    if isinstance(error, HeadraceError) and not isinstance(error, _OF_RECORDS):
        raise type(error)(f"{error.message}\n  in {where}", error.hint) from error
    if isinstance(error, (TypeError, AttributeError)) and _MISCALLED.match(message_of(error)):
        raise TopologyError(f"{message_of(error)}\n  in {where}", "see help(...) of the context and of the stores") from error
    return error


def _may_be_ours(error: BaseException) -> bool:
    """Whether Headrace may have raised it: one of our classes that the user's own code raises is an error of the record."""
    file = _raised_in(error)
    return not isinstance(error, HeadraceError) or not file or file.startswith(PACKAGE_FOLDER)


def _is_of_a_store(error: BaseException) -> bool:
    file = _raised_in(error)
    return isinstance(error, StateError) and bool(file) and not file.startswith(_KEYS_FOLDER)


def _raised_in(error: BaseException) -> str:
    """The file whose code raised it; empty where that is not known."""
    files = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
    return files[-1] if files else ""


def is_signal(error: BaseException) -> bool:
    """Whether it is Python's answer to SIGINT, which comes between any two instructions of the main thread, and not a
    `KeyboardInterrupt` that code raised."""
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    handler = getattr(signal.getsignal(signal.SIGINT), "__code__", None)  # Spark sets one of its own, in Python
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code is not handler:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_code is handler:
        return True
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] != _RAISE


def _user_line(error: BaseException) -> str:
    """The user's own line that led to `error`, as `file:line`; empty if there is none."""
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    own = [f"{Path(file).name}:{line}" for file, line in places if not file.startswith(PACKAGE_FOLDER)]
    return own[-1] if own else ""
