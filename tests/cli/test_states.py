"""`headrace state` and `app.state`: stores as committed, by key and as a whole."""

from __future__ import annotations

import json
import runpy
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from cli.shop import HOUR_US, ITEMS, SALES, SHOPS, sale
from headrace.cli.app_loading import load_app
from headrace.client.state_export import rows_of
from headrace.client.state_reader import StateView
from headrace.client.store_form import StoreForm, parsed, serde_of_form, serdes_in
from headrace.core.keys.key_layout import state_key
from headrace.errors import StateError
from support.world import caught_up

Run = Callable[..., Any]
SALES_BY_NUMBER = [sale(number) for number in range(SALES)]


@pytest.fixture
def app(place: Path, monkeypatch: pytest.MonkeyPatch) -> hr.App:
    monkeypatch.chdir(place)
    return load_app("shop.py")


def windows_of_items() -> dict[str, dict[int, dict[str, Any]]]:
    """Item to window's start to what the store should say, counted without the framework."""
    prices: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _, item, price, time in SALES_BY_NUMBER:
        prices[item][time - time % HOUR_US].append(price)
    return {
        item: {start: {"n": len(found), "mean": sum(found) / len(found)} for start, found in by_start.items()}
        for item, by_start in prices.items()
    }


# --- app.state -------------------------------------------------------------------------------------------------------


def test_a_count_is_read_by_key(app: hr.App) -> None:
    counts = Counter(shop for shop, *_ in SALES_BY_NUMBER)
    assert {shop: app.state("per-shop").get(shop) for shop in counts} == counts
    assert app.state("per-shop").get("nobody", 0) == 0


def test_the_state_of_an_application_is_read_by_its_app_and_by_its_name(app: hr.App) -> None:
    by_app, by_name = hr.state(app), hr.state("shop", "log:./data")
    assert by_app.stores == by_name.stores == sorted(["per-shop", "per-item", "dearest", "last", "history"])
    for state in (by_app, by_name):
        assert state["per-shop"].get("shop-0") == app.state("per-shop").get("shop-0")
    with pytest.raises(StateError, match="has no store 'per-shoe'"):
        by_name["per-shoe"].get("x")


