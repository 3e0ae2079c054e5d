"""`headrace startpoint`: what it shows before it writes, what it refuses, and what the job makes of it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import headrace as hr
from cli.shop import SALES, SHOPS, asked
from headrace.cli import previews
from headrace.cli.app_loading import load_app
from headrace.client.startpoint_manager import StartpointManager
from headrace.codec.job_records import FLOWS, STARTPOINTS
from headrace.core.keys.hashing import partition_of
from headrace.driver.planning.job_plan import StartpointRecords
from headrace.model.commits import DriverLease
from headrace.testing import Driver
from support.world import caught_up, started, waited

Run = Callable[..., Any]
END = hr.Startpoint(hr.PositionType.LATEST)
REPARTITION = "shop-per-item-repartition"
FULL = partition_of(b"shop-0", 4)  # a partition with records
BEHIND_FULL = partition_of(b"item-0", 4)  # the same behind the repartition stream
ITEM = next(name for name in (f"x-{number}" for number in range(99)) if partition_of(name.encode(), 4) == BEHIND_FULL)
BEHIND = f"per-item/Partition_{BEHIND_FULL}"
HOLDER = DriverLease("run-1", "another-host", 17, "1@1", "boot", 0)


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody is at the terminal."""
    monkeypatch.setattr(previews, "is_somebody_there", lambda: True)


def work_off() -> None:
    """Run until all is read; the state that it begins with is kept, to go back to."""
    overrides = ["state_version_interval_s=0"]
    caught_up(load_app("shop.py"), overrides=overrides)


@contextmanager
def running() -> Iterator[None]:
    job = started(load_app("shop.py"))
    try:
        yield
    finally:
        job.stop()


def ends() -> dict[int, int]:
    with hr.open_system("log:./data") as system:
        return dict(system.end_offsets("sales"))


def count_of(run: Run, shop: str) -> int:
    (entry,) = json.loads(run("state", "get", "per-shop", shop, "--json").stdout)["entries"]
    return int(entry["value"])


def sell(count: int) -> None:
    """Sales of `ITEM`, all in one partition of the input, and in one behind the repartition stream."""
    with hr.open_system("log:./data") as system:
        system.produce("sales", [("shop-0", {"item": ITEM, "price": 1.0})] * count, key=hr.String(), value=hr.Json())


def repartitioned() -> int:
    """Where the partition of the repartition stream ends that `sell` comes to."""
    with hr.open_system("log:./data") as system:
        return int(system.end_offsets(REPARTITION)[BEHIND_FULL])


def sold(run: Run) -> int:
    """How many sales of `ITEM` are counted behind the repartition stream."""
    entries = json.loads(run("state", "get", "per-item", ITEM, "--json").stdout)["entries"]
    return sum(int(entry["value"]["n"]) for entry in entries)


def listed(run: Run) -> list[dict[str, Any]]:
    return list(json.loads(run("startpoint", "list", "--json").stdout)["startpoints"])


