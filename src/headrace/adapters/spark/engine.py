"""Running a round's containers on Spark: one Spark job per round, one row back per container's Spark task.

Without a Column prefix the worker reads by itself, and nothing but a plan and a summary crosses the JVM. With one, a reader,
the expressions and the container are one stage without a shuffle; several endpoints are united and routed by container."""

from __future__ import annotations

import base64
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from headrace.adapters.spark import columns, kafka_rows
from headrace.adapters.spark.dead_jvm import JvmCalls, forget, lost_engine
from headrace.adapters.spark.executors import Executors
from headrace.adapters.spark.failures import failure_in, failure_of, in_one_line, is_of_spark
from headrace.adapters.spark.in_worker import Containers, Reader, WorkerFunctions, counted, no_rows, text_of
from headrace.adapters.spark.pickled_programs import PickledPrograms
from headrace.adapters.spark.placement import collected, collected_without_query
from headrace.adapters.spark.reader_reports import with_reports
from headrace.adapters.spark.required_settings import changes_executors
from headrace.adapters.spark.routing import deliveries, routed, with_low_bits
from headrace.adapters.spark.running_rounds import RoundAnswers, RunningRounds
from headrace.adapters.spark.session import driver_address_of, released, see_added_jars, slots_of
from headrace.adapters.spark.spark_tasks import tasks_of
from headrace.adapters.spark.timed_jobs import ended_after, run_on
from headrace.core.rounds.reader_routes import Routes, Taken, routes_of
from headrace.core.topology.engine_prefix import PRESENCE, passes_all
from headrace.errors import HeadraceError, SetupError
from headrace.exchange.engine import ENGINE_LOST, ContainerWork, EngineFailure, RestoreWork, WorkerCheck
from headrace.exchange.messages import Summary, encoded
from headrace.model.stream_operators import SetHeaders
from headrace.model.topology import Node, Source, Transform

LOG = logging.getLogger("headrace.job")
_SUMMARY = "summary string"
RESTORE_S_MAX = 60.0  # for an answer on how far stores are, which comes at once where a worker is free and nothing hangs


