"""What is refused, and how: each a clear error, and nothing that is stored has changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import (
    ConfigError,
    InvalidNameError,
    RecordError,
    RecordTooLargeError,
    SchemaError,
    StreamNotFoundError,
)
from support.world import caught_up

pytestmark = pytest.mark.chaos
TABLES = ("streams", "partitions", "chunks", "job_models", "checkpoints", "metadata")


class Place:
    """A log on which the application `job` has run once; `run` runs it again with another last step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.system = hr.open_system(f"log:{folder / 'data'}")
        self.system.create_stream("in", 2)
        self.produce(range(10))
        self.run(lambda record: record.value)

    def produce(self, values: Any) -> None:
        self.system.produce("in", [(f"k{v % 3}", {"n": v}) for v in values], key=hr.String(), value=hr.Json())

    def app(self, **keys: Any) -> hr.App:
        given = {"local_store_dir": str(self.folder / "stores"), "trigger_interval_ms": 5, **keys}
        return hr.App("job", f"log:{self.folder / 'data'}", config=given)

    def run(self, function: Callable[[hr.Record], Any], stream: str = "in", **keys: Any) -> None:
        app = self.app(**keys)
        records = app.stream(stream, key=hr.String(), value=hr.Json())
        records.map_values(function, value=hr.Json()).to("out")
        records.group_by_key().count(store="counts").to_stream().to("counts")
        self.finish(app)

    def finish(self, app: hr.App) -> None:
        caught_up(app)

    def stored(self) -> dict[str, list[Any]]:
        """All of the catalog that decides anything: not who holds the job, and no status."""
        with closing(sqlite3.connect(self.folder / "data" / "catalog.sqlite")) as database:
            found = {table: database.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES}
        # A start writes the model again that it goes by: what it says is compared, not when it was written.
        return {**found, "job_models": [row[:3] for row in found["job_models"]]}

    def values(self, stream: str) -> list[Any]:
        return [record.value for record in self.system.consume(stream, key=hr.Bytes(), value=hr.Json())]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.system.close()


def same(record: hr.Record) -> Any:
    return record.value


def test_an_unknown_stream_is_refused_naming_the_nearest(place: Place) -> None:
    place.system.create_stream("views", 1)
    before = place.stored()
    with pytest.raises(StreamNotFoundError, match=r"(?s)'view'.*did you mean.*'views'"):
        place.run(same, stream="view")
    assert place.stored() == before


def test_a_schema_that_is_no_ddl_is_refused(place: Place) -> None:
    before = place.stored()
    with pytest.raises(SchemaError, match="nosuchtype"):
        place.app().stream("in", value=hr.Json("a nosuchtype"))
    assert place.stored() == before


def test_an_unknown_key_is_refused_naming_the_nearest(place: Place) -> None:
    before = place.stored()
    with pytest.raises(ConfigError, match=r"(?s)max_records_per_rond.*max_records_per_round"):
        place.run(same, max_records_per_rond=5)
    assert place.stored() == before


@pytest.mark.parametrize("name", ["a/b", "..", "../up", "a\\b", "", "x" * 300])
def test_a_name_that_is_no_name_is_refused_everywhere(place: Place, name: str) -> None:
    before = place.stored()
    with pytest.raises(InvalidNameError):
        place.system.create_stream(name, 1)
    with pytest.raises(InvalidNameError):
        hr.App(name)
    records = place.app().stream("in", key=hr.String(), value=hr.Json())
    with pytest.raises(InvalidNameError):
        records.to(name)
    with pytest.raises(InvalidNameError):
        records.group_by_key().count(store=name)
    with pytest.raises(InvalidNameError):
        place.app().stream(name)
    assert place.stored() == before


def test_a_record_above_the_limit_is_refused_by_produce(place: Place) -> None:
    before = place.stored()
    with pytest.raises(RecordTooLargeError, match="67,108,864"):
        place.system.produce("in", [(b"k", bytes(64 * 1024 * 1024 + 1))])
    assert place.stored() == before


def huge(record: hr.Record) -> Any:
    return "x" * (64 * 1024 * 1024) if record.value["n"] == 12 else record.value


def test_a_function_that_makes_a_record_above_the_limit_stops_the_job_naming_its_input(place: Place) -> None:
    place.produce(range(10, 15))
    before = place.stored()
    with pytest.raises(RecordError) as caught:
        place.run(huge)
    (input_,) = [r for r in place.system.consume("in", key=hr.String(), value=hr.Json()) if r.value["n"] == 12]
    assert (caught.value.stream, caught.value.partition, caught.value.offset) == ("in", input_.partition, input_.offset)
    assert caught.value.error_class == "RecordTooLargeError"
    assert place.stored() == before
    place.run(same)
    assert sorted(v["n"] for v in place.values("out")) == list(range(15))


def test_a_function_that_makes_a_record_above_the_limit_gives_a_dead_letter(place: Place) -> None:
    place.produce(range(10, 15))
    place.run(huge, dead_letter_stream="dead")
    assert sorted(v["n"] for v in place.values("out")) == [n for n in range(15) if n != 12]
    assert [v["n"] for v in place.values("dead")] == [12]


def test_a_function_that_raises_stops_the_job_naming_the_record_and_the_line(place: Place) -> None:
    def raising(record: hr.Record) -> Any:
        return 1 / (record.value["n"] - 12)

    place.produce(range(10, 15))
    before = place.stored()
    with pytest.raises(RecordError, match="ZeroDivisionError") as caught:
        place.run(raising)
    assert "return 1 / (record.value" in caught.value.user_traceback
    assert place.stored() == before


def test_bytes_that_cannot_be_written_by_another_serde_are_errors_of_their_records(place: Place) -> None:
    place.system.produce("in", [(b"bad", b"\xff\xfe")])

    def run(**keys: Any) -> None:
        app = hr.App("copy", f"log:{place.folder / 'data'}", config={"trigger_interval_ms": 5, **keys})
        app.stream("in", key=hr.String(), value=hr.String()).to("copied", value=hr.Json())
        place.finish(app)

    with pytest.raises(RecordError):
        run()
    run(dead_letter_stream="dead")
    assert len(place.values("copied")) == 10
    assert [r.value for r in place.system.consume("dead")] == [b"\xff\xfe"]