class TestBeforeItWrites:
    def test_it_shows_every_position_the_sums_and_the_stores(self, ran: Run) -> None:
        done = ran("startpoint", "set", "sales", "--earliest")
        assert done.stdout.startswith("application shop: startpoint of stream sales: earliest\n")
        lines = [line.split() for line in done.stdout.splitlines()]
        for row, end in zip(lines[2:6], ends().values(), strict=True):
            assert row[3:] == [str(end), "0", str(end), "0"]
        assert f"{SALES} records are read again, 0 are skipped" in done.stdout
        assert f"state is kept: the {SALES} records that are read again count a second time in aggregates" in done.stdout
        assert "the stores behind it: dearest, history, last, per-item, per-shop" in done.stdout

    def test_nobody_to_be_asked_is_wrong_usage_and_nothing_is_written(self, ran: Run) -> None:
        done = ran("startpoint", "set", "sales", "--earliest")
        assert done.exit_code == 2
        assert "error: standard input is no terminal to confirm this; nothing was written\nhint: add --yes\n" in done.stderr
        assert asked(STARTPOINTS) == []

    def test_json_asks_nobody_but_shows(self, ran: Run, asking: None) -> None:
        done = ran("startpoint", "set", "sales", "--earliest", "--json")
        assert done.exit_code == 2
        shown = json.loads(done.stdout)
        assert (shown["startpoints"], shown["read_again"], shown["skipped"]) == ([], SALES, 0)
        assert shown["stores"] == ["history", "last", "per-shop", "dearest", "per-item"]
        assert asked(STARTPOINTS) == []

    @pytest.mark.parametrize(("answer", "written"), [("n\n", 0), ("\n", 0), ("y\n", 1)])
    def test_what_is_answered_is_done(self, ran: Run, asking: None, answer: str, written: int) -> None:
        done = ran("startpoint", "set", "sales", "--earliest", stdin=answer)
        assert "set 4 startpoints?" in done.stderr
        assert (done.exit_code == 0) == bool(written)
        assert len(asked(STARTPOINTS)) == written

    def test_what_is_skipped_is_counted_and_said(self, ran: Run) -> None:
        with hr.open_system("log:./data") as system:
            system.produce("sales", [("shop-0", {"item": "x", "price": 1.0})] * 5, key=hr.String(), value=hr.Json())
        done = ran("startpoint", "set", "sales", "--latest", "--partition", str(FULL))
        assert "0 records are read again, 5 are skipped" in done.stdout
        assert "state is kept: the 5 records that are skipped never come to them" in done.stdout

    def test_stores_are_those_of_the_topology_where_the_file_is_at_hand(self, ran: Run) -> None:
        by_name = json.loads(ran("startpoint", "set", "per-item", "--earliest", "--json").stdout)
        assert (by_name["stores"], by_name["stores_are_certain"]) == (["dearest", "per-item"], True)
        by_file = json.loads(ran("startpoint", "set", "per-item", "shop.py", "--earliest", "--json").stdout)
        assert by_file["stores"] == ["dearest", "per-item"]
        assert {move["stream"] for move in by_file["moves"]} == {REPARTITION}

    def test_times_that_mean_the_end_are_said_to(self, ran: Run) -> None:
        future = ran("startpoint", "set", "sales", "--time", "2093-01-01T00:00:00Z")
        assert "note: time 2093-01-01T00:00:00Z is in the future: the end offsets are used" in future.stdout
        past = ran("startpoint", "set", "sales", "--ago", "2 hours", "--partition", str(FULL))
        assert f"note: no record at or after this timestamp in sales/{FULL}; the end offset is used" in past.stdout

    def test_a_time_means_its_first_record(self, ran: Run) -> None:
        shown = json.loads(ran("startpoint", "set", "sales", "--time", "1970-01-01T01:00:00Z", "--json").stdout)
        assert shown["read_again"] == SALES - 20  # a sale every 3 minutes

    def test_one_that_waits_is_named(self, ran: Run) -> None:
        first = json.loads(ran("startpoint", "set", "sales", "--earliest", "-p", str(FULL), "--yes", "--json").stdout)
        second = ran("startpoint", "set", "sales", "--offset", "1", "-p", str(FULL))
        assert f"note: takes the place of startpoint {first['startpoints'][0]} (earliest), which is waiting" in second.stdout
        other = ran("startpoint", "set", "sales", "--earliest", "-p", str((FULL + 1) % 4))
        assert "takes the place" not in other.stdout

    def test_one_that_is_displaced_already_is_not_named(self, ran: Run) -> None:
        set_ = ("startpoint", "set", "sales", "-p", str(FULL))
        ids = [json.loads(ran(*set_, "--offset", text, "--yes", "--json").stdout)["startpoints"][0] for text in ("1", "2")]
        notes = json.loads(ran(*set_, "--earliest", "--json").stdout)["notes"]
        assert notes == [f"takes the place of startpoint {ids[1]} (offset 2), which is waiting to be picked up"]

    def test_what_a_commit_has_spent_is_named_no_more_and_cannot_be_deleted(
        self, ran: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_ = ("startpoint", "set", "sales", "-p", str(FULL), "--earliest")
        (id_,) = json.loads(ran(*set_, "--yes", "--json").stdout)["startpoints"]
        with monkeypatch.context() as killed:  # behind the commit that spends it, before it is on record
            killed.setattr(StartpointRecords, "settle", lambda *_: ())
            work_off()
        (before,) = listed(ran)
        assert (before["status"], before["changed_at"]) == ("applied", None)
        assert before["detail"] == "applied (not yet recorded by the driver)"
        shown = json.loads(ran(*set_, "--json").stdout)
        assert (shown["read_again"], shown["notes"]) == (ends()[FULL], [])
        assert f"startpoint {id_!r} of log.sales.{FULL} was applied: it" in ran("startpoint", "delete", id_, "--yes").stderr
        assert "deleted 0 startpoints" in ran("startpoint", "delete", "--stream", "sales", "--yes").stdout
        assert listed(ran) == [before]
        work_off()
        (noted,), (again,) = listed(ran), listed(ran)
        assert noted == again and noted["detail"] == f"applied at {noted['changed_at']}"


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (("sale", "--latest"), "application 'shop' reads no stream 'sale'\nhint: did you mean 'sales'?"),
            (("per-shop-out", "--latest"), "application 'shop' reads no stream 'per-shop-out'\nhint: name one that it"),
            (("sales", "--latest", "-p", "4"), "partition 4 of stream 'sales': stream 'sales' has 0 to 3\nhint: give one"),
            (("sales", "--latest", "--task", "Partition_4"), "application 'shop' has no task 'Partition_4'\nhint: did you"),
            (
                ("sales", "--latest", "--task", "per-item/Partition_0"),
                "task 'per-item/Partition_0' of application 'shop' does not read stream 'sales'",
            ),
            (
                ("sales", "--latest", "--task", "Partition_1", "-p", "0"),
                "partition 0 of stream 'sales': task Partition_1 reads 1\nhint: give one of those",
            ),
            (("sales", "--offset", "-1"), "offset -1: expected 0 or more"),
            (("sales", "--time", "2013-06-01"), "--time '2013-06-01': expected a time with its zone"),
            (("sales", "--time", "yesterday"), "--time 'yesterday': expected a time in ISO 8601"),
            (("sales", "--ago", "2 months"), "--ago '2 months': expected a unit of time"),
            (("sales", "--latest", "--state", "drop"), "state 'drop': expected 'keep' or 'rewind'\nhint: keep leaves"),
            (("sales", "--ago", "90000000 days"), "--ago '90000000 days': expected a time that a calendar has, found"),
            (
                ("sales", "--latest", "--application", "shp"),
                "application 'shp' has not run on log:./data yet: it has no positions that could be set\nhint: did you mean",
            ),
        ],
    )
    def test_what_cannot_be_is_refused_before_it_is_written(self, ran: Run, arguments: tuple[str, ...], text: str) -> None:
        done = ran("startpoint", "set", *arguments, "--yes")
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith(f"error: {text}")
        assert asked(STARTPOINTS) == []

    def test_an_offset_that_is_not_there_names_the_range(self, ran: Run) -> None:
        end = ends()[FULL]
        done = ran("startpoint", "set", "sales", "-p", str(FULL), "--offset", str(end + 1), "--yes")
        assert done.stderr.startswith(
            f"error: offset {end + 1} of stream 'sales' partition {FULL} is not there: it holds 0 to {end - 1}"
        )
        empty = next(partition for partition, end in ends().items() if not end)
        done = ran("startpoint", "set", "sales", "-p", str(empty), "--offset", "1", "--yes")
        assert "is not there: it holds nothing, and ends at 0" in done.stderr
        assert asked(STARTPOINTS) == []

    @pytest.mark.parametrize("given", [(), ("--earliest", "--latest"), ("--offset", "0", "--ago", "1 hour")])
    def test_exactly_one_position_is_given(self, ran: Run, given: tuple[str, ...]) -> None:
        done = ran("startpoint", "set", "sales", *given, "--yes")
        assert done.exit_code == 2
        assert "expected one of --earliest" in done.stderr

    @pytest.mark.parametrize("text", ["1_0", "1.0", " 1", "0x1", "\N{ARABIC-INDIC DIGIT ONE}", ""])
    def test_an_offset_is_written_in_digits(self, ran: Run, text: str) -> None:
        done = ran("startpoint", "set", "sales", "-p", str(FULL), "--offset", text, "--yes")
        assert (done.exit_code, asked(STARTPOINTS)) == (2, [])
        assert f"expected a whole number, found {text!r}" in done.stderr

    def test_a_stream_that_was_made_anew_is_another_one(self, ran: Run) -> None:
        with hr.open_system("log:./data") as system:
            system.delete_stream("sales")
            system.create_stream("sales", 4)
        done = ran("startpoint", "set", "sales", "--latest", "--yes")
        assert done.stderr.startswith("error: stream 'sales' was deleted and recreated since application 'shop' last ran")


