"""`for_each_round`, on both systems in one Spark session: what a function is given, under which id, and what becomes of it
when anything fails."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

import headrace as hr
from headrace.adapters.log.job_store import LogJobStore
from headrace.adapters.spark.engine import SparkEngine
from headrace.adapters.spark.failures import failure_of, in_one_line, is_of_spark
from headrace.driver.rounds import retries, round_planner
from headrace.errors import RoundFailedError, UnavailableError
from headrace.exchange.engine import EngineFailure
from headrace.exchange.messages import Summary, encoded
from headrace.testing import Driver
from support.world import Place, World, caught_up_on_spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
ITEM = "id int, s string"
WorkerPaths = tuple[int, int]


class Given:
    """What functions were given: (id, rows by partition and offset) of each call, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, dict[WorkerPaths, Any]]] = []
        self.columns: list[tuple[str, str]] = []

    def __call__(self, df: Any, round_id: int) -> None:
        self.columns = df.dtypes
        rows = df.collect()
        found = {(row.partition, row.offset): row for row in rows}
        assert len(found) == len(rows), "a record came twice in one round"
        self.calls.append((round_id, found))

    def ids(self) -> list[int]:
        return [number for number, _ in self.calls]

    def values(self) -> list[int]:
        """The ids of all items, each id of a round counted once."""
        by_id = dict(self.calls)
        return sorted(row.value.id for rows in by_id.values() for row in rows.values())

    def assert_same_rows_under_an_id(self) -> None:
        seen: dict[int, dict[WorkerPaths, Any]] = {}
        for number, rows in self.calls:
            assert seen.setdefault(number, rows) == rows, f"id {number} came with other records"


