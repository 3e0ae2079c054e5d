"""Previews: a bounded read in a place of its own; the user's system stays as it is."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.cli.app_loading import load_app
from headrace.client.startpoint_manager import StartpointManager
from headrace.codec.job_records import STARTPOINTS
from headrace.errors import ConfigError, SetupError, StreamNotFoundError
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.streams import SSP


@pytest.fixture
def app(place: Path, monkeypatch: pytest.MonkeyPatch) -> hr.App:
    """A new application on the log of the place, so that a test may add operators."""
    monkeypatch.chdir(place)
    return hr.App("looking", system="log:./data")


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def sales_of(app: hr.App) -> Any:
    return app.stream("sales", key=hr.String(), value=hr.Json("item string, price double"))


def test_a_source_gives_its_first_records_by_time(app: hr.App) -> None:
    found = sales_of(app).preview(5)
    assert [record.value["price"] for record in found] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len(found.records) == 5


def test_functions_stores_and_repartition_streams_are_run(app: hr.App) -> None:
    by_item = sales_of(app).select_key(lambda sale: sale.value["item"], key=hr.String()).group_by_key()
    counted = by_item.windowed_by(hr.Tumbling("1 hour")).aggregate(n=hr.count(), store="n")
    found = {record.key.key: record.value for record in counted.preview(8)}
    assert found == {f"item-{number}": {"n": 2} for number in range(4)}


def test_async_functions_are_awaited(app: hr.App) -> None:
    async def price(sale: hr.Record) -> float:
        await asyncio.sleep(0.001)
        return float(sale.value["price"])

    assert [record.value for record in sales_of(app).map_values(price).preview(5)] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_of_an_application_each_output_is_shown(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    found = load_app("shop.py").preview(6)
    assert {record.stream for record in found} == {"per-shop-out"}
    assert {record.key: record.value for record in found} == {"shop-0": 2, "shop-1": 2, "shop-2": 2}


def test_a_program_beside_settings_of_a_group_is_previewed_alone(place: Path, tmp_path: Path) -> None:
    program = (place / "shop.py").read_text().replace("log:./data", f"log:{place / 'data'}")
    (tmp_path / "shop.py").write_text(program, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:  # as by the job, which runs
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = f'coordinator = "zookeeper://127.0.0.1:1/shop"\nprocessor_id = "a"\nmetrics_address = "{address}"\n'
        (tmp_path / "headrace.toml").write_text(settings, encoding="utf-8")
        assert {record.stream for record in load_app(str(tmp_path / "shop.py")).preview(6)} == {"per-shop-out"}


@pytest.mark.parametrize("store", ["elsewhere", "data"])
def test_a_request_for_a_startpoint_waits_for_the_job(tmp_path: Path, store: str) -> None:
    data, url = f"log:{tmp_path / 'data'}", f"log:{tmp_path / store}"
    app = hr.App("looking", system=data, startpoint_metadata_store=url)
    app.stream("in", key=hr.String(), value=hr.Long()).map_values(lambda one: one.value, value=hr.Long()).to("out")
    with hr.open_system(data) as system, hr.open_system(url) as there:
        system.create_stream("in", 1)
        system.produce("in", [("k", 1)] * 5, hr.String(), hr.Long())
        manager = StartpointManager(system.metadata_store("looking"), there.metadata_store("looking"))
        manager.write_startpoint(SSP(system.name, "in", 0), Startpoint(PositionType.EARLIEST))
    assert len(list(app.preview(3))) == 3
    with hr.open_system(url) as there:
        assert len(there.metadata_store("looking").requests(STARTPOINTS)) == 1


def test_nothing_of_the_users_is_changed(app: hr.App, place: Path) -> None:
    before = everything_in(place)
    stream = sales_of(app).select_key(lambda sale: sale.value["item"], key=hr.String())
    stream.group_by_key().count(store="n").preview(3)
    stream.to("an-output-that-is-not-there")
    app.preview(3)
    assert {name for name in everything_in(place) if not name.endswith(("-shm", "-wal"))} == {
        name for name in before if not name.endswith(("-shm", "-wal"))
    }
    with hr.open_system("log:./data") as system:
        assert "an-output-that-is-not-there" not in {stream.name for stream in system.streams()}
        assert system.applications() == ["shop"]


def test_records_that_fail_are_counted_and_the_first_is_named(app: hr.App) -> None:
    halves = sales_of(app).map_values(lambda sale: 1 / (sale.value["price"] - 1), value=hr.Double())
    found = halves.preview(4)
    assert len(found) == 3
    (note,) = found.notes
    assert note.startswith("1 record failed; the first one, of stream 'sales' partition")
    assert note.endswith("ZeroDivisionError: float division by zero")


def test_a_start_at_the_end_and_configuration_for_parts_do_not_matter(place: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(place)
    app = hr.App("looking", system="log:./data", config={"containers.per-item": 2, "dead_letter_stream": "dead"})
    assert len(app.stream("sales", key=hr.String(), value=hr.Json(), start="latest").preview(4)) == 4


@pytest.fixture
def shops(tmp_path: Path) -> str:
    """A log with 300 shops, and sales of the last of them; the URL."""
    url = f"log:{tmp_path}/shops"
    with hr.open_system(url) as system:
        for stream, partitions in (("shops", 3), ("sales", 3)):
            system.create_stream(stream, partitions)
        names = [hr.Record(f"s{number}", f"Shop {number}", number) for number in range(300)]
        system.produce("shops", names, key=hr.String(), value=hr.String())
        sales = [hr.Record(f"s{number}", number, 1_000 + number) for number in range(290, 300)]
        system.produce("sales", sales, key=hr.String(), value=hr.Long())
    return url


def joined_with(app: hr.App, kind: str) -> Any:
    sales = app.stream("sales", key=hr.String(), value=hr.Long())

    def named(sale: Any, shop: Any) -> list[Any]:
        return [sale, shop]

    if kind == "global table":
        shops = app.global_table("shops", key=hr.String(), value=hr.String())
        return sales.left_join(shops, named, key=lambda record: record.key, value=hr.Json())
    if kind == "rekeyed":
        sales = sales.map(lambda record: (record.key, record.value), key=hr.String(), value=hr.Long())
    shops = app.table("shops", key=hr.String(), value=hr.String())
    if kind == "table of counts":
        counts = sales.group_by_key().count(store="n")
        return counts.left_join(shops, named, value=hr.Json()).to_stream()
    return sales.left_join(shops, named, value=hr.Json())


@pytest.mark.parametrize("kind", ["table", "global table", "rekeyed", "table of counts"])
def test_joins_find_what_they_look_up(shops: str, kind: str) -> None:
    app = hr.App("looking", system=shops, config={"max_records_per_round": 4})
    joined = joined_with(app, kind)
    joined.to("out")
    for found in (joined.preview(5), app.preview(5)):
        looked_up = {record.key: record.value[1] for record in found}
        assert looked_up == {f"s{number}": f"Shop {number}" for number in range(290, 295)}


def test_a_table_that_is_too_long_is_cut_and_that_is_said(shops: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.wiring.sample_run.TABLE_RECORDS_MAX", 100)
    found = joined_with(hr.App("looking", system=shops), "table").preview(5)
    assert {record.value[1] for record in found} == {None}
    assert found.notes == ("of the table shops the first 100 records were taken",)
    assert hr.App("looking", system=shops).stream("shops", key=hr.String(), value=hr.String()).preview(5).notes == ()


SESSIONS = "[1970-01-01T00:00:00Z, 1970-01-01T00:33:00Z]"
WINDOWS = "[1970-01-01T00:00:00Z, 1970-01-01T01:00:00Z)"


def test_a_session_prints_with_its_last_record_in_it_and_a_window_without_its_end(app: hr.App) -> None:
    sales = sales_of(app).select_key(lambda sale: "all", key=hr.String()).group_by_key()
    tables = {
        SESSIONS: sales.windowed_by(hr.Session("10 minutes", grace="0 seconds")).count(store="s"),
        WINDOWS: sales.windowed_by(hr.Tumbling("1 hour", grace="0 seconds")).count(store="w"),
    }
    for text, table in tables.items():
        assert f"all {text}" in repr(table.preview(12))
        assert f"all {text}" in table.to_stream().map_values(lambda r: r.value, value=hr.Long()).preview(12)._repr_html_()
    tables[SESSIONS].to("sessions")
    tables[WINDOWS].to("windows")
    shown = repr(app.preview(12))
    assert all(text in shown for text in tables)


def test_windowed_keys_of_unknown_kind_claim_no_bound(app: hr.App, tmp_path: Path) -> None:
    with hr.open_system(f"log:{tmp_path}/keys") as system:
        system.create_stream("keys", 1)
        keys = [hr.WindowedKey("a", 0, 5), hr.WindowedKey("b", 7, 7)]
        system.produce("keys", [(key, 1) for key in keys], key=hr.Windowed(hr.String()), value=hr.Long())
    other = hr.App("looking", system=f"log:{tmp_path}/keys")
    shown = repr(other.stream("keys", key=hr.Windowed(hr.String()), value=hr.Long()).preview())
    assert "a 1970-01-01T00:00:00Z to 1970-01-01T00:00:00.000005Z" in shown
    assert "b [1970-01-01T00:00:00.000007Z, 1970-01-01T00:00:00.000007Z]" in shown


def test_it_prints_as_a_table(app: hr.App) -> None:
    found = sales_of(app).map_values(lambda sale: f"<b>{sale.value['item']}</b>", value=hr.String()).preview(2)
    lines = repr(found).splitlines()
    assert lines[1].split() == ["key", "value", "timestamp", "partition"]
    assert lines[3].split()[:3] == ["shop-0", "<b>item-0</b>", "1970-01-01T00:00:00Z"]
    assert "&lt;b&gt;item-0&lt;/b&gt;" in found._repr_html_()
    assert list(found.to_df().columns) == ["key", "value", "timestamp", "partition"]


def test_an_empty_input_is_said(app: hr.App, tmp_path: Path) -> None:
    url = f"log:{tmp_path}/other"
    with hr.open_system(url) as system:
        system.create_stream("empty", 1)
    found = hr.App("looking", system=url).stream("empty").preview()
    assert (found.records, found.notes) == ((), ("input stream empty is empty",))


def test_what_cannot_be_read_is_an_error(app: hr.App, tmp_path: Path) -> None:
    with pytest.raises(StreamNotFoundError, match="did you mean 'sales'"):
        app.stream("sale").preview()
    with pytest.raises(SetupError, match="there is no log"):
        hr.App("looking", system=f"log:{tmp_path}/nowhere").stream("sales").preview()
    with pytest.raises(ConfigError, match="expected a number of records"):
        app.stream("sales").preview(0)
