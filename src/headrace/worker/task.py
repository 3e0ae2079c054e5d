"""One task at work in one round: the context that its operators use, its state, and what it emits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.rewind.replays import REPLAY_HEADER
from headrace.core.rounds.event_times import NO_TIME_US, FarTime
from headrace.core.rounds.punctuations import begins_us, next_at
from headrace.core.rounds.stream_limits import ANY, StreamLimits
from headrace.core.rounds.watermarks import watermark_after
from headrace.core.topology.program import Program
from headrace.core.topology.sub_topologies import sharers_of, stores_of
from headrace.exchange.messages import ContainerPlan, Reject, TaskPlan
from headrace.model import topology as t
from headrace.model.table_operators import ForeignKeyResults, LimitUpdates, VersionedTable
from headrace.model.tasks import TaskName
from headrace.worker.operators import Graph
from headrace.worker.operators.expiry import count_expired, delete_expired, move_old_marks
from headrace.worker.operators.processing.process import ProcessOperator
from headrace.worker.operators.processing.timer_store import Timers
from headrace.worker.operators.suppress import timer_owner
from headrace.worker.outputs import FINISH, RECORDS, TaskOutputs, output_table
from headrace.worker.replay_header import found_in, marked
from headrace.worker.resources import Resources
from headrace.worker.rows import Rows
from headrace.worker.waiting import thread_ready_s

if TYPE_CHECKING:
    from headrace.worker.ports import WorkerPorts
    from headrace.worker.task_queues import Part

class FarTimes:
    """The event times that lie far from their records' own, as one container has found them; the driver warns of them.
    `far_us` 0: nothing is looked at. `streams`: (stream, partition) by SSP number. Thread-safe."""

    def __init__(self, far_us: int, streams: Sequence[tuple[str, int]]) -> None:
        self._far_us, self._streams = far_us, streams
        self._lock = Lock()
        self.first: dict[str, FarTime] = {}  # by stream
        self.count = 0

    def look_at(self, ssps: Any, offsets: Any, times_us: Any, own_us: Any, *, counted: bool = True) -> None:
        """Compare the event times of some rows with their own. Those of which Kafka has no time of its own are left out.
        Without `counted` they are only named: rows that come by several ways count once."""
        if not self._far_us or not len(times_us):
            return
        # as floats: a time that is no time, and is rejected for it, must not overflow
        apart = np.abs(times_us.astype(np.float64) - own_us.astype(np.float64)) > self._far_us
        far = np.flatnonzero(apart & (own_us != NO_TIME_US))
        if not len(far):
            return
        with self._lock:
            self.count += len(far) if counted else 0
            for ssp in np.unique(ssps[far]).tolist():
                at = far[ssps[far] == ssp][0]
                stream, partition = self._streams[ssp]
                self.first.setdefault(stream, FarTime(stream, partition, int(offsets[at]), int(times_us[at]), int(own_us[at])))


class TaskRun:
    """One task in one round. It is the `Context` of its operators (`operators.base`).

    `times_us`: what its checkpoint keeps of times, in µs: `event`, `wall`, `expiry` and `closed`."""

    def __init__(
        self,
        program: Program,
        plan: TaskPlan,
        container: ContainerPlan,
        ports: WorkerPorts,
        outputs: TaskOutputs,
        far_times: FarTimes,
    ) -> None:
        self.task, self.plan = plan.name, plan
        self.bucket = TaskName.parse(plan.name).bucket
        self.far_times = far_times
        self.replay = plan.replay
        self.streams = [(stream, partition) for _, stream, partition in container.ssps]
        self.round_id = container.round_id  # of this round; the plan's is the one that it builds on
        self.watermark_us = plan.watermark_us
        self.now_us = container.now_us
        self.counters = Counter[str]()
        self.rejects: dict[tuple[int, int, str, int], Reject] = {}
        self.watermarks: dict[int, int] = {}
        self.upstream_us: dict[int, int] = {}  # of repartition streams, set before the round is finished
        self.is_time: Callable[[], bool] = bool  # whether what can wait for the next round is to wait
        self.check: Callable[[], object] = bool  # raises where the round is to end at once
        self.fills: dict[str, float] = {}  # by operator: how often the piece at work fills what its function may do at once
        self.batch_keys: set[bytes] = set()
        cache = ports.cache_of(plan.name)
        self.processor_cache: dict[str, Any] = cache.setdefault("processors", {})
        self.resources: Resources = cache["resources"]
        self.times_us = {"event": plan.event_timer_us, "wall": plan.wall_timer_us}
        self.times_us |= {"expiry": plan.expiry_us, "closed": plan.closed_us}
        self.timers = Timers(self, self.times_us)
        self.punctuations = dict(plan.punctuations)
        self.outputs = outputs
        self.program = program
        self._marked_endpoints = program.marked_endpoints
        streams = {program.source(number).stream: number for number in reversed(range(len(program.endpoints)))}
        self._first_endpoints = frozenset(streams.values())
        self._open_state = partial(ports.open_state, plan)
        self._entered: AbstractContextManager[Any] | None = None
        self.state_if_open: Any = None
        self.decode_ns = 0  # how long keys and values were decoded
        self.opened_s = self.waited_to_open_s = 0.0  # how long it took to open its state, and how much of that was waiting
        self._rank = 0
        self._expires = any(spec.kind is t.StoreKind.WINDOW or spec.ttl_us for n in program.nodes for spec in stores_of(n))
        self._expires |= any(isinstance(n, ForeignKeyResults) for n in program.nodes)
        holding = [n for n in program.nodes if isinstance(n, t.Suppress | LimitUpdates)]
        self._suppressing = {timer_owner(n.store.kept_in): n.name for n in holding}
        self._timers_of = {owner: name for name, owner in program.timer_owners.items()} | self._suppressing
        self._shares_stores = bool(sharers_of(program.nodes))
        self._keeps_marks = self._expires or bool(self._suppressing)
        self._windows = {
            n.store.kept_in: n.windows for n in program.nodes if isinstance(n, t.Aggregate) and n.windows is not None
        }
        self._versions = {n.versions.kept_in for n in program.nodes if isinstance(n, VersionedTable)}
        folding = (t.AggregateKind.REDUCE, t.AggregateKind.GENERAL)
        self._timed = {n.store.kept_in for n in program.nodes if isinstance(n, t.Aggregate) and n.kind in folding}
        self.graph = Graph(program.nodes, program.endpoints, program.emission, self, self.watermarks)

    def count(self, metric: str, by: int = 1) -> None:
        self.counters[metric] += by

    def reject(self, reject: Reject) -> None:
        """Once per record and operator; of what has no record, a timer or what came of it, each counts."""
        number = 0 if reject.offset >= 0 else len(self.rejects)
        if self.replay is not None:
            reject = replace(reject, replay=self.replay)
        self.rejects.setdefault((reject.ssp, reject.offset, reject.operator, number), reject)

    def late(self, ssp: int, offset: int, operator: str) -> None:
        self.count("late_records")
        if self.program.dead_letter is not None:
            self.reject(Reject(ssp, offset, operator, "LateRecord", "the record came after its window had closed"))

    def may_choose(self, name: str) -> bool:
        return name in self.program.partition_counts and name not in self.program.read_by_the_job

    @property
    def watermark_after_us(self) -> int | None:
        """To be asked when all rows of the round have been pushed: what the watermark will be at least when the next round
        begins; None for not known. What expires by then need not be stored. That of virtual tasks, and of those that read a
        stream which all tasks read, hangs on what others have read; a repartition stream's on who writes it."""
        sources = [node for node in self.program.nodes if isinstance(node, t.Source)]
        if self.bucket is not None or any(source.broadcast for source in sources):
            return None
        inner = {source.stream for source in sources if source.kind is t.SourceKind.REPARTITION}
        seen = {number: us for number, us in self.watermarks.items() if self.streams[number][0] not in inner}
        return watermark_after(self.plan.positions, [self.plan.watermarks, seen, self.upstream_us])

    def database(self, name: str) -> Any:
        return self.state.database(name)

    def limits_of(self, stream: str) -> StreamLimits:
        limits = self.program.limits.get(stream, ANY)
        return limits if self.replay is None else limits.with_room_for(len(REPLAY_HEADER) + len(str(self.replay)))

    def emit(self, stream: str, rows: Rows, *, routing: Any = None, partitions: Any = None) -> None:
        """Write `rows`, whose keys and values are encoded, to `stream`; see `TaskOutputs.add`."""
        headers = rows.headers if self.replay is None else marked(rows.headers, len(rows), self.replay)
        table = output_table(rows.key.bytes()[0], rows.value.bytes()[0], rows.timestamp_us, headers)
        self.outputs.add(stream, table, routing, rows.offset, partitions, ssps=rows.ssp)

    def savepoint(self) -> dict[str, int | None]:
        """From here on `roll_back` takes back what a record did to state, timers and marks."""
        if self.program.stateful:
            self.state.savepoint()
        return dict(self.times_us)

    def roll_back(self, mark: dict[str, int | None]) -> None:
        if self.program.stateful:
            self.state.roll_back()
        self.times_us.update(mark)

    @property
    def state(self) -> Any:
        """The task's state at its base, opened when first used."""
        if self.state_if_open is None:
            began_s, ready_s = time.monotonic(), thread_ready_s()
            self._entered = self._open_state()
            self.state_if_open = self._entered.__enter__()
            seconds = time.monotonic() - began_s
            self.opened_s += seconds
            self.waited_to_open_s += max(0.0, seconds - (thread_ready_s() - ready_s))
        return self.state_if_open

    def close(self, damage: Exception | None = None) -> None:
        """Leave the state, if it was opened; `damage` is what was found wrong with it, so that it is rebuilt."""
        if self._entered is not None:
            entered, self._entered, self.state_if_open = self._entered, None, None
            trace = None if damage is None else damage.__traceback__
            entered.__exit__(None if damage is None else type(damage), damage, trace)

    @property
    def place(self) -> str:
        """The task and what it reads, for people."""
        reads = (self.streams[ssp] for ssp in sorted(self.plan.positions))
        return f"task {self.task}, which reads {', '.join(f'{stream} partition {number}' for stream, number in reads)}"

    def begin(self) -> None:
        """Delete what had outlived its time when the round began, and fire what was due."""
        if self._keeps_marks and self.plan.head is not None and self.times_us["expiry"] is self.times_us["closed"] is None:
            move_old_marks(self)
        if self._suppressing and (closed_us := self.times_us["closed"]) is not None:
            self.watermark_us = max(closed_us, closed_us if self.watermark_us is None else self.watermark_us)
        self._expire(but=self._versions)
        due_us = {} if self.watermark_us is None else {"event": self.watermark_us}
        self._fire("event", due_us)
        if self._versions:  # what waited for them has been joined
            self._expire()
        self._fire("wall", due_us | {"wall": self.now_us})
        self._punctuate(due_us | {"wall": self.now_us})

    def _expire(self, but: Collection[str] = ()) -> None:
        expired = delete_expired(self, self.watermark_us, self._windows, self._timed, but) if self._expires else 0
        count_expired(self, expired)

    def _fire(self, clock: str, until_us: dict[str, int]) -> None:
        """Fire what is due, operator by operator, parents before children: what comes of the timers of one comes to the next
        before its own fire, and may replace them."""
        operators, done = self.graph.operators, (-1, "")
        places = {name: place for place, name in enumerate(operators)}
        while owners := self.timers.due(clock, until_us.get(clock)):  # again: what has fired may have set and deleted some
            turns = sorted((places.get(self._timers_of.get(owner, owner), len(places)), owner) for owner in owners)
            turn = next((one for one in turns if one > done), None)
            if turn is None:
                return
            done, owner = turn, turn[1]
            due, running = self.timers.take(owner), operators.get(self._timers_of.get(owner, owner))
            # None: the operator was edited away while a timer was pending.
            self.count(*(("timers_orphaned", len(due)) if running is None else running.fire(due, until_us)))
            self.graph.batch_end()

    def _punctuate(self, until_us: Mapping[str, int]) -> None:
        """Call the punctuations that are due. Those of a processor that is made in this round begin behind it: else they would
        be called or not after what is left of a round that failed."""
        if not self.punctuations:
            return
        processors = self._processors()
        for processor in processors:
            processor.ready()
        for clock, (from_us, due_us) in self.punctuations.items():
            if clock not in until_us or from_us > until_us[clock]:
                continue
            if due_us <= until_us[clock]:
                for processor in processors:
                    self.count("punctuations", processor.punctuate(clock, from_us, until_us[clock]))
                    self.graph.batch_end()
            self.punctuations[clock] = until_us[clock] + 1, due_us

    def _settle_punctuations(self) -> None:
        """When the next ones are due, of the processors that are at work in this round."""
        schedules = [one for processor in self._processors() for one in processor.schedules]
        for clock in sorted({*self.punctuations, *(one.clock for one in schedules)}):
            reached_us = self.watermark_us if clock == "event" else self.now_us
            from_us, _ = self.punctuations.pop(clock, (begins_us(reached_us), 0))
            due_us = next_at((one.interval_us for one in schedules if one.clock == clock), from_us)
            if due_us is not None:
                self.punctuations[clock] = from_us, due_us

    def _processors(self) -> list[ProcessOperator]:
        return [operator for operator in self.graph.operators.values() if isinstance(operator, ProcessOperator)]

    def feed(self, parts: Sequence[Part]) -> None:
        """Process rows as they come, batch by batch."""
        for part in parts:
            part.rows.rank = np.arange(self._rank, self._rank + len(part.rows))
            self._rank += len(part.rows)
            self.feed_together([part])

    def feed_together(self, parts: Sequence[Part]) -> None:
        """Process a batch of rows that have a rank: those of each endpoint. Where operators share a store each record of a key
        goes through all of them before the next one of the key: else what one sees of the other's writes would hang on where a
        batch ends."""
        for batch in _with_distinct_keys(parts) if self._shares_stores else (parts,):
            for part in batch:
                self.feed_ranked(part.endpoint, part.rows, part.is_prepared)
            self.graph.batch_end()

    def feed_ranked(self, endpoint: int, rows: Rows, prepared: bool) -> None:
        self.outputs.section = RECORDS
        if rows.own_us is not None:  # the engine gave them other times
            times = rows.timestamp_us, rows.own_us
            self.far_times.look_at(rows.ssp, rows.offset, *times, counted=endpoint in self._first_endpoints)
            rows.own_us = None
        self.count("records", len(rows))
        if endpoint in self._marked_endpoints and (number := found_in(rows.headers)) is not None:
            self.replay = max(number, self.replay or 0)
        self.graph.push(endpoint, rows, is_prepared=prepared)

    def finish(self, is_whole: bool = True) -> None:
        """`is_whole`: all that the task was given has been processed."""
        if not is_whole:
            self.upstream_us = {}
        for number, operator in enumerate(self.graph.operators.values()):
            self.outputs.section = FINISH + number
            operator.finish()
        self._settle_punctuations()
        if self.state_if_open is not None:
            self.timers.settle()


def _with_distinct_keys(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """The rows of a batch in their order, as batches in which no key occurs twice."""
    keys = [part.rows.key.bytes()[0].to_pylist() for part in parts]
    places = [(rank, number, at) for number, part in enumerate(parts) for at, rank in enumerate(part.rows.rank.tolist())]
    starts, stops, seen = [0] * len(parts), [0] * len(parts), set[bytes]()
    for _, number, at in [*sorted(places), (0, -1, 0)]:
        key = keys[number][at] if number >= 0 else None
        if number < 0 or key in seen:
            bounds = zip(parts, starts, stops, strict=True)
            yield [part._replace(rows=part.rows.slice(start, stop)) for part, start, stop in bounds if start < stop]
            starts, seen = list(stops), set()
        if number >= 0:
            stops[number] = at + 1
        if key is not None:
            seen.add(key)
