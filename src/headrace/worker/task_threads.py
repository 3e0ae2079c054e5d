"""The tasks of a container at work, in one thread or in several. One thread reads and gives them rows; with several threads, it
only does that, and others process the rows. It alone writes and commits, after all threads have ended.

A task is in one thread at a time, and may be in another one for its next piece. No thread outlives `TaskThreads`."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from threading import Condition, Thread
from types import TracebackType
from typing import Self

from headrace.worker.round_limits import RoundLimits
from headrace.worker.task import TaskRun
from headrace.worker.task_queues import Part, Step, TaskQueue, Turn, Turns
from headrace.worker.waiting import thread_ready_s

_LOOK_S = 0.05  # how often the thread that waits for others looks for signals


class TaskThreads:
    """Works for `runs`; `merging`: the names of those that merge what they read. `starts`: by SSP number the first offset that
    the round reads. `threads`: how many process rows; with 1 there is none but the caller's."""

    def __init__(
        self,
        runs: Sequence[TaskRun],
        merging: Collection[str],
        starts: Mapping[int, int],
        threads: int,
        limits: RoundLimits,
    ) -> None:
        self._runs, self._limits = runs, limits
        self._numbers = {run.task: number for number, run in enumerate(runs)}
        first = [min((starts[ssp] for ssp in run.plan.positions if ssp in starts), default=0) for run in runs]
        self._turns = Turns([TaskQueue(run.task in merging) for run in runs], first)
        self._changed = Condition()
        self._error: BaseException | None = None
        self._is_closed = False
        self.is_threaded = min(threads, len(runs)) > 1
        self.threads = min(threads, len(runs)) if self.is_threaded else 1
        count = self.threads if self.is_threaded else 0
        self._threads = [Thread(target=self._work, name=f"task-{number}", daemon=True) for number in range(count)]
        self.worked_s = self.waited_s = 0.0  # of functions of records: how long, and how much of it was no processor's time
        self.process_s = [0.0] * len(runs)  # of each task all of its steps, without waiting for its state to be opened
        self.wait_s = [0.0] * len(runs)  # of that, while it processed rows, no processor's time

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Wait until all threads have ended, each after the piece that it is at."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        interrupted: BaseException | None = None
        for thread in self._threads:
            while thread.is_alive():
                try:
                    thread.join()
                except KeyboardInterrupt as found:  # the caller must not continue while functions are being called
                    interrupted = found
        if interrupted is not None:
            raise interrupted

    # --- by the thread that reads -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Delete what has expired and fire timers; with several threads that is begun only."""
        if not self.is_threaded:
            self._work_here()
            return
        for thread in self._threads:
            thread.start()

    def has_room(self, runs: Collection[TaskRun]) -> bool:
        """Whether these tasks can be given rows without waiting for others to be processed."""
        with self._changed:
            return self._turns.has_room(self._numbers_of(runs))

    def room(self, runs: Collection[TaskRun], offset: int, lead: int | None) -> int | None:
        """Up to which offset these tasks may be given rows, `offset` being the next. Waits until there is room in their queues,
        and none would be more than `lead` offsets ahead of another. None: the round is cut, no more rows are to be given."""
        numbers = self._numbers_of(runs)
        while True:
            self._look()
            with self._changed:
                if self._turns.is_cut:
                    return None
                until = 1 << 63 if lead is None else self._turns.lowest(numbers, offset) + lead
                if until > offset and self._turns.has_room(numbers):
                    return until
                self._wait()

    def give(self, shares: Collection[tuple[TaskRun, Part]]) -> None:
        """Queue rows; with one thread, process them."""
        with self._changed:
            for run, part in shares:
                self._turns.add(self._numbers[run.task], part)
            self._changed.notify_all()
        if not self.is_threaded:
            self._work_here()

    def finish(self) -> None:
        """All rows of the round were given: process those that wait, and end each task's round."""
        with self._changed:
            self._turns.read()
            self._changed.notify_all()
        if not self.is_threaded:
            self._work_here()
            return
        while True:
            self._look()
            with self._changed:
                if self._turns.is_finished:
                    return
                self._wait()

    @property
    def is_cut(self) -> bool:
        """Whether tasks end before they have processed all that they were, or would be, given."""
        return self._turns.is_cut

    def left(self) -> dict[str, dict[int, int]]:
        """Of each task with rows that it was given and has not processed the first offset of these, by SSP."""
        found = {run.task: turn.queue.left() for run, turn in zip(self._runs, self._turns.all, strict=True) if turn.queue.rows}
        return {task: left for task, left in found.items() if left}

    def _numbers_of(self, runs: Collection[TaskRun]) -> list[int]:
        return [self._numbers[run.task] for run in runs]

    def _look(self) -> None:
        """Look for what ends the round, or cuts it; raises what another thread has raised."""
        with self._changed:
            if self._error is not None:
                raise self._error
        self._limits.check()
        if self._limits.is_time():
            self._cut()

    def _cut(self) -> None:
        with self._changed:
            self._turns.cut()
            self._changed.notify_all()

    def _wait(self) -> None:
        """Until something has changed; cuts the round where most tasks have been waiting for the slowest."""
        if self._turns.is_uneven(self._limits.clock()):
            self._turns.cut()
            self._changed.notify_all()
        elif self._error is None:
            self._changed.wait(_LOOK_S)

    # --- by the threads that process ----------------------------------------------------------------------------------

    def _work_here(self) -> None:
        while True:
            self._look()
            turn = self._turns.next()
            if turn is None:
                return
            self._turns.done(*self._worked(*turn))

    def _work(self) -> None:
        try:
            while (turn := self._next()) is not None:
                done = self._worked(*turn)
                with self._changed:
                    self._turns.done(*done)
                    self._changed.notify_all()
        except BaseException as error:  # the thread that reads raises it
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _next(self) -> tuple[Turn, Step, list[Part]] | None:
        """What to do next; None where nothing will be left to do, or nothing is to be done any more."""
        self._limits.check()
        if self._limits.is_time():
            self._cut()
        with self._changed:
            while not (self._is_closed or self._error or self._turns.is_finished):
                turn = self._turns.next()
                if turn is not None:
                    return turn
                self._changed.wait()
        return None

    def _worked(self, turn: Turn, step: Step, parts: list[Part]) -> tuple[Turn, Step, int, float, float | None]:
        """Do it; gives how many rows in how many seconds, and how often they filled what may run at once."""
        run = self._runs[turn.number]
        began_s, opened_s = time.monotonic(), run.waited_to_open_s
        if step is not Step.TAKE:
            run.begin() if step is Step.BEGIN else run.finish(is_whole=not turn.queue.rows)
            self.process_s[turn.number] += time.monotonic() - began_s - (run.waited_to_open_s - opened_s)
            return turn, step, 0, 0.0, None
        self._limits.has_begun = True
        ready_s = thread_ready_s()
        run.fills.clear()
        rows = self._taken(run, turn, parts)
        seconds, ready_s = time.monotonic() - began_s, thread_ready_s() - ready_s
        worked_s = seconds - (run.waited_to_open_s - opened_s)
        waited_s = max(0.0, worked_s - ready_s)
        self.process_s[turn.number] += worked_s  # by this thread alone: it has the task
        self.wait_s[turn.number] += waited_s
        with self._changed:
            self.worked_s += worked_s
            self.waited_s += waited_s
        return turn, step, rows, seconds, max(run.fills.values(), default=None)

    def _taken(self, run: TaskRun, turn: Turn, parts: list[Part]) -> int:
        if not turn.queue.is_merging:
            run.feed(parts)
        else:
            parts = turn.queue.taken(turn.size)
            run.feed_together(parts)
        return sum(len(part.rows) for part in parts)
