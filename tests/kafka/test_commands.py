"""The commands on Kafka: what they say is what they say of the embedded log, and nothing of librdkafka's own shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from cli.shop import APP, SALES, produce_sales, sale
from headrace.cli.app_loading import load_app
from headrace.environment import this_user
from headrace.errors import TopologyError
from headrace.testing.kafka_server import KafkaServer
from support.world import caught_up, started

SOURCE = Path(hr.__file__).parents[1]
COMMAND = [sys.executable, "-c", "from headrace.cli import main; main()"]
HEAVY = "import sys; print([name for name in ('pyarrow', 'numpy', 'pyspark') if name in sys.modules], file=sys.stderr)"
NOBODY = "kafka://127.0.0.1:1"

Headrace = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def place(kafka_server: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder, and the URL of a broker, on which the shop of the other commands' tests has run."""
    folder, url = tmp_path_factory.mktemp("shop"), f"kafka://{kafka_server.bootstrap}"
    (folder / "shop.py").write_text(APP.replace('"shop"', '"kafka-shop"').replace('"log:./data"', repr(url)))
    before = Path.cwd()
    os.chdir(folder)
    try:
        with hr.open_system(url) as system:
            system.create_stream("sales", 4)
            produce_sales(system)
        caught_up(load_app("shop.py"))
    finally:
        os.chdir(before)
    return folder, url


@pytest.fixture(scope="module")
def refused(place: tuple[Path, str]) -> str:
    """An application whose first start was refused: what it joins cannot meet."""
    folder, url = place
    app = hr.App("kafka-refused", url, local_store_dir=str(folder / "stores"), state_uri=str(folder / "state"))
    users = app.table("users", key=hr.String(), value=hr.String())
    orders = app.stream("orders", key=hr.String(), value=hr.String())
    orders.join(users, lambda order, user: user, value=hr.String()).to("named")
    with hr.open_system(url) as system:
        system.create_stream("orders", 4)
        system.create_stream("users", 8)
    with pytest.raises(TopologyError, match="joins the streams 'orders'"):
        started(app, "caught-up")
    return app.name


@pytest.fixture
def headrace(place: tuple[Path, str]) -> Headrace:
    def run(*arguments: str, stdin: str = "", system: str = place[1], folder: Any = place[0], **variables: str) -> Any:
        environ = {**os.environ, "PYTHONPATH": str(SOURCE), **variables}
        command = [*COMMAND, *arguments, "--system", system]
        return subprocess.run(
            command, cwd=folder, env=environ, input=stdin, capture_output=True, text=True, timeout=120, check=False
        )

    return run


def answer(done: Any) -> Any:
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_an_application_is_described_by_its_name_alone(headrace: Headrace) -> None:
    name = ("--application", "kafka-shop", "--json")
    status = answer(headrace("status", *name))
    assert not status["running"]
    assert {sub: found["lag"] for sub, found in status["sub_topologies"].items()} == dict.fromkeys(status["sub_topologies"], 0)
    tasks = answer(headrace("tasks", *name))["tasks"]
    assert [task["task"] for task in tasks if task["sub_topology"] == "source"] == [f"Partition_{n}" for n in range(4)]
    checkpoints = answer(headrace("checkpoint", "list", *name))["checkpoints"]
    assert {checkpoint["task"] for checkpoint in checkpoints} == {task["task"] for task in tasks}
    assert all(one["position"] == one["end"] for checkpoint in checkpoints for one in checkpoint["positions"])


def test_state_is_read_where_the_job_left_it(headrace: Headrace, place: tuple[Path, str]) -> None:
    wanted = sum(shop == "shop-1" for shop, *_ in map(sale, range(SALES)))
    found = answer(headrace("state", "get", "per-shop", "shop-1", "--application", "kafka-shop", "--json"))
    assert [entry["value"] for entry in found["entries"]] == [wanted]
    done = answer(headrace("state", "dump", "per-shop", "-o", "out.parquet", "--application", "kafka-shop", "--json"))
    assert done["entries"] == 3
    assert (place[0] / "out.parquet").stat().st_size > 0


