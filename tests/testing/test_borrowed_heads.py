"""Rounds of virtual tasks whose state is in files of the whole task that they were: read, added to, and replaced in turns."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import headrace as hr
from headrace.client.state_reader import entries_of
from headrace.codec.documents import decode, encode
from headrace.core.keys.compaction import borrowed
from headrace.core.keys.heads import head_of
from headrace.core.keys.key_layout import slots_of
from headrace.model.checkpoint import Checkpoint, Head
from headrace.model.tasks import TaskName
from headrace.state.files import StateFiles
from headrace.testing import Driver

FACTOR = 4
KEYS = [f"k{number}" for number in range(40)]
RATES = [f"rate{number}" for number in range(12)]
GLOBAL = "prices"


def app_of(factor: int) -> hr.App:
    """Counts per key, joined with a table that is whole in every task, and each count once an hour."""
    app = hr.App("borrowed", elasticity_factor=factor)
    prices = app.global_table("prices", key=hr.String(), value=hr.Long(), store=GLOBAL)
    counts = app.stream("in", key=hr.String(), value=hr.String()).group_by_key().count(store="counts")
    app.stream("in", key=hr.String(), value=hr.String()).drop_duplicates(within="1 hour", name="once").join(
        prices, lambda record, price: price, key=lambda record: record.value, value=hr.Long()
    ).to("priced")
    counts.to_stream().to("counted")
    return app


def checkpoints_in(folder: Path) -> dict[TaskName, Checkpoint]:
    with closing(sqlite3.connect(folder / "log" / "catalog.sqlite")) as catalog:
        texts = catalog.execute("SELECT checkpoint FROM checkpoints").fetchall()
    found = [decode(Checkpoint, text, "checkpoint") for (text,) in texts]
    return {checkpoint.task: checkpoint for checkpoint in found}


def put_heads(folder: Path, heads: Mapping[TaskName, Head | None]) -> None:
    with closing(sqlite3.connect(folder / "log" / "catalog.sqlite")) as catalog, catalog:
        for task, checkpoint in checkpoints_in(folder).items():
            text = encode(replace(checkpoint, head=heads[task])).decode()
            catalog.execute("UPDATE checkpoints SET checkpoint = ? WHERE task = ?", (text, str(task)))


def send_all(driver: Driver, at_us: int) -> None:
    for number, key in enumerate(KEYS):
        driver.send("in", key, RATES[number % len(RATES)], at=at_us)
    driver.run()


def begin(folder: Path, factor: int) -> None:
    with Driver(app_of(factor), directory=folder) as driver:
        for number, rate in enumerate(RATES):
            driver.send("prices", rate, number)
        driver.run()
        send_all(driver, 0)
        assert driver.store("counts").all() == dict.fromkeys(KEYS, 1)


def test_rounds_on_files_of_the_whole_task(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    begin(whole, 1)
    begin(cut, FACTOR)
    (parent,) = [checkpoint.head for checkpoint in checkpoints_in(whole).values()]
    assert parent is not None
    assert parent.slots is None
    tasks = checkpoints_in(cut)
    heads = {task: head_of([parent], slots_of(task.bucket), (GLOBAL,)) for task in tasks}
    put_heads(cut, heads)
    shutil.copytree(whole / "state", cut / "state", dirs_exist_ok=True)
    left = []
    with Driver(app_of(FACTOR), directory=cut) as driver:
        assert driver.store("counts").all() == dict.fromkeys(KEYS, 1)
        for turn in range(2, 9):
            send_all(driver, turn * 60_000_000)
            assert driver.store("counts").all() == dict.fromkeys(KEYS, turn)
            assert driver.read("priced") == [], "all were there within the hour, and are known to have been"
            found = [checkpoint.head for checkpoint in checkpoints_in(cut).values()]
            left.append(sum(bool(head and borrowed(head)) for head in found))
        assert left == sorted(left, reverse=True)
        assert all(before - after <= 2 for before, after in zip([FACTOR, *left], left, strict=False)), "one in a round"
        assert left[-1] == 0
        for number, rate in enumerate(RATES):
            driver.send("prices", rate, 100 + number)
        driver.run()
        send_all(driver, 4 * 3_600_000_000)
        send_all(driver, 6 * 3_600_000_000)
        prices = sorted(record.value for record in driver.read("priced"))
        assert prices == sorted([100 + number % len(RATES) for number in range(len(KEYS))] * 2)
        assert driver.counters["entries_expired"] >= len(KEYS)
    merged = head_of([checkpoint.head for checkpoint in checkpoints_in(cut).values()], None, (GLOBAL,))
    files = StateFiles(str(cut / "state"))
    assert merged is not None
    assert len(dict(entries_of([merged], files, "counts"))) == len(KEYS)
    assert len(dict(entries_of([merged], files, GLOBAL))) == len(RATES)


def test_a_merged_head_is_the_state_of_a_whole_task(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    begin(whole, 1)
    begin(cut, FACTOR)
    parts = [checkpoint.head for checkpoint in checkpoints_in(cut).values()]
    assert {head.slots for head in parts if head} == {slots_of(task.bucket) for task in checkpoints_in(cut)}
    (task,) = checkpoints_in(whole)
    put_heads(whole, {task: head_of(parts, None, (GLOBAL,))})
    shutil.copytree(cut / "state", whole / "state", dirs_exist_ok=True)
    with Driver(app_of(1), directory=whole) as driver:
        for turn in range(2, 5):
            send_all(driver, turn * 60_000_000)
            assert driver.store("counts").all() == dict.fromkeys(KEYS, turn)
            assert driver.read("priced") == []
            (head,) = [checkpoint.head for checkpoint in checkpoints_in(whole).values()]
            assert head is not None
            assert not borrowed(head)
