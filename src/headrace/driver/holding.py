"""Holding an application: a driver takes it, and keeps it by a heartbeat until its job has one (protocol.md 6, 7)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.errors import FencedError, HeadraceError
from headrace.model.commits import DriverLease
from headrace.ports.coordinator_store import CoordinatorStore

LOG = logging.getLogger("headrace.job")
HEARTBEAT_S = 2.0


def take_application(store: CoordinatorStore, lease: DriverLease, now_us: int) -> int:
    """Take the application for its only driver: the new epoch, with every lane fenced that was ever used (protocol.md 7)."""
    epoch = store.acquire(lease, now_us)
    try:
        store.fence(epoch, {title: range(count) for title, count in store.lanes_used().items()})
    except BaseException:  # the next driver need not wait until the heartbeat is old
        try:
            store.release(epoch)
        except HeadraceError as error:
            LOG.warning("could not release the application: %s", error.message)
        raise
    return epoch


@contextmanager
def kept(store: CoordinatorStore, epoch: int, clock_us: Callable[[], int]) -> Iterator[None]:
    """Keep an application that is held for as long as the block takes: another start takes it over where there was no heartbeat
    for 10 s. `FencedError` at the end of the block, in place of what it raises, where another driver has it by then."""
    ended, taken_over = threading.Event(), list[FencedError]()

    def beat() -> None:
        while not ended.wait(HEARTBEAT_S):
            try:
                store.heartbeat(epoch, clock_us())
            except FencedError as error:
                taken_over.append(error)
                return
            except Exception as error:
                LOG.warning("heartbeat: %s", error)

    thread = threading.Thread(target=beat, name="headrace-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()  # a heartbeat has a bound of its own
        if taken_over:
            raise taken_over[0]


def or_taken_over(error: BaseException, check: Callable[[], None]) -> BaseException:
    """`error`, or that another driver took over: that one may have removed what this one looks for. `check` raises
    `FencedError` then."""
    try:
        check()
        return error
    except FencedError as fenced:
        fenced.__cause__ = error
        return fenced
    except Exception:  # the store cannot be asked; what ended the job is what there is to say
        return error