def test_state_that_is_elsewhere_is_not_taken_for_lost(headrace: Headrace, place: tuple[Path, str], tmp_path: Path) -> None:
    """Kafka does not say where state is: a job keeps it beside the folder in which it was started."""
    name = ("--application", "kafka-shop")
    there = place[0] / ".headrace" / "state"
    commands = (("get", "per-shop", "shop-1"), ("dump", "per-shop", "-o", "out.parquet"))
    for command in commands:
        done = headrace("state", *command, *name, folder=str(tmp_path))
        assert (done.returncode, done.stdout) == (1, "")
        error, hint = done.stderr.splitlines()
        assert error.startswith(f"error: the state of application 'kafka-shop' is not in {tmp_path}/.headrace/state, ")
        assert hint.startswith("hint: run this in the folder in which the job was started, or say where its state is: --set")
        found = headrace("state", *command, *name, "--set", f"state_uri={there}", folder=str(tmp_path))
        assert (found.returncode, found.stderr) == (0, "")


def test_streams_are_made_filled_read_and_deleted(headrace: Headrace) -> None:
    assert answer(headrace("stream", "create", "cli-made", "--partitions", "2", "--json"))["partitions"] == 2
    again = headrace("stream", "create", "cli-made")
    assert (again.returncode, again.stderr) == (
        1,
        "error: stream 'cli-made' exists already, with 2 partitions\nhint: use it, or another name\n",
    )
    lines = "".join(json.dumps({"key": f"k{n}", "value": {"n": n}}) + "\n" for n in range(3))
    serdes = ("--key", "string", "--value", "json")
    assert answer(headrace("stream", "produce", "cli-made", *serdes, "--json", stdin=lines))["records"] == 3
    read = headrace("stream", "consume", "cli-made", *serdes)
    assert sorted(json.loads(line)["value"]["n"] for line in read.stdout.splitlines()) == [0, 1, 2]
    assert read.stderr == ""
    listed = {row["name"]: row for row in answer(headrace("stream", "list", "--json"))}
    assert listed["cli-made"]["internal_of"] is None
    ours = {name: row["internal_of"] for name, row in listed.items() if name.startswith("kafka-shop")}
    assert [owner for name, owner in ours.items() if name.endswith("-repartition")] == ["kafka-shop"]
    assert not [name for name in ours if name.endswith(("-metadata", "-checkpoints"))]
    assert answer(headrace("stream", "delete", "cli-made", "--yes", "--json"))["deleted"] == "cli-made"
    unknown = headrace("stream", "describe", "cli-made")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("error: stream 'cli-made' does not exist\n")
    assert "create it first: headrace stream create cli-made --system kafka://" in unknown.stderr


def test_topics_that_kafka_or_an_application_needs_are_not_deleted_by_the_way(headrace: Headrace) -> None:
    offsets = "__consumer_offsets"
    for command in (("delete", offsets, "--yes", "--force"), ("create", "__mine"), ("describe", offsets)):
        refused = headrace("stream", *command)
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"error: stream {command[1]!r}: names that begin with two underscores are Kafka's own")
    listed = answer(headrace("stream", "list", "--json"))
    repartition = next(row["name"] for row in listed if row["internal_of"] == "kafka-shop")
    for name in ("kafka-shop-metadata", "kafka-shop-checkpoints", repartition):
        refused = headrace("stream", "delete", name, "--yes")
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"error: stream {name!r} belongs to application 'kafka-shop': ")
        assert "--force" in refused.stderr
    assert answer(headrace("status", "--application", "kafka-shop", "--json"))["application"] == "kafka-shop"


