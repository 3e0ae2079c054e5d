"""Spark expressions in a job: what they may be, how their plans look, and records on which they raise."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.spark.engine import SparkEngine
from headrace.driver.rounds import poison_records
from headrace.errors import RecordError, RoundFailedError, TopologyError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
ITEM = "id int, s string, at bigint"
# Here expressions raise on purpose, many times, and a second try of the Spark task fails as the first: that a record is
# found where Spark does try again is shown by `test_records_that_fail_never_reach_it` of the rounds' functions.
SPARK_TASK_TRIES = 1


def items(count: int) -> list[dict[str, Any]]:
    return [{"id": i, "s": str(i + 1), "at": 1_700_000_000 + i} for i in range(count)]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The physical plans of the rounds that run, as text."""
    made: list[str] = []
    original = SparkEngine._made

    def noted(self: Any, *arguments: Any) -> Any:
        frame, is_routed = original(self, *arguments)
        made.append(frame._jdf.queryExecution().executedPlan().toString())
        return frame, is_routed

    monkeypatch.setattr(SparkEngine, "_made", noted)
    return made


def read(app: hr.App) -> Any:
    return app.stream("in", key=hr.String(), value=hr.Json(ITEM))


# --- a record on which an expression raises -------------------------------------------------------------------------


def test_the_record_on_which_a_column_raises_is_a_dead_letter_and_all_others_go_on(world: Any) -> None:
    values = items(20)
    values[13]["s"] = "not a number"
    world.produce(values)
    app = world.app(dead_letter_stream="dead")
    read(app).filter("cast(value.s as int) > 0").map_values(lambda r: r.value["id"], value=hr.Json()).to("out")
    world.run(app)
    assert sorted(world.values("out")) == [i for i in range(20) if i != 13]
    (dead,) = world.read("dead")
    headers = dict(dead.headers)
    assert dead.value["id"] == 13
    place = next(r for r in world.read("in") if r.value["id"] == 13)
    assert headers["headrace.stream"] == b"in"
    assert (headers["headrace.partition"], headers["headrace.offset"]) == (b"%d" % place.partition, b"%d" % place.offset)
    assert headers["headrace.error-class"] == b"CAST_INVALID_INPUT"
    assert b"not a number" in headers["headrace.error-message"]


def test_without_a_dead_letter_stream_the_job_ends_naming_the_record(world: Any) -> None:
    values = items(12)
    values[5]["s"] = "oops"
    world.produce(values)
    app = world.app()
    read(app).filter("cast(value.s as int) > 0").to("out")
    with pytest.raises(RecordError) as caught:
        world.run(app)
    place = next(r for r in world.read("in") if r.value["s"] == "oops")
    assert (caught.value.stream, caught.value.partition, caught.value.offset) == ("in", place.partition, place.offset)
    assert caught.value.error_class == "CAST_INVALID_INPUT"
    assert "org.apache" not in str(caught.value)
    assert world.values("out") == []


def test_more_failing_records_than_a_round_may_have_are_too_many(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert poison_records.CULPRITS_PER_ROUND_MAX == 10
    monkeypatch.setattr(poison_records, "CULPRITS_PER_ROUND_MAX", 3)  # for each Spark runs a job that fails, four times over
    world.produce([{"id": i, "s": "x", "at": 0} for i in range(400)])
    app = world.app(dead_letter_stream="dead")
    read(app).filter("cast(value.s as int) > 0").to("out")
    with pytest.raises(RoundFailedError, match=r"more than 3 records fail in Spark's engine.*CAST_INVALID_INPUT"):
        world.run(app)
    assert world.values("dead") == []


def test_the_search_for_a_failing_record_is_told_of(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    world.produce([*items(3), {"id": 3, "s": "x", "at": 0}])
    app = world.app()
    read(app).filter("cast(value.s as int) > 0").to("out")
    with caplog.at_level("WARNING", logger="headrace.job"), pytest.raises(RecordError):
        world.run(app)
    told = [record.getMessage() for record in caplog.records]
    assert any("a Spark expression fails; looking for the record among 4" in line for line in told)
    assert any("CAST_INVALID_INPUT" in line and "offset" in line for line in told)


def test_a_record_that_does_not_decode_is_named_and_never_enters_spark(world: Any) -> None:
    world.produce([*items(5), b"{nope", *items(2)])
    app = world.app()
    read(app).filter("value.id >= 0").to("out")
    with pytest.raises(RecordError) as caught:
        world.run(app)
    place = next(r for r in world.read("in", hr.Bytes()) if r.value == b"{nope")
    assert (caught.value.partition, caught.value.offset) == (place.partition, place.offset)
    app = world.app(dead_letter_stream="dead")
    read(app).filter("value.id >= 0").to("out")
    world.run(app)
    assert [r.value for r in world.read("dead", hr.Bytes())] == [b"{nope"]
    assert sorted(v["id"] for v in world.values("out")) == [0, 0, 1, 1, 2, 3, 4]


# --- expressions ----------------------------------------------------------------------------------------------------


def test_expressions_as_text_and_as_columns_give_the_same(world: Any, plans: list[str]) -> None:
    from pyspark.sql import functions as F

    world.produce(items(30))
    app = world.app()
    rows = read(app)
    texts = rows.filter("value.id % 3 = 0").select_key("concat('g', value.id % 2)").map_values("value.id * 2")
    texts.to("by-text")
    columns = rows.filter(F.col("value.id") % 3 == 0).select_key(F.concat(F.lit("g"), F.col("value.id") % 2))
    columns.map_values(F.col("value.id") * 2).to("by-column")
    world.run(app)
    expected = sorted((f"g{i % 2}", i * 2) for i in range(0, 30, 3))
    assert sorted((r.key, r.value) for r in world.read("by-text", hr.Int())) == expected
    assert sorted((r.key, r.value) for r in world.read("by-column", hr.Int())) == expected
    assert plans
    assert not any("Exchange" in plan or plan.count("MapInArrow") != 2 for plan in plans), "one reader, one container"


def test_branches_of_a_stream_keep_to_themselves(world: Any, plans: list[str]) -> None:
    """An expression is not evaluated for what its branch has dropped, and a null is no match, however it is asked."""
    values = items(40)
    for value in values[::4]:
        value["s"] = "no number"
    values[1]["s"] = None
    world.produce([*values, b"not json"])
    app = world.app(dead_letter_stream="dead")
    rows = read(app)
    numbers = rows.filter("value.s <> 'no number'").map_values("cast(value.s as int)")
    numbers.filter_not("value > 30").to("small")
    numbers.filter("value > 30").select_key("'big'").to("big")
    rows.filter_not("value.s <> 'no number'").map_values("value.id").to("others")
    world.run(app)
    given = {i: i + 1 for i in range(2, 40) if i % 4}
    assert sorted(world.values("small", hr.Int())) == [n for n in given.values() if n <= 30]
    assert sorted((r.key, r.value) for r in world.read("big", hr.Int())) == [("big", n) for n in given.values() if n > 30]
    assert sorted(world.values("others", hr.Int())) == sorted([1, *range(0, 40, 4)])
    assert [r.value for r in world.read("dead", hr.Bytes())] == [b"not json"]
    assert not any("Exchange" in plan for plan in plans)


def test_a_branch_with_a_function_in_python_has_a_reader_of_its_own(world: Any, plans: list[str]) -> None:
    """Spark calls such a function for every row in front of it, also for what the branch has dropped."""
    from pyspark.sql import functions as F

    world.produce(items(20))
    app = world.app()
    rows = read(app)
    halved = F.udf(lambda number: 60 // number, "int")
    rows.filter("value.id > 0").map_values(halved("value.id")).to("halved")
    rows.filter("value.id < 3").map_values(F.explode(F.array("value.id", F.lit(100)))).to("exploded")
    rows.filter("value.id = 4").map_values("value.id").to("four")
    rows.filter("value.id = 5").map_values("value.id").to("five")
    world.run(app)
    assert sorted(world.values("halved", hr.Int())) == sorted(60 // i for i in range(1, 20))
    assert sorted(world.values("exploded", hr.Int())) == [0, 1, 2, 100, 100, 100]
    assert (world.values("four", hr.Int()), world.values("five", hr.Int())) == ([4], [5])
    assert plans and all("Exchange" in plan for plan in plans)


def test_one_endpoint_needs_no_exchange(world: Any, plans: list[str]) -> None:
    world.produce(items(10))
    app = world.app()
    read(app).filter("value.id > 3").group_by_key().count(store="counts").to_stream().to("counts")
    world.run(app)
    assert sum(max(r.value for r in world.read("counts", hr.Long()) if r.key == k) for k in ("k0", "k1", "k4")) == 4
    assert plans
    assert not any("Exchange" in plan for plan in plans)


def test_two_input_streams_with_expressions_meet_in_one_task(world: Any, plans: list[str]) -> None:
    world.system.create_stream("other", 2)
    world.produce(items(20))
    world.produce(items(20), "other")
    app = world.app()
    left = read(app).filter("value.id < 10").map_values("value.id")
    right = app.stream("other", key=hr.String(), value=hr.Json(ITEM)).filter("value.id >= 10").map_values("value.id")
    left.merge(right).group_by_key().count(store="counts").to_stream().to("counts")
    world.run(app)
    last = {r.key: r.value for r in world.read("counts", hr.Long())}
    assert last == {f"k{i}": 4 for i in range(5)}
    assert any("Exchange" in plan for plan in plans)


def test_the_serde_follows_the_type_that_spark_gives(world: Any) -> None:
    world.produce(items(3))
    app = world.app()
    rows = read(app)
    expressions = {
        "int": ("value.id", hr.Int(), [0, 1, 2]),
        "bigint": ("cast(value.id as bigint)", hr.Long(), [0, 1, 2]),
        "double": ("value.id / 2.0D", hr.Double(), [0.0, 0.5, 1.0]),
        "string": ("value.s", hr.String(), ["1", "2", "3"]),
        "struct": ("named_struct('a', value.id, 'b', value.s)", hr.Json(), [{"a": i, "b": str(i + 1)} for i in range(3)]),
    }
    for name, (expression, _, _) in expressions.items():
        rows.map_values(expression).to(f"out-{name}")
    world.run(app)
    for name, (_, serde, expected) in expressions.items():
        assert sorted(world.values(f"out-{name}", serde), key=str) == expected, name


def test_a_timestamp_expression_sets_the_time_that_windows_go_by(world: Any) -> None:
    world.produce(items(10))
    app = world.app()
    rows = app.stream("in", key=hr.String(), value=hr.Json(ITEM), timestamp="timestamp_seconds(value.at)")
    windows = rows.filter("value.id >= 0").group_by_key().windowed_by(hr.Tumbling("5 seconds"))
    windows.count(store="counts").to_stream().to("counts")
    world.run(app)
    found = {(r.key.key, r.key.start_us): r.value for r in world.read("counts", hr.Long(), hr.Windowed(hr.String()))}
    start_us = 1_700_000_000_000_000
    assert found == {(f"k{i % 5}", start_us + i // 5 * 5_000_000): 1 for i in range(10)}


def test_a_timestamp_expression_holds_where_no_other_expression_follows(world: Any) -> None:
    world.produce(items(3))
    app = world.app()
    rows = app.stream("in", key=hr.String(), value=hr.Json(ITEM), timestamp="timestamp_seconds(value.at)")
    rows.map_values(lambda r: r.value["at"] * 1_000_000 - r.timestamp_us, value=hr.Long()).to("out")
    rows.filter("value.id < 2").to("some")
    world.run(app)
    assert world.values("out", hr.Long()) == [0, 0, 0]
    assert {r.timestamp_us for r in world.read("some")} == {(1_700_000_000 + i) * 1_000_000 for i in range(2)}


def test_a_timestamp_that_is_null_is_an_error_of_its_record(world: Any) -> None:
    values = items(6)
    values[2]["at"] = None
    world.produce(values)
    app = world.app(dead_letter_stream="dead")
    rows = app.stream("in", key=hr.String(), value=hr.Json(ITEM), timestamp="timestamp_seconds(value.at)")
    rows.filter("value.id >= 0").map_values("value.id").to("out")
    world.run(app)
    assert sorted(world.values("out", hr.Int())) == [0, 1, 3, 4, 5]
    assert [r.value["id"] for r in world.read("dead")] == [2]


def test_functions_edited_between_two_runs_in_one_session_are_the_new_ones(world: Any) -> None:
    def run(step: int) -> None:
        app = world.app()
        read(app).map_values(lambda r: r.value["id"] + step, value=hr.Json()).to("out")
        world.run(app)

    world.produce(items(2))
    run(100)
    world.produce(items(2))
    run(200)
    assert sorted(world.values("out")) == [100, 101, 200, 201]


def joined_with_nothing(df: Any) -> Any:
    from pyspark.sql import functions as F

    nothing = df.sparkSession.createDataFrame([], "number int, name string")
    return df.join(F.broadcast(nothing), df["value.id"] == nothing["number"]).select("_at", "key", "value", "offset")


NOTHING: dict[str, Callable[[Any], Any]] = {
    "false": lambda rows: rows.filter("1 = 0"),
    "contradiction": lambda rows: rows.filter("value is null and value is not null").map_values("value.id"),
    "not true": lambda rows: rows.filter_not("true"),
    "a date in the past": lambda rows: rows.filter("current_date() < date '2020-01-01'"),
    "transform": lambda rows: rows.transform(lambda df: df.where("false")).filter("value.id > 0"),
    "join": lambda rows: rows.transform(joined_with_nothing),
}


@pytest.mark.parametrize("nothing", NOTHING)
@pytest.mark.parametrize("branches", [1, 2])
def test_where_spark_sees_that_no_row_is_kept_all_else_is_as_ever(world: Any, nothing: str, branches: int) -> None:
    """The positions go on, a record that does not decode is a dead letter, and what another stream has comes through."""
    world.system.create_stream("other", 4)
    world.system.produce("other", [(str(i), i) for i in range(40)], key=hr.String(), value=hr.Long())
    for others in (True, False):
        world.produce([*items(5), b"{nope"])
        app = world.app(dead_letter_stream="dead", containers=2)
        rows = read(app)
        for number in range(branches):
            NOTHING[nothing](rows).to(f"none-{number}")
        if others:
            app.stream("other", key=hr.String(), value=hr.Long()).filter("value >= 0").to("out")
        world.run(app)
    assert sorted(world.values("out", hr.Long())) == list(range(40))
    assert world.values("none-0") == []
    assert [r.value for r in world.read("dead", hr.Bytes())] == [b"{nope"] * 2


# --- transform ------------------------------------------------------------------------------------------------------


def test_transform_may_explode_and_join_with_a_static_table(world: Any, spark: Any) -> None:
    from pyspark.sql import functions as F

    world.produce(items(6))
    app = world.app()
    names = app.spark.createDataFrame([(0, "even"), (1, "odd")], "parity int, name string")

    def named(df: Any) -> Any:
        doubled = df.withColumn("part", F.explode(F.sequence(F.lit(0), F.lit(1))))
        joined = doubled.join(F.broadcast(names), doubled["value.id"] % 2 == names["parity"])
        return joined.select("_at", "key", F.concat("name", F.lit("-"), F.col("part").cast("string")).alias("value"))

    read(app).transform(named).to("out")
    world.run(app)
    assert sorted(world.values("out", hr.String())) == sorted(["even-0", "even-1", "odd-0", "odd-1"] * 3)


@pytest.mark.parametrize(
    ("wide", "named"),
    [
        (lambda df: df.orderBy("offset"), "a sort"),
        (lambda df: df.limit(3), "a limit"),
        (lambda df: df.repartition(3), "an exchange"),
        (lambda df: df.groupBy("_at", "key", "value").count(), "an aggregation"),
        (lambda df: df.select("key", "value"), "_at"),
    ],
    ids=["sort", "limit", "exchange", "aggregate", "without _at"],
)
def test_a_transform_that_does_not_work_row_by_row_is_refused(world: Any, wide: Any, named: str) -> None:
    world.produce(items(1))
    app = world.app()
    read(app).transform(wide).to("out")
    with pytest.raises(TopologyError, match=named):
        world.run(app)
    assert [stream.name for stream in world.system.streams()] == ["in"]


REFUSED: dict[str, tuple[Callable[[hr.KStream], Any], str]] = {
    "unknown field": (
        lambda s: s.filter("value.idd > 1"),
        r"filter 'in-filter' \(test_spark_expressions.py:\d+\): 'value.idd > 1' .*\[FIELD_NOT_FOUND\].*mean 'value.id'\?",
    ),
    "an unknown field of what an expression made": (
        lambda s: s.map_values("named_struct('a', value.id)").filter("value.b > 1"),
        r"there are: key, value, value.a, timestamp, partition, offset",
    ),
    "unknown column": (lambda s: s.select_key("ofset"), r"select_key.*test_spark_expressions.*did you mean 'offset'"),
    "field without value": (lambda s: s.map_values("id + 1"), r"map_values.*did you mean 'value.id'"),
    "syntax": (lambda s: s.filter("value.id >"), r"filter.*test_spark_expressions.py:\d+.*PARSE_SYNTAX_ERROR"),
    "syntax of filter_not": (lambda s: s.filter_not("(value.id"), r"filter_not.*PARSE_SYNTAX_ERROR"),
    "no boolean": (lambda s: s.filter("value.id"), r"filter.*test_spark_expressions"),
    "a row for a frame": (
        lambda s: s.transform(lambda r: r.value),
        r"transform 'in-transform': .*gave Column, expected a DataFrame.*hint: transform is given a DataFrame",
    ),
    "a raising function": (lambda s: s.transform(lambda r: r["value"].nope()), r"transform.*hint: transform is given"),
    "no field in a frame": (lambda s: s.transform(lambda df: df.select("_at", "kye")), r"transform.*did you mean 'key'"),
    "text as a long": (
        lambda s: s.map_values("value.s", value=hr.Long()),
        r"map_values.*test_spark_expressions.py:\d+.*its value is of Spark's type string.*Long\(\).*cast",
    ),
    "a number as a text key": (lambda s: s.select_key("value.id", key=hr.String()), r"its key is .*type int.*String"),
    "a text as a struct": (lambda s: s.map_values("value.s", value=hr.Json("a int")), r"type string.*Json\('a int'\)"),
}


@pytest.mark.parametrize("mistake", sorted(REFUSED))
def test_what_spark_refuses_names_operator_and_line_before_anything_is_read(world: Any, mistake: str) -> None:
    build, message = REFUSED[mistake]
    app = world.app()
    build(read(app)).to("out", key=hr.Json(), value=hr.Json())
    with pytest.raises(TopologyError, match=f"(?s){message}") as caught:
        world.run(app)
    assert "org.apache" not in str(caught.value)
    assert "Py4J" not in str(caught.value)
    assert [stream.name for stream in world.system.streams()] == ["in"]


def test_a_time_expression_that_spark_refuses_names_its_stream_and_line(world: Any) -> None:
    app = world.app()
    rows = app.stream("in", key=hr.String(), value=hr.Json(ITEM), timestamp="timestamp_seconds(value.att")
    rows.filter("true").to("out")
    with pytest.raises(TopologyError, match=r"timestamp of 'in' \(test_spark_expressions.py:\d+\).*PARSE_SYNTAX_ERROR"):
        world.run(app)


def test_a_field_of_json_without_a_schema_asks_for_one(world: Any) -> None:
    app = world.app()
    app.stream("in", key=hr.String(), value=hr.Json()).filter("value.d > 1").to("out")
    with pytest.raises(TopologyError, match=r"(?s)hint: this value is JSON without a schema.*value=hr.Json\("):
        world.run(app)


def test_types_that_fit_their_serde_are_taken(world: Any) -> None:
    world.produce(items(2))
    app = world.app()
    rows = read(app)
    rows.map_values("value.id", value=hr.Long()).to("longs")
    rows.map_values("value", value=hr.Json()).to("texts")
    rows.map_values("named_struct('a', value.id)", value=hr.Json("a bigint")).to("structs")
    world.run(app)
    assert sorted(world.values("longs", hr.Long())) == [0, 1]
    assert sorted(v["id"] for v in world.values("texts")) == [0, 1]
    assert sorted(v["a"] for v in world.values("structs")) == [0, 1]


# --- what their values are written as ---------------------------------------------------------------------------------


class Tenths(hr.OwnSerde[float]):
    form = "tenths"
    spark_type = "double"

    def encode(self, value: float) -> bytes:
        return str(round(value * 10)).encode()

    def decode(self, data: bytes) -> float:
        return int(data) / 10


@pytest.mark.parametrize(
    ("expression", "serde", "expected"),
    [
        ("value.id % 2 = 0", hr.Boolean(), [True, False, True]),
        ("cast(value.id as smallint)", hr.Short(), [0, 1, 2]),
        ("cast(value.id as float) / cast(2 as float)", hr.Double(), [0.0, 0.5, 1.0]),
        ("cast(value.id as float)", hr.Float(), [0.0, 1.0, 2.0]),
        ("cast(value.id as decimal(10,2))", hr.Decimal(10, 2), [Decimal("0.00"), Decimal("1.00"), Decimal("2.00")]),
        ("timestamp_micros(value.id)", hr.Timestamp(), [datetime.fromtimestamp(n / 1e6, UTC) for n in range(3)]),
    ],
)
def test_an_expression_is_written_by_its_type(world: Any, expression: str, serde: Any, expected: list[Any]) -> None:
    world.produce(items(3))
    app = world.app()
    read(app).map_values(expression).to("out")
    world.run(app)
    assert world.values("out", serde) == expected


def test_tables_of_expressions_are_grouped(world: Any) -> None:
    """The serdes of the rows follow from Spark's types, and so do those of what their groups get."""
    with hr.open_system(world.url) as system:
        system.create_stream("parcels", 2)
        rows = [("p1", {"city": "Oslo", "kg": 2}), ("p2", {"city": "Oslo", "kg": 3}), ("p1", {"city": "Rome", "kg": 4})]
        system.produce("parcels", rows, hr.String(), hr.Json())
    app = world.app()
    parcels = app.stream("parcels", key=hr.String(), value=hr.Json("city string, kg bigint"))
    table = parcels.map_values("named_struct('at', upper(value.city), 'kg', value.kg)").to_table(store="t")
    grouped = table.group_by(lambda r: r.value["at"], key=hr.String())
    grouped.aggregate(n=hr.count(), kg=hr.sum("value.kg"), store="s")
    grouped.reduce(lambda one, other: {**one, "kg": one["kg"] + other["kg"]},
                   lambda one, other: {**one, "kg": one["kg"] - other["kg"]}, store="reduced")  # fmt: skip
    world.run(app)
    assert _entries(hr.state(app)["s"]) == {"OSLO": {"n": 1, "kg": 3}, "ROME": {"n": 1, "kg": 4}}
    assert _entries(hr.state(app)["reduced"])["ROME"] == {"at": "ROME", "kg": 4}
    placed = _entries(hr.state(app)["s-rows"])
    assert placed == {key: {"group": city, "value": {"at": city, "kg": kg}} for key, city, kg in MOVED}


MOVED = (("p1", "ROME", 4), ("p2", "OSLO", 3))


def _entries(store: Any) -> dict[str, Any]:
    return {row["key"]: row["value"] for row in store.to_arrow().to_pylist()}


def test_an_own_serde_reads_and_writes_columns(world: Any) -> None:
    with hr.open_system(world.url) as system:
        system.create_stream("warmth", 1)
        system.produce("warmth", [("a", 20.5), ("b", 3.0)], hr.String(), Tenths())
    app = world.app()
    app.stream("warmth", key=hr.String(), value=Tenths()).filter("value > 10.0").map_values("value * 2", value=Tenths()).to(
        "out"
    )
    world.run(app)
    assert world.values("out", Tenths()) == [41.0]