class SparkEngine:
    """See `headrace.exchange.engine.Engine`. `functions` run in the worker; `wiring` gives them.
    `kafka_options`: those of Spark's reader, which then reads for `read_prefix` to decode (None: it reads by itself)."""

    def __init__(
        self,
        session: Any,
        functions: WorkerFunctions,
        stop_session: bool,
        closed: Callable[[], None] = lambda: None,
        kafka_options: Mapping[str, str] | None = None,
    ) -> None:
        self._kafka_options = kafka_options
        self._session = session
        self._context = session.sparkContext
        self._jvm = getattr(self._context._gateway, "proc", None)  # its process, where this one has started it
        self._functions = functions
        self._stop_session, self._closed = stop_session, closed
        self._is_lost = False
        self._id = uuid.uuid4().hex
        self._column_types: dict[str, list[tuple[str, str]]] = {}
        self._shared: dict[str, list[list[int]]] = {}
        self._slots = slots_of(session)
        self.reads = kafka_options is not None
        self.driver_address = driver_address_of(session)
        self._pickled_program = PickledPrograms(is_cluster=self.driver_address is not None).bytes_of
        self._calls = JvmCalls(self._jvm)
        self._executors = Executors(session, self._calls)
        self._looking = threading.Lock()
        self._rounds = None
        if self.driver_address is not None:
            self._rounds = RunningRounds(self._context, self.locations, self._cancel_group)

    @property
    def slots(self) -> int:
        return sum(self._executors.slots().values()) or self._slots

    def wait_for_workers(self, check: WorkerCheck, say: Callable[[str], None]) -> None:
        """Wait for those that a first plan is to be made with. `SetupError` where none may work."""
        if self.driver_address is None:
            return
        say(f"Spark's executors reach this process at {self.driver_address.host}")
        if changes_executors(self._context.getConf().get):
            LOG.warning("spark.dynamicAllocation.enabled is on: executors that are idle are ended, and their tasks move")
        try:
            self._executors.wait(check, say)
        except HeadraceError:
            raise
        except Exception as error:
            said = f"Spark has ended while it was starting executors: {self._failure_of(error).message}"
            raise SetupError(said, "start again; if it ends again, Spark's own log says why") from None

    def rejections(self) -> Mapping[str, str]:
        return self._executors.rejections()

    def locations(self) -> dict[str, int]:
        if self.driver_address is None:
            return {}
        try:
            with self._looking:
                self._executors.look()
        except Exception as error:
            raise self._failure_of(error) from None
        return self._executors.slots()

    def run(self, sub_topology: str, round_id: str, works: Sequence[Sequence[ContainerWork]], program: Any) -> list[bytes]:
        self._pickled_program(program)  # here: what cannot be pickled is no failure of Spark's
        name, locations = self._group(round_id), [group[0].location for group in works]
        answers = RoundAnswers(locations)
        with nullcontext(answers) if self._rounds is None else self._rounds.running(name, answers):
            try:
                self._begin(sub_topology, round_id, program)
                rows = self._rows(program, works, name)
            except Exception as error:
                if not answers.is_cut:
                    raise self._failure_of(error) from None
                rows = [answers.given.get(number) or _lost(group) for number, group in enumerate(works)]
        return [base64.b64decode(summary) for row in rows for summary in row.split("\n")]

    def _rows(self, program: Any, works: Sequence[Sequence[ContainerWork]], name: str) -> list[str]:
        """What the containers of a round give, a text of each Spark task. `name`: the round's job group."""
        given = None if self._rounds is None else self._rounds.given
        pickled, payloads = self._pickled_program(program), _payloads(works)
        places = [self._executors.preferences(group[0].location) for group in works]
        if self._is_small(works, program):
            worker = Containers(pickled, program.id, [], self._functions, name, given)
            return collected_without_query(self._context, worker.of_items, places, list(enumerate(payloads)))
        worker = Containers(pickled, program.id, payloads, self._functions, name, given)
        return collected(self._context, *self._made(program, worker, works), places)

    def _group(self, round_id: str) -> str:
        """The round's job group: other applications in this Spark have rounds of the same number."""
        return f"headrace-{self._id}-{round_id}"

    def _begin(self, sub_topology: str, round_id: str, program: Any) -> None:
        """Have all that this thread starts in Spark belong to the round."""
        self._context.setLocalProperty("spark.scheduler.pool", sub_topology)
        self._context.setJobGroup(self._group(round_id), f"headrace {program.application}: {sub_topology}, round {round_id}")

    def _is_small(self, works: Sequence[Sequence[ContainerWork]], program: Any) -> bool:
        """Whether one Spark task at each location does it all, and its containers read what they take."""
        locations = [group[0].location for group in works]
        is_read_there = not any(work.by_engine for group in works for work in group)
        return len(set(locations)) == len(locations) and program.is_plain and is_read_there

    def failed_at(self, round_id: str) -> dict[str, EngineFailure]:
        try:
            tasks = list(tasks_of(self._context, self._group(round_id)))
        except Exception as error:  # the round has its answers: it is not to fail for this
            LOG.warning("round %s: what has failed there is not known: %s", round_id, self._failure_of(error).message)
            return {}
        # A function of `for_each_round` has started those before the last one.
        failed = [task for task in tasks if task.has_failed and task.job == max(one.job for one in tasks)]
        found = [(self._executors.location_of(task.executor), task) for task in failed]
        return {location: failure_in(task.error) for location, task in found if location is not None}

    def probe(self, work: ContainerWork, program: Any) -> EngineFailure | None:
        try:
            self._evaluate(program, [[work]])
        except Exception as error:
            return self._failure_of(error)
        return None

    def _evaluate(self, program: Any, works: Sequence[Sequence[ContainerWork]]) -> None:
        """Run nothing but the Column prefixes, over what `works` read."""
        streams = {piece.stream for group in works for work in group for piece in work.inputs}
        for number, endpoint in enumerate(program.endpoints):
            if endpoint.chain and program.node(endpoint.source).stream in streams:
                rows = self._endpoints(program, works, [number], 1, [], False, reports=False)
                rows.mapInArrow(counted, _SUMMARY).collect()

    def frames(
        self, sub_topology: str, round_id: str, works: Sequence[Sequence[ContainerWork]], program: Any, endpoints: Sequence[int]
    ) -> Sequence[Any]:
        self._pickled_program(program)  # here: what cannot be pickled is no failure of Spark's
        try:
            self._begin(sub_topology, round_id, program)
            if any(not passes_all(node) for endpoint in program.endpoints for node in endpoint.chain):
                self._evaluate(program, works)
            behind = [self._behind_chain(program, works, number, reports=False) for number in endpoints]
            return [columns.handed_rows(rows) for rows in behind]
        except Exception as error:
            raise self._failure_of(error) from None

    def failure_in(self, error: BaseException) -> EngineFailure | None:
        if not is_of_spark(error):
            return None
        failure = self._failure_of(error)
        known = failure.cancelled or failure.error_class == ENGINE_LOST
        return failure if known else EngineFailure(in_one_line(error, failure))

    def _failure_of(self, error: BaseException) -> EngineFailure:
        if isinstance(error, EngineFailure):
            return error
        lost = lost_engine(error, self._jvm)
        self._is_lost = self._is_lost or lost is not None
        return lost or failure_of(error)

    def cancel(self, round_id: str) -> None:
        self._cancel_group(self._group(round_id))

    def _cancel_group(self, group: str) -> None:
        try:
            # What the round would start later too: between two jobs of a user's function nothing is there to cancel.
            self._calls.ask(lambda: self._context._jsc.sc().cancelJobGroupAndFutureJobs(group))
        except Exception as error:
            if self._failure_of(error).error_class != ENGINE_LOST:  # where it is lost, nothing runs
                raise

    def restore(self, works: Sequence[RestoreWork]) -> Sequence[bytes]:
        answer_to = self._functions.restore

        def answered(payloads: Iterable[bytes]) -> Iterator[str]:
            for payload in payloads:
                yield base64.b64encode(answer_to(payload)).decode()

        places, payloads = [self._executors.preferences(work.location) for work in works], [work.payload for work in works]
        group = self._group(f"restore-{uuid.uuid4().hex}")  # of its own: other locations are asked at the same time
        with ended_after(RESTORE_S_MAX, lambda: self._cancel_group(group)) as is_late:
            try:
                self._context.setLocalProperty("spark.scheduler.pool", "headrace-restore")
                self._context.setJobGroup(group, "headrace: how far stores are that are restored")
                return list(map(base64.b64decode, collected_without_query(self._context, answered, places, payloads)))
            except Exception as error:
                failure = self._failure_of(error)
        if is_late.is_set() and failure.cancelled:
            where = ", ".join(sorted({work.location for work in works}))
            silent = f"no worker at {where} has answered for {RESTORE_S_MAX:g} s: is each busy, or does a disk hang?"
            failure = EngineFailure(silent)
        raise failure

    def on_each_machine(self, work: Callable[[], None], within_s: float) -> None:
        if self.driver_address is None:
            work()
        elif not self._is_lost and (there := self._executors.one_of_each_location()):
            run_on(self._context, [[one.preference] for one in there], work, self._group("machines"), within_s)

    def close(self) -> None:
        if self._rounds is not None:
            self._rounds.close()
        self._calls.close()
        if self._stop_session and self._is_lost:
            forget(self._session)
        elif self._stop_session:
            released(self._session)
        self._closed()

    def types_of(self, source: Source, chain: tuple[Node, ...]) -> tuple[str, str]:
        """Spark's types of key and value behind a chain, as DDL; nothing runs."""
        schema = self._rows_like(source, chain).schema
        return schema["key"].dataType.simpleString(), schema["value"].dataType.simpleString()

    def _rows_like(self, source: Source, chain: tuple[Node, ...]) -> Any:
        """No rows, of the shape that is behind a chain."""
        empty = self._session.range(0, 0, 1, 1).mapInArrow(no_rows, columns.reader_schema(source))
        return columns.chained(columns.opened(empty), source, chain)

    def _made(self, program: Any, worker: Containers, works: Sequence[Sequence[ContainerWork]]) -> tuple[Any, bool]:
        """The DataFrame of a round, one Spark partition per group with one row each; and whether there is an exchange in it."""
        chained = [i for i, endpoint in enumerate(program.endpoints) if endpoint.chain]
        plain = [i for i, endpoint in enumerate(program.endpoints) if not endpoint.chain]
        count = len(works)
        if not chained and not any(work.by_engine for group in works for work in group):
            return self._numbers(count).mapInArrow(worker.directly, _SUMMARY), False
        routes = self._routes(program, works)
        if not chained:
            # What is not chosen Spark does not make: it leaves out the columns that are not used.
            looked_at = frozenset[str]().union(*(side.parts for side in program.endpoint_sides))
            low = ["low"] if program.is_elastic else []
            rows = self._kafka_rows(program, works, routes, plain)
            is_there = ["if(value is null, null, X'') as value"] if PRESENCE in looked_at and "value" not in looked_at else []
            rows = rows.selectExpr("ssp", "`offset`", "timestamp_us", *low, *sorted(looked_at - {PRESENCE}), *is_there)
            rows = routed(rows, routes, count) if routes.targets else rows
            return rows.mapInArrow(worker.prepared, _SUMMARY), bool(routes.targets)
        types = self._types(program)
        of = 1 if len(chained) == 1 and (not self.reads or not plain) else len(program.endpoints)
        is_timed = any(_is_timed(program, number) for number in chained)
        parts = [self._endpoints(program, works, numbers, of, types, is_timed) for numbers in self._readers(program, chained)]
        untouched = []
        if self.reads and plain:
            read = self._kafka_rows(program, works, routes, plain)
            untouched = [columns.untouched(read, plain[0], of, types, is_timed, program.is_elastic)]
        if len(parts) == 1 and not untouched and not routes.targets:
            return parts[0].mapInArrow(worker.prepared, _SUMMARY), False
        takers = [routes.takers(reader) for reader in range(count)]
        parts = [*(with_reports(part, takers) for part in parts), *untouched]
        united = parts[0]
        for part in parts[1:]:
            united = united.unionByName(part, allowMissingColumns=True)
        return routed(united, routes, count).mapInArrow(worker.routed, _SUMMARY), True

    def _routes(self, program: Any, works: Sequence[Sequence[ContainerWork]]) -> Routes:
        """Who reads what, and for whom. Where containers read, what is in front of no chain comes to them on no other way."""
        given = [[piece for work in group for piece in work.inputs] for group in works]
        routes = routes_of([[Taken(one.ssp, one.end - one.start, one.bucket) for one in mine] for mine in given])
        if self.reads or not routes.targets:
            return routes
        streams = {program.source(number).stream for number, endpoint in enumerate(program.endpoints) if endpoint.chain}
        in_front = {piece.ssp for mine in given for piece in mine if piece.stream in streams}
        return replace(routes, targets={ssp: tasks for ssp, tasks in routes.targets.items() if ssp in in_front})

    def _numbers(self, count: int) -> Any:
        return self._session.range(0, count, 1, count)

    def _kafka_rows(
        self, program: Any, works: Sequence[Sequence[ContainerWork]], routes: Routes, endpoints: Sequence[int]
    ) -> Any:
        """What Spark reads for some endpoints: one partition per group, each of the streams' records once."""
        assert self._kafka_options is not None
        see_added_jars(self._session)
        streams = {program.source(number).stream for number in endpoints}
        wanted = {piece.ssp: piece for group in works for work in group for piece in work.inputs if piece.stream in streams}
        slices = [[wanted[ssp] for ssp in sorted(mine) if ssp in wanted] for mine in routes.reads]
        rows = kafka_rows.grouped_rows(self._session, self._kafka_options, slices)
        return with_low_bits(rows) if program.is_elastic else rows

    def _endpoints(
        self,
        program: Any,
        works: Sequence[Sequence[ContainerWork]],
        numbers: Sequence[int],
        of: int,
        types: Sequence[Any],
        is_any_timed: bool,
        reports: bool = True,
    ) -> Any:
        """The rows behind the chains of endpoints that have one reader, as a container takes them."""
        if len(numbers) == 1:
            rows, named = self._behind_chain(program, works, numbers[0], reports), [numbers[0] if of > 1 else 0]
        else:
            read, named = self._read(program, works, numbers[0], reports), list(numbers)
            chains = {number: program.endpoints[number].chain for number in numbers}
            rows = columns.branched(read, program.source(numbers[0]), chains)
        sides = [program.endpoint_sides[number] for number in numbers]
        own_times = _is_timed(program, numbers[0]) if is_any_timed else None
        return columns.selected(rows, named, of, sides, types, own_times, program.is_elastic)

    def _behind_chain(self, program: Any, works: Sequence[Sequence[ContainerWork]], number: int, reports: bool) -> Any:
        """The rows of one endpoint behind its chain, as users see them."""
        read = self._read(program, works, number, reports)
        return columns.chained(read, program.source(number), program.endpoints[number].chain)

    def _read(self, program: Any, works: Sequence[Sequence[ContainerWork]], number: int, reports: bool) -> Any:
        """The rows of an endpoint's source: Spark partition i has what group i of `works` reads. `reports`: a container
        takes the rows, and what their reader reports."""
        routes = self._routes(program, works)
        given = self._kafka_rows(program, works, routes, [number]) if self.reads else self._numbers(len(works))
        pickled, payloads = self._pickled_program(program), deliveries(works, routes)
        reader = Reader(pickled, program.id, payloads, routes.reads, number, self._functions.read_prefix, reports)
        return columns.opened(given.mapInArrow(reader, columns.reader_schema(program.source(number))))

    def _readers(self, program: Any, chained: Sequence[int]) -> list[list[int]]:
        """Which endpoints have one reader: those of a source, so that it is read and decoded once, and where there is no other
        reader their rows need no exchange. A chain with more than columns and filters has a reader of its own: what is in it
        would be evaluated for rows that the chain has dropped."""
        if program.id not in self._shared:
            shared: dict[str, list[int]] = {}
            for number in chained:
                source, chain = program.source(number), program.endpoints[number].chain
                is_by_itself = any(isinstance(node, Transform | SetHeaders) for node in chain)
                if len(chained) > 1 and not is_by_itself and columns.is_row_by_row(self._rows_like(source, chain)):
                    shared.setdefault(source.name, []).append(number)
                else:
                    shared[program.endpoints[number].entry] = [number]
            self._shared[program.id] = list(shared.values())
        return self._shared[program.id]

    def _types(self, program: Any) -> list[tuple[str, str]]:
        """Per endpoint the Spark types of its two columns. They are those of the expressions: a serde may take several."""
        if program.id not in self._column_types:
            self._column_types[program.id] = [self._endpoint_types(program, number) for number in range(len(program.endpoints))]
        return self._column_types[program.id]

    def _endpoint_types(self, program: Any, number: int) -> tuple[str, str]:
        endpoint, side = program.endpoints[number], program.endpoint_sides[number]
        if not (side.key_changed or side.value_changed):
            return "binary", "binary"
        key, value = self.types_of(program.source(number), endpoint.chain)
        return key if side.key_changed else "binary", value if side.value_changed else "binary"


def _payloads(works: Sequence[Sequence[ContainerWork]]) -> list[list[bytes]]:
    return [[work.payload for work in group] for group in works]


def _lost(group: Sequence[ContainerWork]) -> str:
    """What is given in place of a Spark task that was lost."""
    return text_of([encoded(Summary(work.lane, lost=True)) for work in group])


def _is_timed(program: Any, number: int) -> bool:
    """Whether an expression gives the records of an endpoint their times, and these are to be compared with their own."""
    time = program.source(number).timestamp
    return program.far_us > 0 and time is not None and time.in_jvm