def test_a_stream_is_expanded_and_its_readers_are_told(headrace: Headrace, place: tuple[Path, str]) -> None:
    refused = headrace("stream", "expand", "sales", "--partitions", "6")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "application 'kafka-shop': stream 'sales' had 4 partitions and now has 6" in refused.stderr
    done = answer(headrace("stream", "expand", "per-item", "--application", "kafka-shop", "--partitions", "8", "--json"))
    assert (done["name"], done["before"], done["partitions"]) == ("kafka-shop-per-item-repartition", 4, 8)
    assert [(one["application"], one["follows"]) for one in done["applications"]] == [("kafka-shop", True)]
    with hr.open_system(place[1]) as system:
        (request,) = system.metadata_store("kafka-shop").requests("partition-checks").values()
        assert json.loads(request) == {"stream": "kafka-shop-per-item-repartition", "partitions": 8, "by": this_user()}
        assert system.describe_stream("sales").partitions == 4
    listed = {row["name"]: row["partitions"] for row in answer(headrace("stream", "list", "--json"))}
    assert (listed["sales"], listed["kafka-shop-per-item-repartition"]) == (4, 8)
    assert len(answer(headrace("stream", "describe", "kafka-shop-per-item-repartition", "--json"))["partitions"]) == 8


def test_with_force_they_are(headrace: Headrace, place: tuple[Path, str]) -> None:
    with hr.open_system(place[1]) as system:
        system.own_topics.ensure("kafka-forced")
    done = answer(headrace("stream", "delete", "kafka-forced-checkpoints", "--yes", "--force", "--json"))
    assert done["deleted"] == "kafka-forced-checkpoints"


def test_a_broker_that_is_not_there_is_waited_for_a_few_seconds(headrace: Headrace) -> None:
    done = headrace("stream", "list", system=NOBODY)
    assert done.returncode == 1
    assert "error: cannot reach Kafka at 127.0.0.1:1: connection refused (tried for 5 s, to list the topics)\n" in done.stderr
    assert done.stderr.count("cannot reach Kafka") == 1 and done.stderr.count("\n") == 2


def test_an_unknown_application_is_told_of_those_that_are_there(headrace: Headrace) -> None:
    done = headrace("status", "--application", "kafka-shp")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: application 'kafka-shp' has not run on kafka://")
    assert "kafka-shop" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("tasks",),
        ("checkpoint", "list"),
        ("checkpoint", "export"),
        ("startpoint", "list"),
        ("startpoint", "set", "sales", "--earliest", "--yes"),
        ("state", "get", "per-shop", "x"),
    ],
)
def test_an_application_whose_first_start_was_refused_has_not_run(
    headrace: Headrace, place: tuple[Path, str], refused: str, command: tuple[str, ...]
) -> None:
    done = headrace(*command, "--application", refused)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: application {refused!r} has not run on {place[1]} yet")
    assert "did you mean" not in done.stderr
    assert done.stderr.count("\n") == 2


@pytest.mark.usefixtures("refused")
def test_an_application_that_has_not_run_hinders_no_expansion(headrace: Headrace) -> None:
    assert answer(headrace("stream", "expand", "orders", "--partitions", "6", "--json"))["applications"] == []


@pytest.mark.parametrize("command", [("stream", "list"), ("status", "--application", "x")])
def test_a_broker_that_is_not_there_is_one_error(headrace: Headrace, command: tuple[str, ...]) -> None:
    done = headrace(*command, system=NOBODY, HEADRACE_KAFKA__wait__s="0")
    assert (done.returncode, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: cannot reach Kafka at 127.0.0.1:1: connection refused")
    assert hint == "hint: is the broker at 127.0.0.1:1 up, and are its address and the kafka.security settings right?"


def test_what_reads_no_records_is_quick(place: tuple[Path, str]) -> None:
    """By what it imports: a time would depend on the machine."""
    code = f"""
import sys
from headrace.cli.commands import application
for command in (["stream", "list"], ["status", "--application", "kafka-shop"], ["tasks", "--application", "kafka-shop"],
                ["checkpoint", "list", "--application", "kafka-shop"], ["stream", "describe", "sales"]):
    application([*command, "--system", {place[1]!r}], standalone_mode=False)
{HEAVY}
"""
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")
