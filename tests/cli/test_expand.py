"""`headrace stream expand`: what it refuses, what it does, and whom it tells."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from cli.shop import SALES, SHOPS, asked
from headrace.adapters.log.system import LogSystem
from headrace.cli.app_loading import load_app
from headrace.codec.job_records import PARTITION_CHECKS
from headrace.core.job_plan.stream_readers import Reader, count_for_all, readers_of
from headrace.core.keys.hashing import partition_of
from headrace.environment import this_user
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName
from support.world import caught_up, started

Run = Callable[..., Any]
REPARTITION = "shop-per-item-repartition"


def partitions_of(stream: str) -> int:
    with hr.open_system("log:./data") as system:
        return int(system.describe_stream(stream).partitions)


def test_a_stream_that_nobody_reads_is_expanded(fresh: Run) -> None:
    fresh("stream", "create", "flights", "-p", "3")
    done = fresh("stream", "expand", "flights", "--partitions", "4")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "expanded stream flights from 3 to 4 partitions\n", "")
    answer = json.loads(fresh("stream", "expand", "flights", "-p", "7", "--json").stdout)
    assert answer.pop("id")
    assert answer == {"name": "flights", "before": 4, "partitions": 7, "applications": [], "warnings": []}


def test_list_and_describe_show_the_partitions_of_now(fresh: Run) -> None:
    fresh("stream", "create", "flights", "-p", "2")
    fresh("stream", "produce", "flights", stdin='{"key": "a", "partition": 1}')
    fresh("stream", "expand", "flights", "-p", "4")
    assert [row["partitions"] for row in json.loads(fresh("stream", "list", "--json").stdout)] == [4]
    described = json.loads(fresh("stream", "describe", "flights", "--json").stdout)["partitions"]
    assert [tuple(row.values()) for row in described] == [(0, 0, 0), (1, 0, 1), (2, 0, 0), (3, 0, 0)]
    assert fresh("stream", "produce", "flights", stdin='{"key": "a", "partition": 3}').exit_code == 0


@pytest.mark.parametrize("command", [("list",), ("describe", "flights")])
def test_one_that_grows_between_two_looks_is_shown(
    fresh: Run, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh("stream", "create", "flights", "-p", "2")
    look = LogSystem.beginning_offsets

    def look_and_grow(system: LogSystem, stream: str) -> dict[int, int]:
        found = look(system, stream)
        system.expand_stream(stream, 4)
        return found

    monkeypatch.setattr(LogSystem, "beginning_offsets", look_and_grow)
    assert fresh("stream", *command, "--json").exit_code == 0
    assert partitions_of("flights") == 4


def test_the_applications_that_read_it_are_named_and_told(ran: Run) -> None:
    done = ran("stream", "expand", "sales", "--partitions", "8")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "expanded stream sales from 4 to 8 partitions",
        "  application shop reads them from its next start",
    ]
    by = this_user()
    assert asked(PARTITION_CHECKS) == [{"stream": "sales", "partitions": 8, "by": by}]
    answer = json.loads(ran("stream", "expand", "sales", "-p", "16", "--json").stdout)
    assert answer["applications"] == [{"application": "shop", "before": 4, "follows": True, "running": False}]
    assert asked(PARTITION_CHECKS) == [{"stream": "sales", "partitions": count, "by": by} for count in (8, 16)]


def test_a_job_that_runs_takes_them_up_at_once(ran: Run) -> None:
    """It would look by itself in an hour: the request is what it hears."""
    job = started(load_app("shop.py"), overrides=["partition_check_interval_s=3600"])
    try:
        for stream in ("sales", REPARTITION):
            done = ran("stream", "expand", stream, "--partitions", "8")
            assert done.stdout.endswith("  application shop is running: it reads them from its next round\n")
        with hr.open_system("log:./data") as system:
            model, deadline_s = system.job_store("shop").job_model, time.monotonic() + 60
            while {model().partition_counts[stream] for stream in ("sales", REPARTITION)} != {8} or asked(PARTITION_CHECKS):
                assert time.monotonic() < deadline_s, (model().partition_counts, asked(PARTITION_CHECKS))
                time.sleep(0.05)
            assert len(list(model().sub_topology(None).tasks)) == 4
            partition = partition_of(b"shop-0", 8)
            system.produce("sales", [("shop-0", {"item": "x", "price": 1.0})] * 5, key=hr.String(), value=hr.Json())
            assert system.end_offsets("sales")[partition] > 0
        job.stop()
        caught_up(load_app("shop.py"))
    finally:
        job.stop()
    found = json.loads(ran("state", "get", "per-shop", "shop-0", "--json").stdout)["entries"]
    assert [entry["value"] for entry in found] == [SALES // SHOPS + 5]


def test_what_only_writes_a_stream_is_not_asked(ran: Run) -> None:
    assert ran("stream", "expand", "per-shop-out", "--partitions", "7").exit_code == 0
    assert asked(PARTITION_CHECKS) == []


def test_what_would_break_a_reader_is_refused_with_the_ways_out(ran: Run) -> None:
    done = ran("stream", "expand", "sales", "--partitions", "6")
    assert (done.exit_code, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: expanding stream 'sales' from 4 to 6 partitions breaks what reads it; nothing was changed.")
    assert "application 'shop': stream 'sales' had 4 partitions and now has 6" in error
    way = "`headrace stream expand sales --partitions 8`, which all applications that read it can follow"
    assert hint.startswith(f"hint: {way}; or `headrace stream expand sales --partitions 6 --force`: its readers stop")
    assert "until the stream has grown to a number that they can follow" in hint
    assert (partitions_of("sales"), asked(PARTITION_CHECKS)) == (4, [])


def test_with_force_it_is_done_and_said(ran: Run) -> None:
    done = ran("stream", "expand", "sales", "--partitions", "6", "--force")
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: what reads 'sales' in application 'shop' stops: stream 'sales' had 4 partitions")
    assert "  application shop cannot follow" in done.stdout
    assert (partitions_of("sales"), asked(PARTITION_CHECKS)) == (6, [{"stream": "sales", "partitions": 6, "by": this_user()}])
    again = ran("stream", "expand", "sales", "--partitions", "8")  # of what the application knows, twice as many
    assert again.exit_code == 1
    again = ran("stream", "expand", "sales", "--partitions", "8", "--force", "--json")
    assert json.loads(again.stdout)["applications"] == [{"application": "shop", "before": 4, "follows": True, "running": False}]


def test_what_a_stopped_job_has_not_seen_counts_too(ran: Run) -> None:
    """Its model says 4, of which 12 is a multiple; but what was written while there were 8 would be read out of order."""
    assert ran("stream", "expand", "sales", "--partitions", "8").exit_code == 0
    done = ran("stream", "expand", "sales", "--partitions", "12")
    assert (done.exit_code, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: expanding stream 'sales' from 8 to 12 partitions breaks what reads it; nothing was changed")
    assert "application 'shop': stream 'sales' has 8 partitions by now, and 12 is no multiple of 8" in error
    way = "`headrace stream expand sales --partitions 16`, which all applications that read it can follow"
    assert hint.startswith(f"hint: {way}; or `headrace stream expand sales --partitions 12 --force`: unread records of a key")
    assert "stops" not in hint
    assert partitions_of("sales") == 8
    done = ran("stream", "expand", "sales", "--partitions", "12", "--force")
    assert done.exit_code == 0
    assert "warning: application 'shop': stream 'sales' has 8 partitions by now, and 12 is no multiple of 8" in done.stderr
    assert "application shop reads them from" in done.stdout
    assert partitions_of("sales") == 12


def test_a_multiple_that_is_no_power_of_two_is_done_with_a_warning(ran: Run) -> None:
    done = ran("stream", "expand", "sales", "--partitions", "12")
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: stream 'sales' grew from 4 to 12 partitions, 3 times as many")
    assert partitions_of("sales") == 12


@pytest.mark.parametrize(
    "arguments", [(REPARTITION,), ("per-item", "--application", "shop"), (REPARTITION, "--application", "shop")]
)
def test_repartition_streams_have_a_short_name_too(ran: Run, arguments: tuple[str, ...]) -> None:
    done = json.loads(ran("stream", "expand", *arguments, "--partitions", "8", "--json").stdout)
    assert (done["name"], done["before"], done["partitions"]) == (REPARTITION, 4, 8)
    assert done["applications"] == [{"application": "shop", "before": 4, "follows": True, "running": False}]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("sales", "--partitions", "4"), "stream 'sales' has 4 partitions, and cannot be expanded to 4"),
        (("sales", "--partitions", "2", "--force"), "stream 'sales' has 4 partitions, and cannot be expanded to 2"),
        (("sale", "--partitions", "8"), "stream 'sale' does not exist\nhint: did you mean 'sales'?"),
        (("sales", "--partitions", "99999999999"), "stream 'sales' with 99999999999 partitions: expected a whole number"),
        (("sales", "--partitions", "100003", "--force"), "stream 'sales' with 100003 partitions: expected a whole number"),
        (("", "--partitions", "8"), "NAME is empty: expected the name of a stream\nhint: headrace stream list"),
        ((" ", "--partitions", "8", "--application", "shop"), "NAME is empty: expected the name of a repartition"),
        (("sales", "--partitions", "8", "--application", ""), "--application is empty: expected"),
        (
            ("sales", "--partitions", "8", "--application", "shop"),
            (
                "stream 'sales' is an input of application 'shop', and no repartition of it\n"
                "hint: leave --application out: headrace stream expand sales --partitions 8"
            ),
        ),
        (
            ("per-shop-out", "--partitions", "8", "--application", "shop"),
            "stream 'per-shop-out' is no repartition of application 'shop'\nhint: leave --application out",
        ),
        (
            ("per-itme", "--application", "shop", "--partitions", "8"),
            "stream 'shop-per-itme-repartition' does not exist\nhint: its repartitions are: per-item\n",
        ),
        (
            ("per-item", "--application", "shopp", "--partitions", "8"),
            "application 'shopp' has not run on log:./data, and has no repartitions there\nhint: there are: shop\n",
        ),
        (
            ("per-item", "--partitions", "8"),
            (
                "stream 'per-item' does not exist\nhint: it is a repartition stream of application 'shop': "
                "`headrace stream expand per-item --application shop --partitions 8`\n"
            ),
        ),
    ],
)
def test_what_cannot_be_is_refused(ran: Run, arguments: tuple[str, ...], text: str) -> None:
    done = ran("stream", "expand", *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {text}")
    assert (partitions_of("sales"), asked(PARTITION_CHECKS)) == (4, [])


def test_a_plan_that_cannot_be_read_may_read_the_stream(ran: Run) -> None:
    import sqlite3

    with sqlite3.connect("data/catalog.sqlite") as catalog:
        catalog.execute("UPDATE job_models SET model = '{\"wire\": 9}'")
    refused = ran("stream", "expand", "sales", "--partitions", "8")
    assert refused.exit_code == 1
    assert "job model of application 'shop'" in refused.stderr
    assert "hint: --force expands the stream without knowing" in refused.stderr
    assert partitions_of("sales") == 4
    assert ran("stream", "expand", "sales", "--partitions", "8", "--force").exit_code == 0
    assert partitions_of("sales") == 8


class TestReaders:
    """Whom a growth concerns, of job models as they are stored."""

    def model(self, application: str = "app", **changes: Any) -> JobModel:
        task = TaskModel(TaskName(PartitionGroup(0)), (SSP("log", "s", 0),))
        subs = (SubTopologyModel(None, (ContainerModel(0, (task,)),)),)
        fields = {"partition_counts": {"s": 4}, "stream_ids": {"s": "id"}, "stores": {"n": "source|form"}} | changes
        return JobModel(application, 1, subs, **fields)

    def only(self, partitions: int, present: int = 4, **changes: Any) -> Reader:
        (reader,) = readers_of("s", "id", present, partitions, [self.model(**changes)])
        return reader

    def test_they_come_by_name_with_the_count_that_they_know(self) -> None:
        models = [self.model("b"), self.model("a", partition_counts={"s": 2}), self.model("c", partition_counts={"t": 4})]
        assert [(reader.application, reader.before) for reader in readers_of("s", "id", 4, 8, models)] == [("a", 2), ("b", 4)]

    def test_one_that_has_read_another_stream_of_the_name_is_none(self) -> None:
        assert readers_of("s", "another", 4, 6, [self.model()]) == ()

    @pytest.mark.parametrize(
        ("partitions", "is_refused", "is_warned"), [(4, False, False), (6, True, False), (12, False, True)]
    )
    def test_what_its_growth_does_to_them(self, partitions: int, is_refused: bool, is_warned: bool) -> None:
        reader = self.only(partitions)
        assert (reader.refusal is not None, reader.warning is not None) == (is_refused, is_warned)

    def test_without_state_the_reason_is_order(self) -> None:
        reasons = [({}, "its older ones, and might overtake them"), ({"n": "source|form"}, "its older ones and its state")]
        for stores, reason in reasons:
            refusal = self.only(6, stores=stores).refusal
            assert refusal is not None
            assert refusal.message.endswith(reason)

    def test_who_declares_it_as_partitioned_otherwise_does_not_mind(self) -> None:
        assert self.only(6, partitioned_otherwise=("s",)).refusal is None

    def test_a_partitioner_of_the_users_own_minds_under_state_only(self) -> None:
        reader = self.only(8, partitioned_by_users=("s",))
        assert reader.refusal is not None
        assert count_for_all([reader], 4, 8) is None
        for stores in ({}, {"n": "gone:source|form"}, {"n": "by-x|form"}):
            assert self.only(8, partitioned_by_users=("s",), stores=stores).refusal is None

    def test_the_count_for_all_is_one_that_none_refuses(self) -> None:
        models = [self.model("a", partition_counts={"s": 4}), self.model("b", partition_counts={"s": 6})]
        better = count_for_all(readers_of("s", "id", 8, 13, models), 8, 13)
        assert better == 24
        for reader in readers_of("s", "id", 8, better, models):
            assert (reader.refusal, reader.disorder) == (None, None)

    @pytest.mark.parametrize(("at_least", "better"), [(99_999, None), (65_536, 65_536), (65_537, None)])
    def test_the_count_for_all_is_one_that_a_stream_may_have(self, at_least: int, better: int | None) -> None:
        assert count_for_all([Reader("a", 4)], 8, at_least) == better

    @pytest.mark.parametrize(
        ("present", "partitions", "is_refused", "is_in_disorder"),
        [(8, 12, False, True), (8, 24, False, False), (6, 8, False, True), (6, 12, False, False), (8, 10, True, False)],
    )
    def test_what_it_has_not_seen_yet_counts_too(
        self, present: int, partitions: int, is_refused: bool, is_in_disorder: bool
    ) -> None:
        reader = self.only(partitions, present)
        assert (reader.refusal is not None, reader.disorder is not None) == (is_refused, is_in_disorder)
        assert self.only(partitions, present, partitioned_otherwise=("s",)).disorder is None
