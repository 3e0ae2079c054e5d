"""An elasticity factor from the first start: virtual tasks give what whole tasks give, and keep to their key buckets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
import xxhash

import headrace as hr
from headrace.client.startpoints import Startpoints
from headrace.errors import StateError
from headrace.testing import Driver

FACTORS = (2, 4, 16)


def counting(factor: int, name: str = "elastic", **keys: Any) -> hr.App:
    app = hr.App(name, elasticity_factor=factor, **keys)
    rows = app.stream("in", key=hr.Bytes(), value=hr.Json())
    rows.group_by_key().count(store="counts").to_stream(emit="each").to("out", value=hr.Long())
    return app


def bucket_of(key: bytes | None, offset: int, factor: int) -> int:
    data = offset.to_bytes(8, "little") if key is None else key
    return xxhash.xxh64(data, seed=42).intdigest() % factor


def stored_positions(folder: Path) -> dict[str, dict[str, int]]:
    """Per task the positions of its checkpoint, as they are stored."""
    import sqlite3

    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.read_bytes()[:15] == b"SQLite format 3":
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
                for (table,) in db.execute("select name from sqlite_master where type = 'table'").fetchall():
                    for row in db.execute(f'select * from "{table}"').fetchall():
                        for cell in row:
                            text = cell.encode() if isinstance(cell, str) else cell
                            document = msgspec.json.decode(text) if isinstance(text, bytes) and text[:1] == b"{" else {}
                            if {"task", "positions"} <= document.keys():
                                found[document["task"]] = document["positions"]
    return found


@pytest.mark.parametrize("factor", FACTORS)
def test_every_record_is_counted_once_over_restarts_and_positions_carry_buckets(tmp_path: Path, factor: int) -> None:
    keys = [b"k%d" % number for number in range(8)]
    for turn in range(3):
        with Driver(counting(factor), directory=tmp_path) as driver:
            for number in range(40):
                driver.send("in", keys[number % 8], {"n": number})
            driver.run()
            assert {key: driver.store("counts").get(key) for key in keys} == dict.fromkeys(keys, 5 * (turn + 1))
            found = [(record.key, record.value) for record in driver.read("out", key=hr.Bytes())]
            counts = range(1, 5 * turn + 6)
            assert Counter(found) == Counter((key, count) for key in keys for count in counts)
    assert stored_positions(tmp_path) == {
        f"Partition_0-{bucket}-{factor}": {f"log.in.0/{bucket}": 120} for bucket in range(factor)
    }


HOSTILE = (
    *(b"x" * length for length in (0, 1, 31, 32, 33, 437, 438, 5_000)),
    *(b"%d" % number for number in range(20)),
    bytes(range(256)),
    "schlüssel".encode(),
)


def test_keys_of_all_lengths_come_to_the_task_of_their_bucket() -> None:
    """As the tasks see them: each Processor notes its task's place in its store."""
    seen: list[tuple[str, bytes | None, int]] = []

    class Noting(hr.Processor[Any, Any, Any, Any]):
        def init(self, context: Any) -> None:
            self.task = str(context.task)

        def process(self, record: Any) -> None:
            seen.append((self.task, record.key, record.offset))

    app = hr.App("hostile", elasticity_factor=4)
    app.stream("in", key=hr.Bytes(), value=hr.Json()).process(Noting, name="noting")
    with Driver(app, partitions=2) as driver:
        for key in (*HOSTILE, None, None, None, None, None, None):
            for _ in range(3):
                driver.send("in", key, {})
        driver.run()
    assert len(seen) == 3 * (len(HOSTILE) + 6)
    for task, key, offset in seen:
        assert int(task.split("-")[-2]) == bucket_of(key, offset, 4), (task, key)
    assert len({task for task, *_ in seen}) == 8


def test_what_fails_is_a_dead_letter_once() -> None:
    app = hr.App("failing", elasticity_factor=4, dead_letter_stream="dead")

    def checked(record: Any) -> Any:
        if record.value["n"] % 5 == 0:
            raise ValueError("a five")
        return record.value

    rows = app.stream("in", key=hr.String(), value=hr.Json())
    rows.map_values(checked, value=hr.Json()).to("out")
    with Driver(app) as driver:
        for number in range(40):
            driver.send("in", f"k{number % 8}", {"n": number})
            driver.send("in", f"k{number % 8}".encode(), b"{no json", raw=True)
        driver.run()
        dead = driver.read("dead", value=hr.Bytes())
        kinds = Counter(dict(record.headers)["headrace.error-class"] for record in dead)
        assert kinds == {b"ValueError": 8, b"SerdeError": 40}
        assert len(driver.read("out")) == 32


class Other(hr.Processor[Any, Any, Any, Any]):
    """Makes state under keys that are not those of its records, in a punctuation: only there it may."""

    stores: ClassVar = [hr.KeyValueStore("others", value=hr.Long())]

    def init(self, context: Any) -> None:
        self.context, self.keys = context, list[str]()
        context.schedule("1 second", self.tell, clock="wall")

    def process(self, record: Any) -> None:
        self.keys.append(record.key)

    def tell(self, at_us: int) -> None:
        for key in self.keys:
            self.context.forward(key=f"{key}-other", value={})


def test_state_of_a_key_of_another_bucket_is_refused_and_at_factor_1_is_not() -> None:
    def renaming(factor: int) -> hr.App:
        app = hr.App("renaming", elasticity_factor=factor)
        rows = app.stream("in", key=hr.String(), value=hr.Json())
        behind = rows.process(Other, name="renamed", value=hr.Json())
        behind.group_by_key().count(store="counts").to_stream().to("out", value=hr.Long())
        return app

    with Driver(renaming(1)) as driver:
        for number in range(16):
            driver.send("in", f"k{number}", {})
        driver.run()
        driver.advance("2 seconds")
        driver.run()
        assert len(driver.read("out")) == 16
    with Driver(renaming(4)) as driver:
        for number in range(16):
            driver.send("in", f"k{number}", {})
        refused = r"task .*-4: operator .*, in store 'counts', has changed state under key b'k\d+-other', which is not of"
        driver.run()
        driver.advance("2 seconds")
        with pytest.raises(StateError, match=refused):
            driver.run()


def two_parts(**factors: int) -> hr.App:
    """Counts by key, and by value behind a repartition stream."""
    app = hr.App("parts", config={f"elasticity_factor.{title.replace('_', '-')}": factor for title, factor in factors.items()})
    rows = app.stream("in", key=hr.String(), value=hr.String())
    rows.group_by_key().count(store="keys")
    rows.group_by(lambda record: record.value, hr.Repartitioned(name="by-value"), key=hr.String()).count(store="values")
    return app


def test_each_sub_topology_has_its_own_factor(tmp_path: Path) -> None:
    for turn in (1, 2):
        with Driver(two_parts(by_value=4), directory=tmp_path) as driver:
            for number in range(60):
                driver.send("in", f"k{number % 6}", f"v{number % 10}")
            driver.run()
            assert [driver.store("keys").get(f"k{number}") for number in range(6)] == [10 * turn] * 6
            assert [driver.store("values").get(f"v{number}") for number in range(10)] == [6 * turn] * 10
    assert set(stored_positions(tmp_path)) == {"Partition_0", *(f"by-value/Partition_0-{bucket}-4" for bucket in range(4))}


def test_the_factor_of_a_sub_topology_that_is_not_there_is_refused() -> None:
    with pytest.raises(hr.ConfigError, match=r"elasticity_factor.by-values .*there is no sub-topology 'by-values'"):
        Driver(two_parts(by_values=2)).open()


@pytest.mark.parametrize("factor", FACTORS)
def test_all_siblings_close_windows_together_also_those_without_records(factor: int) -> None:
    app = hr.App("windows", elasticity_factor=factor)
    rows = app.stream("in", key=hr.String(), value=hr.Json())
    windows = rows.group_by_key().windowed_by(hr.Tumbling("1 hour", grace="0 seconds"))
    windows.count(store="hours").suppress(hr.until_window_closes()).to_stream().to("closed", value=hr.Long())
    with Driver(app) as driver:
        for number in range(32):
            driver.send("in", f"k{number}", {}, at="2026-01-01T00:10:00Z")
        driver.run()
        assert driver.read("closed") == []
        driver.send("in", "k0", {}, at="2026-01-01T02:00:00Z")  # for one bucket alone
        driver.run()
        driver.send("in", "k0", {}, at="2026-01-01T02:00:01Z")
        driver.run()
        assert len(driver.read("closed")) == 32


def tasks_of(driver: Driver) -> Sequence[str]:
    return [str(task.name) for task in driver._prepared.plan.model.tasks]


def test_an_expansion_keeps_keys_with_their_tasks(tmp_path: Path) -> None:
    keys = [b"k%d" % number for number in range(20)]
    with Driver(counting(4), directory=tmp_path, partitions=2) as driver:
        for number in range(100):
            driver.send("in", keys[number % 20], {})
        driver.run()
        before = tasks_of(driver)
        driver.expand("in", 4)
        for number in range(100):
            driver.send("in", keys[number % 20], {})
        driver.run()
        assert tasks_of(driver) == before
        assert {key: driver.store("counts").get(key) for key in keys} == dict.fromkeys(keys, 10)


def test_a_startpoint_moves_all_siblings_or_the_one_that_it_names() -> None:
    with Driver(counting(4)) as driver:
        for number in range(40):
            driver.send("in", b"k%d" % (number % 8), {})
        driver.run()
        driver.read("out")
        driver.startpoint("in", "earliest")
        driver.run()
        assert sorted(Counter(record.key for record in driver.read("out", key=hr.Bytes())).values()) == [5] * 8
        one = next(key for key in (b"k%d" % number for number in range(8)) if bucket_of(key, 0, 4) == 2)
        driver.startpoint("in", "earliest", task="Partition_0-2-4")
        driver.run()
        again = {record.key for record in driver.read("out", key=hr.Bytes())}
        assert one in again
        assert {bucket_of(key, 0, 4) for key in again} == {2}


def test_exported_positions_are_of_whole_partitions() -> None:
    with Driver(counting(4)) as driver:
        for number in range(40):
            driver.send("in", b"k%d" % (number % 8), {})
        driver.run()
        with Startpoints(driver.app.name, driver._config(), driver.app.topology(), driver._system) as points:
            exported = points.export_positions()
            assert [(one.stream, one.partition, one.offset, one.task) for one in exported.positions] == [("in", 0, 40, None)]
            assert points.preview_import(exported).entries == ()
            for number in range(40):
                driver.send("in", b"k%d" % (number % 8), {})
            driver.run()
            points.write(points.preview_import(exported))
        driver.run()
        counts = [driver.store("counts").get(b"k%d" % number) for number in range(8)]
        assert counts == [15] * 8, "five of each key were counted again"


def test_a_virtual_task_that_is_set_back_by_a_day_is_not_late_by_its_siblings() -> None:
    app = hr.App("late", elasticity_factor=4)
    rows = app.stream("in", key=hr.String(), value=hr.Json())
    hours = rows.group_by_key().windowed_by(hr.Tumbling("1 hour", grace="0 seconds")).count(store="hours")
    hours.to_stream(emit="each").to("out", value=hr.Long())
    with Driver(app, overrides=["max_records_per_round=24"]) as driver:
        for hour in range(48):
            for number in range(8):
                driver.send("in", f"k{number}", {}, at=1_700_000_000_000_000 + hour * 3_600_000_000)
            driver.run()
        driver.read("out")
        driver.startpoint("in", "earliest", task="Partition_0-1-4")
        driver.run()
        mine = [f"k{number}" for number in range(8) if bucket_of(b"k%d" % number, 0, 4) == 1]
        assert driver.counters.get("late_records", 0) == 0
        assert Counter(record.key.key for record in driver.read("out")) == Counter(dict.fromkeys(mine, 48))
