"""Previews of Spark expressions: what they give, of which types, which records they fail on, and how it looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import headrace as hr

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
SALES = [("a", {"item": "tea", "price": 1.0}), ("b", {"item": "<b>", "price": None}), ("a", {"item": "milk", "price": 4.0})]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("previewed") / "data"
    with hr.open_system(f"log:{folder}") as system:
        system.create_stream("sales", 2)
        records = [hr.Record(key, value, number) for number, (key, value) in enumerate(SALES)]
        system.produce("sales", records, key=hr.String(), value=hr.Json())
        system.produce("sales", [hr.Record(b"a", b"no json", 9)])
    return folder


@pytest.fixture
def app(log: Path, spark: Any) -> hr.App:
    return hr.App("looking", system=f"log:{log}", spark=spark)


def sales_of(app: hr.App) -> hr.KStream:
    return app.stream("sales", key=hr.String(), value=hr.Json("item string, price double"))


def test_an_expression_is_previewed_with_the_serde_of_its_spark_type(app: hr.App) -> None:
    found = sales_of(app).filter("value.price is not null").map_values("value.price * 2").preview()
    assert [(record.key, record.value, record.timestamp_us) for record in found] == [("a", 2.0, 0), ("a", 8.0, 2)]
    (note,) = found.notes
    assert note.startswith("1 record failed; the first one, of stream 'sales' partition")


def test_columns_are_previewed_too(app: hr.App) -> None:
    from pyspark.sql import functions as F

    stream = sales_of(app).map_values(F.struct(F.upper("value.item").alias("item"), F.lit(1).alias("n")))
    assert [record.value for record in stream.preview(2)] == [{"item": "TEA", "n": 1}, {"item": "<B>", "n": 1}]


def test_what_follows_an_expression_is_run_with_its_state(app: hr.App, log: Path) -> None:
    before = sorted(path.name for path in log.parent.rglob("*"))
    counted = sales_of(app).select_key("value.item").group_by_key().count(store="n")
    counted.to("counts")
    expected = {"tea": 1, "<b>": 1, "milk": 1}
    assert {record.key: record.value for record in counted.preview()} == expected
    of_all = app.preview()
    assert {(record.stream, record.key): record.value for record in of_all} == {("counts", k): n for k, n in expected.items()}
    assert sorted(path.name for path in log.parent.rglob("*")) == before
    with hr.open_system(f"log:{log}") as system:
        assert (system.applications(), [stream.name for stream in system.streams()]) == ([], ["sales"])


def test_the_session_of_a_preview_goes_on_to_be_used(app: hr.App) -> None:
    stream = sales_of(app).filter("value.price > 2")
    assert len(stream.preview()) == len(stream.preview()) == 1
    assert app.spark.range(3).count() == 3


def test_it_looks_like_a_table_in_a_notebook(app: hr.App) -> None:
    found = sales_of(app).map_values("value.item").preview(2)
    table = ElementTree.fromstring(f"<div>{found._repr_html_()}</div>").find("table")
    assert table is not None
    assert [head.text for head in table.iter("th")] == ["key", "value", "timestamp", "partition"]
    assert [[cell.text for cell in row.iter("td")][:2] for row in table.find("tbody") or ()] == [["a", "tea"], ["b", "<b>"]]


def test_a_schema_says_what_only_spark_knows(app: hr.App, capsys: pytest.CaptureFixture[str]) -> None:
    stream = sales_of(app)
    stream.print_schema()
    stream.map_values("value.price * 2").print_schema()
    assert capsys.readouterr().out == (
        "root\n |-- key: string\n |-- value: struct\n |    |-- item: string\n |    |-- price: double\n"
        "root\n |-- key: string\n |-- value: by its Spark type, known when the job starts\n"
    )


def test_an_expression_that_spark_refuses_is_a_clear_error(app: hr.App) -> None:
    with pytest.raises(hr.HeadraceError, match=r"value\.pirce") as caught:
        sales_of(app).filter("value.pirce > 1").preview()
    assert "\tat org.apache" not in str(caught.value)
