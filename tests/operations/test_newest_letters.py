"""The dead letters that an operator sees: the newest open ones of however many, and how many there are altogether."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import headrace as hr
from headrace import wiring
from headrace.adapters.http.guard import Guard
from headrace.adapters.http.operator_pages import operator_pages
from headrace.cli.operator_view import OperatorView
from headrace.cli.targets import Target
from headrace.client.letter_index import LetterIndex
from headrace.client.letters import DeadLetter, LetterFilter
from headrace.client.resetting import Reset
from headrace.config.loading import load_config
from headrace.wiring.job_endpoint import LOOPBACK
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

T0_US = 1_356_998_400_000_000  # 2013


class Shop:
    """A job whose every record fails, by the operator that its value names; each `send` is a run of it."""

    def __init__(self, folder: Path, partitions: int = 1) -> None:
        self.folder, self.url = folder, f"log:{folder / 'log'}"
        self.log = hr.open_system(self.url)
        self.log.create_stream("in", partitions)
        self.log.create_stream("bad", partitions)
        places = {"local_store_dir": f"{folder}/stores", "state_uri": f"{folder}/state", "dead_letter_stream": "bad"}
        self.app = hr.App("shop", config={"system": self.url, **places})
        given = self.app.stream("in", key=hr.String(), value=hr.String())
        given.filter(lambda one: one.value != "first" or 1 // 0, name="first").filter(lambda one: int(one.value), name="second")

    def send(self, *keys: str, value: str = "second", at_us: int = T0_US, partition: int = 0) -> None:
        records = [hr.Record(key, value, at_us, (), partition) for key in keys]
        self.log.produce("in", records, key=hr.String(), value=hr.String())
        wiring.start(self.app, until="caught-up", engine=InlineEngine(run_container)).wait(30)

    def letters(self) -> Any:
        return hr.dead_letters(self.app)

    def retry(self, *chosen: DeadLetter) -> None:
        with self.letters() as letters:
            letters.retry(chosen)
        wiring.start(self.app, until="caught-up", engine=InlineEngine(run_container)).wait(30)

    def target(self, *, with_file: bool = True, **keys: str) -> Target:
        if with_file:
            return Target("shop", wiring.config_of(self.app), self.app)
        sets = [f"{key}={value}" for key, value in {"system": self.url, **keys}.items()]
        return Target("shop", load_config(self.folder, {}, {}, sets))


def client_of(target: Target) -> TestClient:
    return TestClient(Guard(operator_pages(OperatorView(target))[0], LOOPBACK), "http://localhost")


def shown(target: Target, query: str = "") -> Any:
    client = client_of(target)
    answer = client.get(f"/api/dead-letters?{query}") if query else client.get("/api/overview")
    assert answer.status_code == 200, answer.text
    return answer.json() if query else answer.json()["dead_letters"]


def keys_of(found: Any) -> list[str]:
    return [one["key"] for one in found["letters"]]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_old_letters_are_shown_where_newer_ones_are_dealt_with(shop: Shop) -> None:
    shop.send(*(f"old{number}" for number in range(34)))
    shop.send(*(f"new{number}" for number in range(120)))
    with shop.letters() as letters:
        letters.discard([one for one in letters.list() if (one.key or b"").startswith(b"new")])
        assert [one.key for one in letters.newest(2)] == [b"old33", b"old32"]
    found = shown(shop.target())
    assert (found["open"], found["matching"], len(found["letters"]), found["why_not_whole"]) == (34, 34, 34, None)
    assert keys_of(found)[:2] == ["old33", "old32"]


def test_more_than_are_shown_are_counted(shop: Shop) -> None:
    shop.send(*(f"k{number}" for number in range(120)))
    found = shown(shop.target())
    assert (found["open"], len(found["letters"])) == (120, 50) and keys_of(found)[0] == "k119"


def test_the_last_that_failed_is_on_top_whatever_the_time_of_its_record_and_its_partition(tmp_path: Path) -> None:
    shop = Shop(tmp_path, 2)
    shop.send(*(f"k{number}" for number in range(40)), at_us=T0_US + 10**12)
    shop.send("other", partition=1)
    (last, *others) = shown(shop.target())["letters"]
    assert last["key"] == "other" and len(others) == 40
    for partition in "01":
        offsets = [int(one["id"].partition(":")[2]) for one in others if one["id"].startswith(partition)]
        assert len(offsets) > 10 and offsets == sorted(offsets, reverse=True), "offsets are numbers"
    with shop.letters() as letters:
        chosen = letters.get("0:9")
    shop.retry(chosen)
    (again, before, *_) = shown(shop.target())["letters"]
    assert (again["key"], again["tries"], before["key"]) == (str(chosen.key, "utf-8"), 1, "other")
    assert again["failed_at"] > before["failed_at"] > again["when"]


def test_the_api_filters_by_reason_operator_stream_and_time(shop: Shop) -> None:
    shop.send("a", "b", value="first")
    shop.send("c", at_us=T0_US + 3_600_000_000)
    target = shop.target()
    chosen = {
        "reason=ZeroDivisionError": ["b", "a"],
        "reason=invalid+literal": ["c"],
        "operator=first": ["b", "a"],
        "stream=in": ["c", "b", "a"],
        "stream=elsewhere": [],
        "since=2013-01-01T00:30:00Z": ["c"],
        "until=2013-01-01T00:30:00Z&operator=first": ["b", "a"],
    }
    for query, keys in chosen.items():
        found = shown(target, query)
        assert (keys_of(found), found["matching"], found["open"]) == (keys, len(keys), 3), query
    assert client_of(target).get("/api/dead-letters?since=yesterday").status_code == 400


def test_without_the_file_of_the_application_it_is_said_what_is_missing(shop: Shop) -> None:
    shop.send("a")
    found = shown(shop.target(with_file=False))
    assert found["letters"] == [] and "name the application's file, or --set dead_letter_stream" in found["problem"]
    assert keys_of(shown(shop.target(with_file=False, dead_letter_stream="bad"))) == ["a"]
    missing = shown(shop.target(with_file=False, dead_letter_stream="nowhere"))
    assert missing["letters"] == [] and "nowhere" in missing["problem"]


def test_they_are_shown_after_a_reset_and_before_a_first_run(shop: Shop) -> None:
    assert shown(shop.target())["letters"] == []
    shop.send("a", "b")
    with Reset("shop", wiring.config_of(shop.app), shop.app.topology()) as resetting:
        resetting.preview()
        resetting.forget()
    overview = client_of(shop.target()).get("/api/overview").json()
    assert "has not run there yet" in overview["problem"] and keys_of(overview["dead_letters"]) == ["b", "a"]


def test_each_look_reads_what_has_come_and_forgets_what_is_dealt_with(shop: Shop) -> None:
    index, every = LetterIndex(read_max=4), LetterFilter()
    shop.send(*"abcdef")
    with shop.letters() as letters:
        index.look(letters)
        assert index.found(every, 9).open == 4 and "still being read" in index.found(every, 9).why_not_whole
        index.look(letters)
        assert (index.found(every, 9).open, index.found(every, 9).why_not_whole) == (6, "")
        letters.discard([letters.get("0:1"), letters.get("0:5")])
        index.look(letters)
        assert [one.key for one in index.found(every, 9).letters] == [b"e", b"d", b"c", b"a"]
        assert index.found(every, 2).matching == 4
        shop.log.purge("bad", {0: 3})  # a, c and the mark of b are of no letters that are there
        index.look(letters)
        assert [one.key for one in index.found(every, 9).letters] == [b"e", b"d"] and index.found(every, 9).open == 2
    shop.log.delete_stream("bad")
    shop.log.create_stream("bad", 1)
    with shop.letters() as letters:
        index.look(letters)
        assert index.found(every, 9).open == 0


def test_of_more_than_it_keeps_the_newest_are_looked_at_and_all_are_counted(shop: Shop) -> None:
    index, every = LetterIndex(kept_bytes_max=5_000), LetterFilter()
    shop.send(*"abcdefgh")
    with shop.letters() as letters:
        index.look(letters)
        found = index.found(every, 9)
        assert found.open == 8 and found.letters[0].key == b"h" and found.matching < 5
        assert f"only the newest {found.matching}" in found.why_not_whole
        letters.discard([letters.get("0:0"), letters.get("0:7")])
        index.look(letters)
        assert index.found(every, 9).open == 6 and index.found(every, 9).letters[0].key == b"g"


def test_a_letter_of_an_older_version_comes_after_those_that_say_when_they_failed() -> None:
    def letter(offset: int, failed_at_us: int | None) -> DeadLetter:
        return DeadLetter(0, offset, "in", 0, 0, "map", "ValueError", "", None, None, None, failed_at_us=failed_at_us)

    made = [letter(10, None), letter(9, None), letter(11, 5), letter(12, 7)]
    assert [one.offset for one in sorted(made, key=lambda one: one.order, reverse=True)] == [12, 11, 10, 9]