def test_what_is_read_is_said_up_to_where_it_is_so(app: hr.App) -> None:
    entries, as_of = app.state("per-shop").entries_as_of("shop-0")
    table, whole = app.state("per-shop").to_arrow_as_of()
    assert [entry.value for entry in entries] == [SALES // SHOPS] and table.num_rows == SHOPS
    read = sum(position for one in whole for position in one.positions.values())
    assert read == SALES and {one.task for one in as_of} <= {one.task for one in whole}


@pytest.mark.parametrize("store", ["per-shop", "per-item", "dearest", "last", "history"])
def test_rows_are_those_of_the_table(app: hr.App, store: str) -> None:
    rows, as_of = app.state(store).rows_as_of(1_000_000, lambda key: True)
    table, whole = app.state(store).to_arrow_as_of()
    plain = [{name: value for name, value in row.items() if (name, value) != ("sub", b"")} for row in table.to_pylist()]
    assert rows == plain and as_of == whole
    wanted = {row["key"] for row in rows[: len(rows) // 2]}
    some, _ = app.state(store).rows_as_of(3, wanted.__contains__)
    assert some == [row for row in rows if row["key"] in wanted][:3]


def test_no_more_of_a_store_is_read_than_the_rows_that_are_wanted() -> None:
    taken: list[int] = []

    def entries() -> Iterator[tuple[bytes, bytes]]:
        for number in range(1_000_000):
            taken.append(number)
            yield state_key(b"%d" % number), b"v"

    form = StoreForm("source", "reduce", hr.Bytes(), hr.Bytes(), bytes, None, False, False)
    rows = rows_of(form, entries())
    assert [next(rows)["key"] for _ in range(3)] == [b"0", b"1", b"2"]
    assert len(taken) <= 1_000


def test_windows_of_a_key_are_read_together_and_alone(app: hr.App) -> None:
    state = app.state("per-item")
    for item, expected in windows_of_items().items():
        found = state.get(item)
        assert {key.start_us: value for key, value in found.items()} == expected
        assert {key.end_us - key.start_us for key in found} == {HOUR_US}
        first = min(found)
        assert state.get(first) == found[first]
        assert state.get(hr.WindowedKey(item, -HOUR_US, 0)) is None


def test_a_reduced_value_is_read_as_it_was_written(app: hr.App) -> None:
    for item in range(ITEMS):
        dearest = max(price for _, name, price, _ in SALES_BY_NUMBER if name == f"item-{item}")
        assert app.state("dearest").get(f"item-{item}") == {"item": f"item-{item}", "price": dearest}


def test_a_processors_store_has_sub_keys_and_a_window_store_times(app: hr.App) -> None:
    mine = [(item, price, time) for shop, item, price, time in SALES_BY_NUMBER if shop == "shop-1"]
    last = app.state("last")
    assert last.get("shop-1") == mine[-1][0]
    assert last.get("shop-1", sub="item-1") == max(price for item, price, _ in mine if item == "item-1")
    assert last.get("shop-1", sub="item-9") is None
    expiries = {entry.sub: entry.expires_us for entry in last.entries("shop-1")}
    assert expiries[b""] == mine[-1][2] + 24 * HOUR_US
    assert app.state("history").get("shop-1") == {time: price for _, price, time in mine}


def test_a_store_as_a_table_has_typed_columns(app: hr.App) -> None:
    table = app.state("per-item").to_arrow()
    assert table.column_names == ["key", "window_start", "window_end", "value"]
    assert str(table.schema.field("value").type) == "struct<n: int64, mean: double>"
    found: dict[str, dict[int, Any]] = defaultdict(dict)
    for row in table.to_pylist():
        found[row["key"]][round(row["window_start"].timestamp() * 1e6)] = row["value"]
    assert found == windows_of_items()


def test_a_store_as_a_data_frame(app: hr.App) -> None:
    frame = app.state("per-shop").to_df()
    assert dict(zip(frame["key"], frame["value"], strict=True)) == Counter(shop for shop, *_ in SALES_BY_NUMBER)
    assert list(app.state("history").to_df().columns) == ["key", "at", "value", "expires_at"]
    # texts and numbers under one store: they agree on no type, so their JSON stands there
    mixed = app.state("last").to_arrow()
    assert mixed.column_names == ["key", "sub", "value", "expires_at"]
    assert {type(json.loads(value)) for value in mixed.column("value").to_pylist()} == {str, float}


def test_an_unknown_store_names_those_that_are_there(app: hr.App) -> None:
    with pytest.raises(StateError, match="has no store 'per-shoop'") as caught:
        app.state("per-shoop").get("a")
    assert caught.value.hint == "did you mean 'per-shop'?"


def test_without_the_code_the_form_in_the_job_model_says_what_bytes_mean(app: hr.App) -> None:
    from headrace import wiring

    config = wiring.config_of(app)
    for store in ("per-shop", "per-item", "dearest", "last", "history"):
        by_form = StateView(store, "shop", config, {}).to_arrow()
        assert by_form.equals(StateView(store, "shop", config, serdes_in(app.topology())).to_arrow()), store


def test_state_of_files_that_are_gone_is_an_error_that_names_one(place: Path, tmp_path: Path, monkeypatch: Any) -> None:
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for file in (tmp_path / ".headrace" / "state").rglob("*.arrow"):
        file.unlink()
    with pytest.raises(StateError, match="found no such file"):
        load_app("shop.py").state("per-shop").get("shop-1")


def test_reading_starts_again_from_newer_checkpoints_where_files_went_away(app: hr.App, monkeypatch: Any) -> None:
    """A job that runs replaces the files of a checkpoint that we have looked at already."""
    from dataclasses import replace

    view = app.state("per-shop")
    true = view._committed()
    stale = {task: replace(head, files=(replace(head.files[0], name="gone"),)) for task, head in true.heads.items()}
    looks = [replace(true, heads=stale), true]
    monkeypatch.setattr(StateView, "_committed", lambda self: looks.pop(0))
    assert view.get("shop-1") == SALES // SHOPS
    assert looks == []


# --- forms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("serde", [hr.String(), hr.Json(), hr.Json("a int, b array<struct<c:string>>"), hr.Long()])
def test_a_form_gives_its_serde_back(serde: Any) -> None:
    assert serde_of_form(serde.form) == serde
    assert serde_of_form(hr.Windowed(serde).form) == hr.Windowed(serde)


def test_a_form_that_nobody_knows_gives_bytes() -> None:
    form = parsed("source|brand-new thing", {})
    assert form.value_of(b"abc") == (b"abc", None)
    assert parsed("source|reduce key=mine value=mine", {}).decode(b"abc") == b"abc"


# --- the commands -----------------------------------------------------------------------------------------------------


def test_get_prints_a_value_or_rows(headrace: Run) -> None:
    assert headrace("state", "get", "per-shop", "shop-1", "--app", "shop.py").stdout == f"{SALES // SHOPS}\n"
    assert headrace("state", "get", "per-shop", "shop-1", "--application", "shop").stdout == f"{SALES // SHOPS}\n"
    assert headrace("state", "get", "per-item", "item-0").stdout.startswith("start")
    found = json.loads(headrace("state", "get", "per-item", "item-0", "--json").stdout)
    by_start = {entry["window"]["start"]: entry["value"] for entry in found["entries"]}
    assert by_start["1970-01-01T00:00:00Z"] == windows_of_items()["item-0"][0]


KEYED = """
import uuid
from datetime import UTC, datetime
from decimal import Decimal

import headrace as hr


class Celsius(hr.OwnSerde[float]):
    form = "celsius"

    def encode(self, value):
        return str(round(value * 10)).encode()

    def decode(self, data):
        return int(data) / 10


KEYS = {
    "short": (hr.Short(), 3),
    "uuid": (hr.UUID(), uuid.UUID("6f1d9a52-0c5b-4f0e-9d3e-2f8f4a1c7b60")),
    "decimal": (hr.Decimal(5, 2), Decimal("0.10")),
    "time": (hr.Timestamp(), datetime(2013, 1, 1, tzinfo=UTC)),
    "own": (Celsius(), 21.5),
}
app = hr.App("keyed", system="log:./data")
for name, (serde, _) in KEYS.items():
    app.stream(name, key=serde, value=hr.Long()).group_by_key().count(store=f"n-{name}")
"""


def test_get_takes_keys_of_every_serde_as_texts(fresh: Run, tmp_path: Path) -> None:
    (tmp_path / "keyed.py").write_text(KEYED)
    keyed = load_app("keyed.py")
    keys = runpy.run_path("keyed.py")["KEYS"]
    with hr.open_system("log:./data") as system:
        for name, (serde, key) in keys.items():
            system.create_stream(name, 1)
            system.produce(name, [(key, 1)], key=serde, value=hr.Long())
    caught_up(keyed)
    texts = {"short": "3", "uuid": str(keys["uuid"][1]), "decimal": "0.1", "time": "2013-01-01T00:00:00Z", "own": "21.5"}
    found = {name: fresh("state", "get", f"n-{name}", text, "keyed.py").stdout for name, text in texts.items()}
    assert found == dict.fromkeys(texts, "1\n")
    assert fresh("state", "get", "n-own", '{"base64": "MjE1"}', "keyed.py").stdout == "1\n"
    refused = fresh("state", "get", "n-own", "warm", "keyed.py")
    assert refused.exit_code == 1 and "neither the text nor the JSON 'warm' is a value of Celsius()" in refused.stderr
    assert "mistake in Headrace" not in refused.stderr


def test_get_of_nothing_ends_with_1(headrace: Run) -> None:
    result = headrace("state", "get", "per-shop", "nobody", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["entries"] == []
    assert result.stderr == "store 'per-shop' has nothing under key 'nobody'\n"


def test_dump_writes_parquet(headrace: Run, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    file = tmp_path / "items.parquet"
    result = headrace("state", "dump", "per-item", "--output", str(file), "--json")
    assert result.exit_code == 0, result.output
    table = pq.read_table(file)
    assert table.num_rows == json.loads(result.stdout)["entries"] == sum(map(len, windows_of_items().values()))
    assert table.column_names == ["key", "window_start", "window_end", "value"]
    assert [path.name for path in tmp_path.iterdir()] == ["items.parquet"]


def test_dump_into_a_folder_that_is_not_there_says_so(headrace: Run, tmp_path: Path) -> None:
    result = headrace("state", "dump", "per-shop", "-o", str(tmp_path / "no" / "x.parquet"))
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr
