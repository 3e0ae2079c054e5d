"""State in the life of a job: damaged files stop it by name, stores that are gone go, long keys are keys like any other."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace.adapters.lmdb import close_idle, opening
from headrace.errors import HeadraceError, IncompatibleChangeError, StateError
from headrace.testing import Driver
from headrace.worker.state import task_state
from state.tables import table_in
from support.world import caught_up

LONG = ["k" * 1_000 + str(number) for number in range(4)]
KEYS = ["a", "b", *LONG]


def counting(*, extra: bool = False) -> hr.App:
    """Counts per key; `extra`: and keeps the last value in a second store of the same tasks."""
    app = hr.App("damage")
    stream = app.stream("in", key=hr.String(), value=hr.Long())
    stream.group_by_key().count(store="counts").to_stream().to("out")
    if extra:
        stream.group_by_key().reduce(lambda old, new: new, store="last")
    return app


def send(driver: Driver, number: int) -> None:
    for key in KEYS:
        driver.send("in", key, number)
    driver.run()


def lose_local_stores(root: Path) -> None:
    close_idle()
    shutil.rmtree(root / "stores")


def dbs_of(driver: Driver, root: Path) -> Counter[str]:
    """Database to number of entries in the state that is committed, restored from its files alone."""
    found: Counter[str] = Counter()
    for rounds in driver._opened.runners:
        for checkpoint in rounds.checkpoints.values():
            assert checkpoint.head is not None
            files = type(driver._held.preparer.files)(str(root / "state"))
            entries: dict[tuple[str, bytes], bytes] = {}
            for file in checkpoint.head.files:
                for row in table_in(files, file).to_pylist():
                    entries[row["db"], row["key"]] = row["value"]
            found.update(db for (db, _), value in entries.items() if value is not None)
    return found


# --- damaged files --------------------------------------------------------------------------------------------------

DAMAGES: dict[str, Callable[[Path, bytes], object]] = {
    "missing": lambda path, data: path.unlink(),
    "truncated": lambda path, data: path.write_bytes(data[: len(data) // 2]),
    "emptied": lambda path, data: path.write_bytes(b""),
    "flipped": lambda path, data: path.write_bytes(data[:99] + bytes([data[99] ^ 1]) + data[100:]),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", [0, -1])
def test_a_damaged_state_file_stops_the_job_by_name_and_nothing_is_lost(tmp_path: Path, damage: str, which: int) -> None:
    with Driver(counting(), directory=tmp_path) as driver:
        for number in range(3):
            send(driver, number)
    lose_local_stores(tmp_path)
    path = sorted((tmp_path / "state").rglob("*.arrow"), key=lambda path: int(path.name.partition("-")[0]))[which]
    data = path.read_bytes()
    DAMAGES[damage](path, data)
    with Driver(counting(), directory=tmp_path) as driver:
        for _ in range(2):  # trying again is no way past it
            with pytest.raises(HeadraceError) as caught:
                send(driver, 3)
            text = f"{caught.value.message} {caught.value.hint}"
            assert str(path.relative_to(tmp_path / "state")) in text and "restore the file from a copy" in text
        assert all(record.value <= 3 for record in driver.read("out"))
        path.write_bytes(data)
        driver.run()
        assert {key: driver.store("counts").get(key) for key in KEYS} == dict.fromkeys(KEYS, 5)


def test_a_job_in_threads_ends_at_once_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Driver(counting(), directory=tmp_path) as driver:
        send(driver, 0)
        driver.send("in", "a", 1)  # which is written when the driver closes
    lose_local_stores(tmp_path)
    path = next((tmp_path / "state").rglob("*.arrow"))
    path.unlink()
    for name, value in {"SYSTEM": f"log:{tmp_path / 'log'}", "STATE_URI": tmp_path / "state"}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", str(value))
    monkeypatch.setenv("HEADRACE_LOCAL_STORE_DIR", str(tmp_path / "stores"))
    with pytest.raises(StateError, match=path.name) as caught:
        caught_up(counting())
    assert "restore the file from a copy" in str(caught.value.hint)


def test_a_file_that_goes_while_the_job_runs_is_named_at_the_commit(tmp_path: Path) -> None:
    """The local store still has all of it, but what would be committed could not be restored."""
    with Driver(counting(), directory=tmp_path) as driver:
        send(driver, 0)
        send(driver, 1)
        path = next((tmp_path / "state").rglob("1-*.arrow"))
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(HeadraceError, match=path.name) as caught:
            send(driver, 2)
        assert caught.value.hint
        path.write_bytes(data)
        assert driver.store("counts").get("a") == 2
        driver.run()
        assert driver.store("counts").get("a") == 3


# --- stores that are gone -------------------------------------------------------------------------------------------


def test_the_state_of_a_store_that_is_gone_is_deleted_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_state, "DROPPED_MAX", len(KEYS) - 1)
    with Driver(counting(extra=True), directory=tmp_path) as driver:
        send(driver, 0)
        assert dbs_of(driver, tmp_path) == dict.fromkeys(("counts", "last", "last~times"), len(KEYS))
    with Driver(counting(), directory=tmp_path) as driver:
        driver.run()
        assert dbs_of(driver, tmp_path)["last"] == len(KEYS)  # nothing to commit, nothing written
        send(driver, 1)
        assert dbs_of(driver, tmp_path) == {"counts": len(KEYS), "last": 1, "last~times": len(KEYS)}
        send(driver, 2)
        assert dbs_of(driver, tmp_path) == {"counts": len(KEYS), "last~times": 2}
        send(driver, 3)
        assert dbs_of(driver, tmp_path) == {"counts": len(KEYS)}
        monkeypatch.setattr("headrace.worker.state.folding.fold_start", lambda *given: 0)
        send(driver, 4)
        snapshot = next((tmp_path / "state").rglob("4-*.arrow"), None)
        assert snapshot is not None
        assert driver.store("counts").get(LONG[0]) == 5
    with pytest.raises(IncompatibleChangeError, match="'last' was removed from the application before"):
        Driver(counting(extra=True), directory=tmp_path).open()


# --- the end of a run -----------------------------------------------------------------------------------------------


def test_the_stores_of_a_run_that_ended_in_order_are_not_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned: list[str] = []
    check = opening.check_entries
    monkeypatch.setattr(opening, "check_entries", lambda env: (scanned.append(env.folder.name), check(env)))
    for number in range(3):
        with Driver(counting(), directory=tmp_path, partitions=2) as driver:
            send(driver, number)
        marks = list((tmp_path / "stores").rglob("mark.json"))
        assert len(marks) == 2 and all(json.loads(mark.read_text())["content"] for mark in marks)
    assert scanned == []
    with Driver(counting(), directory=tmp_path, partitions=2) as driver:
        send(driver, 3)
        assert not any(json.loads(mark.read_text())["content"] for mark in marks)
        assert driver.store("counts").get("a") == 4


# --- long keys ------------------------------------------------------------------------------------------------------


class Keeps(hr.Processor):
    """Keeps sub-keys, times and a timer per key."""

    stores = (
        hr.KeyValueStore("timers", value=hr.Long()),  # the name of something of ours, once
        hr.KeyValueStore("expiry", value=hr.Long(), ttl="1 hour"),
        hr.WindowStore("times", value=hr.Long(), retention="1 day"),
    )

    def init(self, context):
        self.context = context

    def process(self, record):
        for name in ("timers", "expiry"):
            self.context.store(name).put(record.value)
            self.context.store(name).put(record.value + 1, sub="next")
        self.context.store("times").put(record.value, record.timestamp_us)
        self.context.timer("late", after="1 minute")
        found = self.context.store("times").range(0, record.timestamp_us + 1)
        self.context.forward(value=[value for _, value in found])

    def on_timer(self, timer):
        self.context.forward(value=["timer"])


def keeping() -> hr.App:
    app = hr.App("keeping")
    app.stream("in", key=hr.String(), value=hr.Long()).process(Keeps, key=hr.String(), value=hr.Json()).to("out")
    return app


def test_long_keys_have_sub_keys_windows_timers_and_expiry(tmp_path: Path) -> None:
    minute = 60_000_000
    with Driver(keeping(), directory=tmp_path) as driver:
        for number in range(3):
            for key in KEYS:
                driver.send("in", key, number, at=number * minute)
            driver.run()
        out: dict[str, list] = {key: [r.value for r in driver.read("out", from_start=True) if r.key == key] for key in KEYS}
        assert all(sorted(map(str, found)) == sorted(map(str, out["a"])) for found in out.values())
        assert out[LONG[0]] == [[0], [0, 1], [0, 1, 2]]
        assert driver.store("timers").all() == {
            **dict.fromkeys(KEYS, 2),
            **{(key, b"next"): 3 for key in KEYS},
        }
        assert driver.store("times").all() == {(key, n * minute): n for key in KEYS for n in range(3)}
        assert driver.store("expiry").get(LONG[1], sub="next") == 3
        driver.send("in", "a", 9, at=26 * 60 * minute)
        driver.run()
        driver.send("in", "a", 9, at=26 * 60 * minute)
        driver.run()
        assert [r.key for r in driver.read("out", from_start=True) if r.value == ["timer"]].count(LONG[0]) == 1
        assert set(driver.store("times").all()) == {("a", 26 * 60 * minute)}
        assert set(driver.store("expiry").all()) == {"a", ("a", b"next")}
        assert driver.store("timers").get(LONG[2]) == 2


def test_a_job_with_long_keys_goes_on_from_its_files(tmp_path: Path) -> None:
    for number in range(3):
        with Driver(counting(), directory=tmp_path) as driver:
            send(driver, number)
            assert driver.store("counts").all() == dict.fromkeys(KEYS, number + 1)
        lose_local_stores(tmp_path)


def test_state_with_long_keys_is_read_from_outside_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = counting()
    with Driver(app, directory=tmp_path) as driver:
        send(driver, 0)
    monkeypatch.setenv("HEADRACE_STATE_URI", str(tmp_path / "state"))
    monkeypatch.setenv("HEADRACE_SYSTEM", f"log:{tmp_path / 'log'}")
    state = app.state("counts")
    assert {key: state.get(key) for key in KEYS} == dict.fromkeys(KEYS, 1)
    assert state.get("k" * 1_000) is None
    table = state.to_df()
    assert dict(zip(table["key"], table["value"], strict=True)) == dict.fromkeys(KEYS, 1)