class Handing(World):
    """An input stream of 2 partitions, and applications on it in the shared session."""

    STREAMS: ClassVar = {"in": 2}
    KEYS: ClassVar = {"trigger_interval_ms": 20}

    def __init__(self, folder: Path, place: Place, spark: Any) -> None:
        super().__init__(folder, place)
        self.spark, self.input, self.sent = spark, self.stream("in"), 0

    def produce(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        records = [(f"k{i % 5}".encode(), json.dumps({"id": i, "s": str(i)}).encode()) for i in numbers]
        self.sent += count
        self.system.produce(self.input, records)

    def app(self, **keys: Any) -> hr.App:
        return super().app(spark=self.spark, **keys)

    def items(self, app: hr.App) -> hr.KStream:
        return app.stream(self.input, key=hr.String(), value=hr.Json(ITEM))

    def run(self, app: hr.App) -> Any:
        return caught_up_on_spark(app)


@pytest.fixture
def world(place: Place, tmp_path: Path, spark: Any) -> Iterator[Handing]:
    with Handing(tmp_path, place, spark) as made:
        yield made


@pytest.fixture
def log_world(tmp_path: Path, spark: Any) -> Iterator[Handing]:
    with Handing(tmp_path, Place(), spark) as made:
        yield made


def test_each_record_is_given_once_with_ids_from_0_on_across_restarts(world: Handing) -> None:
    given = Given()
    for count in (30, 7):
        world.produce(count)
        app = world.app(max_records_per_round=20)
        wanted = world.items(app).filter("value.id % 3 != 0")
        wanted.map_values("struct(value.id as id, upper(value.s) as s)").for_each_round(given)
        world.run(app)
    assert given.values() == [i for i in range(37) if i % 3]
    assert given.ids() == [0, 1, 2]
    assert given.columns == [
        ("key", "string"),
        ("value", "struct<id:int,s:string>"),
        ("timestamp", "timestamp"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("headers", "array<struct<name:string,value:binary>>"),
    ]


def test_a_round_of_which_a_part_was_committed_is_ended_without_the_function(
    world: Handing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Kafka each container commits for itself, and here one does before the round fails; on the log none does."""

    def only_the_first(self: Any, sub_topology: str, round_id: str, works: Any, program: Any) -> list[bytes]:
        assert len(works[0]) == 2, "both containers are in one Spark task"
        run(self, sub_topology, round_id, [works[0][:1]], program)
        raise EngineFailure("the other container is gone")

    run = SparkEngine.run
    given = Given()

    def app(**keys: Any) -> hr.App:
        made = world.app(containers=2, **keys)
        world.items(made).for_each_round(given)
        return made

    world.produce(20)
    monkeypatch.setattr(retries, "FAILURES_MAX", 1)
    with monkeypatch.context() as patched:
        patched.setattr(SparkEngine, "run", only_the_first)
        with pytest.raises(RoundFailedError, match="the other container is gone"):
            world.run(app())
    world.produce(5)
    job = world.run(app(max_records_per_round=50))
    assert given.ids() == ([0, 1] if world.url.startswith("kafka") else [0, 0, 1])
    given.assert_same_rows_under_an_id()
    assert given.values() == list(range(25))
    assert job.status()["sub_topologies"]["source"]["lag"] == 0


def test_a_round_in_which_a_container_was_run_elsewhere_is_no_failure(
    world: Handing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its executor was busy for longer than Spark waits. It is tried again as a whole, however often; on Kafka its other
    container has committed."""
    declined: list[str] = []

    def one_declines(self: Any, sub_topology: str, round_id: str, works: Any, program: Any) -> list[bytes]:
        (group,) = works
        if len(declined) == 3:
            return run(self, sub_topology, round_id, works, program)
        declined.append(round_id)
        busy = max(work.lane for work in group)
        others = [work for work in group if work.lane != busy]
        done = run(self, sub_topology, round_id, [others], program) if others else []
        return [*done, encoded(Summary(busy, declined="host-2"))]

    run = SparkEngine.run
    given = Given()
    world.produce(20)
    monkeypatch.setattr(retries, "FAILURES_MAX", 1)
    monkeypatch.setattr(SparkEngine, "run", one_declines)
    app = world.app(containers=2)
    world.items(app).for_each_round(given)
    job = world.run(app)
    assert len(declined) == 3
    assert given.ids() == ([0] if world.url.startswith("kafka") else [0, 0, 0, 0])
    given.assert_same_rows_under_an_id()
    assert given.values() == list(range(20))
    assert job.status()["sub_topologies"]["source"]["lag"] == 0


def test_a_function_that_fails_for_ever_ends_the_job_and_the_next_one_goes_on_with_its_id(
    log_world: Handing, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Given()

    def fails(df: Any, round_id: int) -> None:
        given(df, round_id)
        raise ValueError("the warehouse is closed")

    monkeypatch.setattr(retries, "FAILURES_MAX", 2)
    log_world.produce(10)
    app = log_world.app()
    log_world.items(app).for_each_round(fails, name="report")
    with pytest.raises(RoundFailedError) as caught:
        log_world.run(app)
    assert caught.value.message.startswith("round 1:source:2 failed 2 times, the last time: for_each_round 'report', id 0: ")
    assert given.ids() == [0, 0]
    log_world.produce(10)
    app = log_world.app(max_records_per_round=3)
    log_world.items(app).for_each_round(given, name="report")
    log_world.run(app)
    assert given.ids()[:4] == [0, 0, 0, 1]
    given.assert_same_rows_under_an_id()
    assert given.values() == list(range(20))


def test_stop_cancels_what_a_function_runs_and_the_next_run_gives_the_same_rows(log_world: Handing) -> None:
    given, began = Given(), threading.Event()

    def slow(df: Any, round_id: int) -> None:
        given(df, round_id)
        began.set()
        df.foreach(lambda row: time.sleep(120))

    log_world.produce(10)
    app = log_world.app()
    log_world.items(app).for_each_round(slow)
    job = app.start()
    assert began.wait(60)
    job.stop(60)
    job.wait(1)  # stopped, and not failed
    log_world.produce(10)
    app = log_world.app()
    log_world.items(app).for_each_round(given)
    log_world.run(app)
    assert given.ids() == [0, 0, 1]
    given.assert_same_rows_under_an_id()
    assert given.values() == list(range(20))


def test_a_store_that_does_not_answer_is_waited_for_before_the_function_is_called(
    log_world: Handing, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, asked = Given(), []
    write = LogJobStore.write_metadata

    def slow_to_answer(self: Any, *arguments: Any) -> None:
        asked.append(len(given.calls))
        if len(asked) == 1:
            raise UnavailableError("nobody answers")
        write(self, *arguments)

    monkeypatch.setattr(LogJobStore, "write_metadata", slow_to_answer)
    log_world.produce(10)
    app = log_world.app()
    log_world.items(app).for_each_round(given)
    log_world.run(app)
    assert asked == [0, 0]
    assert (given.ids(), given.values()) == ([0], list(range(10)))


def test_a_preview_shows_the_rows_and_calls_nobody(log_world: Handing) -> None:
    given = Given()
    log_world.produce(3)
    app = log_world.app()
    log_world.items(app).map_values(lambda r: r.value["id"] + 1, value=hr.Int()).for_each_round(given)
    assert sorted(record.value for record in app.preview()) == [1, 2, 3]
    assert given.calls == []


def test_a_job_that_somebody_cancels_is_no_fault_of_a_record() -> None:
    """Ours are cancelled by their group, which nobody else's has."""
    others = failure_of(Exception("[SPARK_JOB_CANCELLED] Job 8 cancelled as part of cancellation of all jobs SQLSTATE: XXKDA"))
    assert (others.in_expression, others.cancelled) == (False, False)
    ours = failure_of(Exception("[SPARK_JOB_CANCELLED] Job 8 cancelled part of cancelled job group headrace-0a-1:source:1"))
    assert (ours.in_expression, ours.cancelled) == (False, True)


# --- step by step, by the test driver -------------------------------------------------------------------------------


def rows_of(app: hr.App) -> hr.KStream:
    return app.stream("in", key=hr.String(), value=hr.Json(ITEM))


def send(d: Driver, *ids: int, s: str = "1") -> None:
    for i in ids:
        d.send("in", f"k{i}", {"id": i, "s": s}, at=i)


def test_a_python_mistake_is_named_with_its_line_and_the_same_rows_come_again(spark: Any) -> None:
    given, wrong = Given(), [True]

    def report(df: Any, round_id: int) -> None:
        given(df, round_id)
        if wrong[0]:
            raise KeyError("no such table")

    app = hr.App("mistake", spark=spark)
    rows_of(app).for_each_round(report, name="report")
    with Driver(app, partitions=2) as d:
        send(d, 1, 2)
        with pytest.raises(RoundFailedError) as caught:
            d.run()
        line = report.__code__.co_firstlineno + 3
        assert caught.value.message.startswith("for_each_round 'report', id 0: ")
        assert f"raised at test_for_each_round.py:{line}: KeyError: 'no such table'" in caught.value.message
        assert isinstance(caught.value.__cause__, KeyError)
        assert "Java" not in str(caught.value) and "\n" not in caught.value.message
        send(d, 3)
        wrong[0] = False
        d.run()
        assert [sorted(row.value.id for row in rows.values()) for _, rows in given.calls] == [[1, 2], [1, 2], [3]]
        assert given.ids() == [0, 0, 1]


def test_an_error_of_spark_inside_it_is_one_line(spark: Any) -> None:
    def unknown(df: Any, round_id: int) -> None:
        df.select("value.nope").collect()

    app = hr.App("spark-error", spark=spark)
    rows_of(app).for_each_round(unknown)
    with Driver(app) as d:
        send(d, 1)
        with pytest.raises(RoundFailedError, match=r"AnalysisException: \[FIELD_NOT_FOUND\]") as caught:
            d.run()
    assert f"test_for_each_round.py:{unknown.__code__.co_firstlineno + 1}: " in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.__suppress_context__, "Java's stack hangs on it"


def test_what_spark_says_of_a_job_that_fails_is_one_line(spark: Any) -> None:
    rows = spark.range(3)
    for fail, said in (
        (lambda: rows.selectExpr("cast('x' as int)").collect(), "NumberFormatException: [CAST_INVALID_INPUT] "),
        (lambda: rows.rdd.map(lambda row: 1 // 0).collect(), "ZeroDivisionError: integer division or modulo by zero"),
        (lambda: rows.write.mode("nonsense").parquet("nowhere"), "nonsense"),
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            fail()
        assert is_of_spark(caught.value)
        line = in_one_line(caught.value, failure_of(caught.value))
        assert said in line
        assert "\n" not in line and "org.apache" not in line and "\tat " not in line
    assert not is_of_spark(KeyError("of Python"))


def test_records_that_fail_never_reach_it(spark: Any) -> None:
    """Nor does one on which an expression raises that the function itself would not have run."""
    seen: list[tuple[int, list[str]]] = []

    def keys(df: Any, round_id: int) -> None:
        context = spark.sparkContext  # what cannot travel to a worker
        assert context is not None
        seen.append((round_id, sorted(row.key for row in df.select("key").collect())))

    app = hr.App("failing", spark=spark, dead_letter_stream="dead")
    rows_of(app).map_values("cast(value.s as int)").for_each_round(keys)
    with Driver(app, partitions=1) as d:
        send(d, 1, 2)
        d.send("in", b"k3", b"no json", raw=True)
        send(d, 4, s="no number")
        d.send("in", "k5", {"id": 5, "s": "5"}, at=300_000_000_000_000_000)  # in the year 11476
        d.run()
        assert seen == [(0, ["k1", "k2"])]
        assert sorted(record.key for record in d.read("dead")) == [b"k3", b"k4", b"k5"]


def test_two_of_a_sub_topology_share_the_id_and_other_operators_get_the_rows_too(spark: Any) -> None:
    first, second = Given(), Given()
    app = hr.App("two", spark=spark)
    rows = rows_of(app)
    rows.for_each_round(first)
    rows.filter("value.id > 1").for_each_round(second)
    rows.group_by_key().count(store="counts").to_stream().to("counts-out")
    with Driver(app, partitions=2) as d:
        for ids in ((1, 2), (3,)):
            send(d, *ids)
            d.run()
        assert first.ids() == second.ids() == [0, 1]
        assert (first.values(), second.values()) == ([1, 2, 3], [2, 3])
        assert d.store("counts").all() == {"k1": 1, "k2": 1, "k3": 1}


def test_a_record_that_several_tasks_read_is_given_once(spark: Any) -> None:
    given = Given()
    app = hr.App("several", spark=spark)
    rows_of(app).for_each_round(given)
    with Driver(app, partitions=2, overrides=["ssp_grouper=all_ssps_to_every_task", "containers=2"]) as d:
        send(d, 1, 2, 3)
        d.run()
    assert (given.ids(), given.values()) == ([0], [1, 2, 3])


def test_behind_a_function_the_rows_come_through_a_repartition_stream(spark: Any) -> None:
    given = Given()
    app = hr.App("behind", spark=spark)
    doubled = rows_of(app).map_values(lambda r: {"id": r.value["id"] * 2, "s": ""}, value=hr.Json(ITEM))
    doubled.for_each_round(given)
    with Driver(app, partitions=2) as d:
        send(d, 1, 2, 3)
        d.run()
    assert (given.ids(), given.values()) == ([0], [2, 4, 6])


def test_the_functions_time_of_a_record_is_that_of_expressions(spark: Any) -> None:
    times: list[int] = []

    def note(df: Any, round_id: int) -> None:
        times.extend(row.us for row in df.selectExpr("unix_micros(timestamp) as us").collect())

    app = hr.App("timed", spark=spark)
    app.stream("in", value=hr.Json(ITEM), timestamp="timestamp_micros(value.id)").for_each_round(note)
    with Driver(app) as d:
        d.send("in", b"k", {"id": 77, "s": ""}, at=1)
        d.run()
    assert times == [77]


def test_a_round_that_is_cut_short_is_ended_without_the_function(
    log_world: Handing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit is the containers' own: what is handed over is always the whole round."""
    given, rounds = Given(), []
    common = round_planner.RoundPlanner._common

    def hurried(self: Any, *arguments: Any) -> Any:
        plan = common(self, *arguments)
        rounds.append(plan.round_id)
        return plan if len(rounds) > 1 else msgspec.structs.replace(plan, deadline_s=0.0)

    monkeypatch.setattr(round_planner.RoundPlanner, "_common", hurried)
    for _ in range(2):  # two pieces: a round takes one at least
        log_world.produce(5)
    app = log_world.app()
    log_world.items(app).for_each_round(given)
    job = log_world.run(app)
    assert job.status()["sub_topologies"]["source"]["round"] == 2
    assert (given.ids(), given.values()) == ([0], list(range(10)))