class TestWhatBecomesOfThem:
    def test_a_stopped_job_begins_there_at_its_next_start(self, ran: Run) -> None:
        done = ran("startpoint", "set", "sales", "shop.py", "--earliest", "--yes")
        assert done.exit_code == 0
        assert done.stdout.splitlines()[-1] == "it takes effect at the next start"
        assert {one["detail"] for one in listed(ran)} == {"waiting to be picked up"}
        work_off()
        assert count_of(ran, "shop-0") == 2 * SALES // SHOPS
        status = {one["partition"]: one["status"] for one in listed(ran)}
        assert status[FULL] == "applied"
        empty = next(partition for partition, end in ends().items() if not end)
        assert status[empty] == "pending"
        text = ran("startpoint", "list").stdout
        assert "pending: at offset 0, not moved yet" in text and "applied at 20" in text and "@" in text

    def test_a_running_job_takes_it_up_at_once(self, ran: Run) -> None:
        with running():
            done = ran("startpoint", "set", "sales", "-p", str(FULL), "--earliest", "--yes")
            assert done.stdout.splitlines()[-1] == "the job is running: it resumes from there at its next round"
            waited(lambda: [one["status"] for one in listed(ran)] == ["applied"])
            waited(lambda: count_of(ran, "shop-0") == 2 * SALES // SHOPS)

    def test_all_are_the_partitions_that_there_are_now(self, ran: Run) -> None:
        with hr.open_system("log:./data") as system:
            system.expand_stream("sales", 8)
            system.produce("sales", [hr.Record("shop-0", {"item": "x", "price": 1.0}, partition=7)], hr.String(), hr.Json())
        done = json.loads(ran("startpoint", "set", "sales", "--latest", "--yes", "--json").stdout)
        assert [(move["partition"], move["task"], move["now"]) for move in done["moves"][4:]] == [
            (partition, None, None) for partition in range(4, 8)
        ]
        assert "the job does not read sales/4, sales/5, sales/6, sales/7 yet" in done["notes"][0]
        work_off()
        assert count_of(ran, "shop-0") == SALES // SHOPS

    def test_a_file_in_the_place_of_an_id_is_no_id(self, ran: Run) -> None:
        refused = ran("startpoint", "delete", "shop.py", "--yes")
        assert refused.exit_code == 2
        assert "shop.py is a file: name the application by --app shop.py" in refused.stderr

    def test_where_there_is_no_log_the_application_s_file_is_asked(self, ran: Run) -> None:
        shutil.rmtree("data")
        refused = ran("startpoint", "set", "sales", "--earliest")
        assert refused.stderr.startswith("error: there is no log in")
        assert "hint: name the application's file; or check the folder" in refused.stderr

    def test_what_was_not_taken_up_is_deleted(self, ran: Run) -> None:
        first = json.loads(ran("startpoint", "set", "sales", "--earliest", "--yes", "--json").stdout)["startpoints"]
        refused = ran("startpoint", "delete", first[0])
        assert (refused.exit_code, len(asked(STARTPOINTS))) == (2, 1)
        done = ran("startpoint", "delete", first[FULL], "--yes")
        assert done.stdout.splitlines()[-1] == "deleted 1 startpoint"
        rest = json.loads(ran("startpoint", "delete", "--stream", "sales", "--yes", "--json").stdout)["deleted"]
        assert sorted([*rest, first[FULL]]) == sorted(first)
        work_off()
        assert count_of(ran, "shop-0") == SALES // SHOPS
        assert {one["status"] for one in listed(ran)} == {"deleted"}

    def test_of_a_pending_one_the_position_before_comes_back(self, ran: Run) -> None:
        end = ends()[FULL]
        ran("startpoint", "set", "sales", "-p", str(FULL), "--latest", "--yes")
        work_off()
        assert [one["status"] for one in listed(ran)] == ["pending"]
        done = ran("startpoint", "delete", "--stream", "sales", "-p", str(FULL), "--yes")
        assert "pending: at offset" in done.stdout
        assert "its deletion waits to be picked up" in ran("startpoint", "list").stdout
        work_off()
        assert [one["status"] for one in listed(ran)] == ["deleted"]
        exported = json.loads(ran("checkpoint", "export").stdout)["positions"]
        assert [one["offset"] for one in exported if (one["stream"], one["partition"]) == ("sales", FULL)] == [end]

    def test_one_that_is_done_with_cannot_be_deleted(self, ran: Run) -> None:
        (id_,) = json.loads(ran("startpoint", "set", "sales", "-p", str(FULL), "--earliest", "--yes", "--json").stdout)[
            "startpoints"
        ]
        work_off()
        done = ran("startpoint", "delete", id_, "--yes")
        assert done.exit_code == 1
        assert f"startpoint '{id_}' of log.sales.{FULL} was applied at " in done.stderr
        missing = ran("startpoint", "delete", "abc", "--yes")
        assert missing.stderr.startswith("error: there is no startpoint 'abc'")
        nothing = ran("startpoint", "delete", "--stream", "sales", "-p", str(FULL), "--yes")
        assert nothing.stdout == f"deleted 0 startpoints: none of stream sales partition {FULL} is waiting or pending\n"
        assert ran("startpoint", "delete", "--stream", "sales", "--yes").stdout.count("\n") == 1

    def test_what_the_job_does_not_read_waits_for_no_driver(self, ran: Run) -> None:
        with hr.open_system("log:./data") as system:
            StartpointManager(system.metadata_store("shop")).write_startpoint(hr.SystemStreamPartition("log", "sales", 9), END)
        work_off()
        assert [one["detail"] for one in listed(ran)] == ["waiting: the job does not read sales/9"]

    def test_one_that_cannot_be_resolved_says_how_it_is_deleted(self, ran: Run) -> None:
        set_ = ("startpoint", "set", "sales", "-p", str(FULL), "--offset", "1", "--yes", "--json")
        (id_,) = json.loads(ran(*set_).stdout)["startpoints"]
        with hr.open_system("log:./data") as system:
            system.purge("sales", {FULL: 3})
        with pytest.raises(hr.HeadraceError) as caught:
            work_off()
        assert f"`headrace startpoint delete {id_} --application shop --system log:./data`" in str(caught.value.hint)

    @pytest.mark.parametrize("arguments", [(), ("x", "--stream", "sales"), ("x", "-p", "1"), ("--stream", "sales", "-p", "a")])
    def test_what_is_to_be_deleted_is_said_in_one_way(self, ran: Run, arguments: tuple[str, ...]) -> None:
        assert ran("startpoint", "delete", *arguments, "--yes").exit_code == 2

    def test_there_may_be_none(self, ran: Run) -> None:
        done = ran("startpoint", "list")
        assert (done.exit_code, done.stdout) == (0, "")
        assert done.stderr == "application shop has no startpoints; `headrace startpoint set` makes one\n"


def test_requests_may_be_kept_elsewhere(ran: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_STARTPOINT_METADATA_STORE", "log:./elsewhere")
    assert ran("startpoint", "set", "sales", "-p", str(FULL), "--earliest", "--yes").exit_code == 0
    assert (asked(STARTPOINTS), [one["status"] for one in listed(ran)]) == ([], ["waiting"])
    work_off()
    assert [one["status"] for one in listed(ran)] == ["applied"]
    assert count_of(ran, "shop-0") == 2 * SALES // SHOPS
    with hr.open_system("log:./elsewhere") as system:
        assert system.metadata_store("shop").requests(STARTPOINTS) == {}


class TestUnreadableRequests:
    """Left by a newer version, or by whoever writes what is none."""

    @pytest.mark.parametrize("request_", [b"{", b'{"wire":99,"set":[],"delete":[]}'])
    def test_all_else_goes_on_and_it_can_be_withdrawn(self, ran: Run, request_: bytes) -> None:
        with hr.open_system("log:./data") as system:
            stray = system.metadata_store("shop").request(STARTPOINTS, request_)
        assert f"request {stray} is unreadable" in ran("startpoint", "list").stderr
        (id_,) = json.loads(ran("startpoint", "set", "sales", "--latest", "-p", "0", "--yes", "--json").stdout)["startpoints"]
        done = ran("startpoint", "list")
        assert id_ in done.stdout and stray not in done.stdout
        assert f"`headrace startpoint delete {stray} --application shop --system log:./data`" in done.stderr
        (shown,) = json.loads(ran("startpoint", "list", "--json").stdout)["unreadable"]
        assert shown["request"] == stray and "stored request for startpoints" in shown["detail"]
        assert ran("startpoint", "delete", stray).exit_code == 2
        assert ran("startpoint", "delete", stray, "nothing", "--yes").exit_code == 1
        both = ran("startpoint", "delete", stray, id_, "--yes")
        assert both.stdout.splitlines()[-1] == "deleted 1 startpoint and 1 unreadable request"
        assert json.loads(ran("startpoint", "list", "--json").stdout)["unreadable"] == []
        assert [one["status"] for one in listed(ran)] == ["deleted"]

    def test_one_that_is_kept_elsewhere_is_withdrawn_there(self, ran: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADRACE_STARTPOINT_METADATA_STORE", "log:./elsewhere")
        with hr.open_system("log:./elsewhere") as system:
            stray = system.metadata_store("shop").request(STARTPOINTS, b"{")
        assert ran("startpoint", "delete", stray, "--yes").stdout.endswith("deleted 1 unreadable request\n")
        with hr.open_system("log:./elsewhere") as system:
            assert system.metadata_store("shop").requests(STARTPOINTS) == {}


class TestStateGoesBackToo:
    """All tasks of the source go back to one cut, and what is behind the repartition stream goes back with them."""

    def test_what_goes_back_is_shown_before_it_asks_and_is_what_the_job_goes_on_from(self, ran: Run) -> None:
        end, written = ends()[FULL], repartitioned()
        sell(5)
        work_off()
        assert count_of(ran, "shop-0") == SALES // SHOPS + 5
        position = ("sales", "shop.py", "-p", str(FULL), "--offset", str(end + 2), "--state", "rewind")
        shown = ran("startpoint", "set", *position)
        assert (shown.exit_code, asked(STARTPOINTS)) == (2, [])
        assert f"state of Partition_{FULL} goes back to the version of 20" in shown.stdout
        assert f" UTC, at log.sales.{FULL} {end}\n" in shown.stdout
        assert f"state of {BEHIND} goes back to the version of 20" in shown.stdout
        assert "\nall tasks of sub-topology 'source' go back together, and the stores behind its repartition" in shown.stdout
        (row,) = [line.split() for line in shown.stdout.splitlines() if line.startswith(REPARTITION)]
        assert row == [REPARTITION, str(BEHIND_FULL), BEHIND, str(written + 5), str(written), "0", "0", "5"]
        assert f"written again: {written} to {written + 4} of {REPARTITION}/{BEHIND_FULL}\n" in shown.stdout
        done = json.loads(ran("startpoint", "set", *position, "--yes", "--json").stdout)
        assert [(move["task"], move["now"], move["new"], move["read_again"]) for move in done["moves"]] == [
            (f"Partition_{FULL}", end + 5, end, 5),
            (BEHIND, written + 5, written, 0),
        ]
        assert [move["in_skipped_ranges"] for move in done["moves"]] == [0, 5]
        assert (done["read_again"], done["skipped"]) == (5, 0)
        assert [rewind["task"] for rewind in done["rewinds"]] == [f"Partition_{FULL}", BEHIND]
        skipped = {"stream": REPARTITION, "partition": BEHIND_FULL, "start": written, "end": written + 5}
        assert done["skipped_ranges"] == [skipped]
        work_off()
        assert count_of(ran, "shop-0") == SALES // SHOPS + 5  # each is counted once
        assert sold(ran) == 5  # behind the repartition stream too
        (record,) = listed(ran)
        offsets = {one["task"]: (one["before"], one["offset"]) for one in record["offsets"]}
        assert offsets == {f"Partition_{FULL}": (end + 5, end), BEHIND: (written + 5, written)}
        assert (record["status"], record["state"]) == ("applied", "rewind")

    def test_what_goes_back_with_what_is_known_without_the_file(self, ran: Run) -> None:
        sell(5)
        work_off()
        position = ("startpoint", "set", "sales", "-p", str(FULL), "--offset", str(ends()[FULL] - 1), "--state", "rewind")
        by_file, by_name = (json.loads(ran(*position, *file, "--json").stdout) for file in (("shop.py",), ()))
        assert len(by_file["moves"]) == 2
        for part in ("moves", "rewinds", "skipped_ranges"):
            assert by_file[part] == by_name[part]

    def test_where_that_was_never_stored_the_file_is_asked(self, ran: Run) -> None:
        with hr.open_system("log:./data") as system:
            store = system.job_store("shop")
            epoch = store.acquire(HOLDER, 1)
            store.write_metadata(epoch, FLOWS, {FLOWS: None})
            store.release(epoch)
        back = ("startpoint", "set", "sales", "--earliest", "--state", "rewind")
        refused = ran(*back, "--yes")
        assert (refused.exit_code, asked(STARTPOINTS)) == (1, [])
        assert refused.stderr.startswith("error: application 'shop' last ran under an older version, which has not stored")
        assert "hint: name the application's file, or run it once;" in refused.stderr
        assert "state of Partition_" in ran(*back, "--app", "shop.py").stdout
        assert "no position goes back" in ran("startpoint", "set", "sales", "--latest", "--state", "rewind").stdout
        work_off()
        assert "state of Partition_" in ran(*back).stdout

    def test_what_an_earlier_rewind_has_written_again_stays_passed_over(self, ran: Run) -> None:
        written = repartitioned()
        sell(5)
        work_off()
        ran("startpoint", "set", "sales", "-p", str(FULL), "--offset", str(ends()[FULL] - 5), "--state", "rewind", "--yes")
        work_off()
        assert repartitioned() == written + 10
        done = json.loads(ran("startpoint", "set", "per-item", "-p", str(BEHIND_FULL), "--earliest", "--json").stdout)
        (move,) = done["moves"]
        assert (move["now"], move["new"], move["in_skipped_ranges"]) == (written + 10, 0, 5)
        assert done["read_again"] == written + 5
        (note,) = done["notes"]
        assert note.endswith(f"wrote it again: {written} to {written + 4} of {REPARTITION}/{BEHIND_FULL}")
        ran("startpoint", "set", "per-item", "-p", str(BEHIND_FULL), "--earliest", "--yes")
        work_off()
        assert sold(ran) == 10  # the five a second time, and not a third

    def test_where_no_version_is_old_enough_nothing_is_written(self, ran: Run) -> None:
        with hr.open_system("log:./data") as system:
            (partition, end) = next((number, end) for number, end in system.end_offsets(REPARTITION).items() if end)
            system.purge(REPARTITION, {partition: end - 1})
        done = ran("startpoint", "set", "per-item", "-p", str(partition), "--earliest", "--state", "rewind", "--yes")
        assert (done.exit_code, asked(STARTPOINTS)) == (1, [])
        assert done.stderr.startswith(f"error: task per-item/Partition_{partition}: no kept version of its state can be used")
        assert "--state keep" in done.stderr

    def test_what_was_asked_for_is_said_where_the_state_goes_back_further(self, ran: Run) -> None:
        done = ran("startpoint", "set", "sales", "shop.py", "-p", str(FULL), "--offset", "5", "--state", "rewind")
        assert f"{SALES} records are read again" in done.stdout, "no cut was taken on the way: all begins anew"
        assert f"note: requested was offset 5 of sales/{FULL}: a task resumes from the positions of the version" in done.stdout
        exact = ran("startpoint", "set", "sales", "shop.py", "-p", str(FULL), "--earliest", "--state", "rewind")
        assert "requested was" not in exact.stdout

    def test_without_a_store_there_is_nothing_to_take_back(self, ran: Run) -> None:
        app = hr.App("through", system="log:./data")
        app.stream("sales", key=hr.String(), value=hr.Json()).to("per-shop-out")
        caught_up(app)
        done = ran("startpoint", "set", "sales", "--application", "through", "--earliest", "--state", "rewind")
        assert "\nno store is behind it: no state is touched\n" in done.stdout

    def test_what_goes_on_takes_no_state_back(self, ran: Run) -> None:
        done = ran("startpoint", "set", "sales", "--latest", "--state", "rewind", "--yes")
        assert "no position goes back: state stays as it is" in done.stdout
        work_off()
        assert count_of(ran, "shop-0") == SALES // SHOPS


class TestTheSameFromPython:
    def test_it_previews_sets_lists_and_deletes(self, ran: Run) -> None:
        with hr.startpoints("shop", system="log:./data") as points:
            preview = points.preview("sales", hr.Startpoint(hr.PositionType.EARLIEST), partition=FULL)
            assert (preview.read_again, preview.skipped, len(preview.moves)) == (ends()[FULL], 0, 1)
            assert asked(STARTPOINTS) == []
            (id_,) = points.set("sales", "earliest", partition=FULL, task=f"Partition_{FULL}")
            (known,) = points.list()
            assert (known.entry.id, known.status, str(known.entry.key.task)) == (id_, None, f"Partition_{FULL}")
            assert points.delete(id_) == (id_,)
            with pytest.raises(hr.StartpointError, match="was deleted"):
                points.delete(id_)

    def test_an_app_says_where_it_runs(self, ran: Run) -> None:
        app = load_app("shop.py")
        with hr.startpoints(app) as points:
            assert points.preview("sales", 0, partition=FULL).stores.is_certain
            assert not points.is_running

    def test_a_later_one_is_later_whatever_the_clock_says(self, ran: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        with hr.startpoints("shop", system="log:./data") as points:
            (first,) = points.set("sales", 1, partition=FULL)
            monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
            (second,) = points.set("sales", 2, partition=FULL)
            written = {one.entry.id: one.entry.written_at_us for one in points.list()}
            assert written[second] > written[first]

    def test_what_was_shown_long_ago_is_later_than_what_was_written_since(self, ran: Run) -> None:
        with hr.startpoints("shop", system="log:./data") as points:
            shown = points.preview("sales", 1, partition=FULL)
            points.set("sales", 2, partition=FULL)
            points.write(shown)
            assert [one.entry.startpoint.position for one in points.list()] == [2, 1]
        work_off()
        assert [one["status"] for one in listed(ran)] == ["superseded", "applied"]
        assert count_of(ran, "shop-0") > SALES // SHOPS

    def test_what_is_special_of_a_position_is_noted(self, ran: Run) -> None:
        app = hr.App("noted")
        app.stream("sales", key=hr.String(), value=hr.Double(), reset_offset=True).group_by_key().count(store="n")
        with Driver(app, directory="noted") as driver:
            driver.run()
        with hr.startpoints(app, system="log:./noted/log") as points:
            assert points.preview("sales", "bootstrap").notes == (
                "until a task reaches the end offset as of its start, it reads none of its other streams",
                "stream 'sales' is reset at every start (reset_offset): a startpoint counts once, at the next one",
            )

    @pytest.mark.parametrize("given", [None, 1.5, True, "first", -1])
    def test_what_is_no_position_is_refused(self, ran: Run, given: Any) -> None:
        with hr.startpoints("shop", system="log:./data") as points, pytest.raises(hr.ConfigError):
            points.preview("sales", given)

    def test_it_is_used_in_a_with(self, ran: Run) -> None:
        with pytest.raises(hr.ConfigError, match=r"hr.startpoints of application .* is not open"):
            hr.startpoints("shop", system="log:./data").list()
