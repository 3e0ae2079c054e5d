"""`headrace checkpoint export` and `import`: positions as a file, and a job that goes on from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from cli.shop import SALES, SHOPS, asked
from headrace.cli.app_loading import load_app
from headrace.codec.job_records import STARTPOINTS
from headrace.core.keys.hashing import partition_of
from support.world import caught_up

Run = Callable[..., Any]
FULL = partition_of(b"shop-0", 4)  # a partition with records


def work_off() -> None:
    caught_up(load_app("shop.py"))


def exported(run: Run) -> dict[str, Any]:
    return dict(json.loads(run("checkpoint", "export").stdout))


def write(positions: Any) -> str:
    Path("positions.json").write_text(positions if isinstance(positions, str) else json.dumps(positions))
    return "positions.json"


def test_all_positions_are_exported_as_they_are_committed(ran: Run) -> None:
    found = exported(ran)
    assert (found["positions_version"], found["application"]) == (1, "shop")
    assert found["exported_at"].endswith("Z")
    checkpoints = json.loads(ran("checkpoint", "list", "--json").stdout)["checkpoints"]
    committed = {
        (one["stream"], one["partition"]): (one["position"], one["watermark"])
        for checkpoint in checkpoints
        for one in checkpoint["positions"]
    }
    assert {
        (one["stream"], one["partition"]): (one["offset"], one.get("watermark")) for one in found["positions"]
    } == committed
    assert all("task" not in one for one in found["positions"])


def test_an_import_of_what_is_so_already_sets_nothing(ran: Run) -> None:
    done = ran("checkpoint", "export", "shop.py", "--output", "positions.json")
    assert done.stdout == "wrote 8 positions to positions.json\n"
    done = ran("checkpoint", "import", "positions.json", "shop.py")
    assert (done.exit_code, done.stdout) == (0, "application shop is at these positions already: there is nothing to set\n")
    assert asked(STARTPOINTS) == []


def test_only_what_has_moved_since_goes_back(ran: Run) -> None:
    ran("checkpoint", "export", "-o", "positions.json")
    with hr.open_system("log:./data") as system:
        end = system.end_offsets("sales")[FULL]
        system.produce("sales", [("shop-0", {"item": "x", "price": 1.0})] * 5, key=hr.String(), value=hr.Json())
    work_off()
    shown = ran("checkpoint", "import", "positions.json")
    assert (shown.exit_code, asked(STARTPOINTS)) == (2, [])
    assert "5 records are read again, 0 are skipped" in shown.stdout
    done = json.loads(ran("checkpoint", "import", "positions.json", "--yes", "--json").stdout)
    assert [(move["stream"], move["partition"], move["now"], move["new"]) for move in done["moves"]] == [
        ("sales", FULL, end + 5, end)
    ]
    (request,) = asked(STARTPOINTS)
    assert [(one["position_type"], one["position"]) for one in request["set"]] == [("SPECIFIC_OFFSET", end)]
    work_off()
    (entry,) = json.loads(ran("state", "get", "per-shop", "shop-0", "--json").stdout)["entries"]
    assert entry["value"] == SALES // SHOPS + 10
    assert json.loads(ran("startpoint", "list", "--json").stdout)["startpoints"][0]["status"] == "applied"


def test_positions_of_repartitions_stay_unless_they_are_asked(ran: Run) -> None:
    found = exported(ran)
    for one in found["positions"]:
        one["offset"] = 0
    file = write(found)
    streams = {
        options: {move["stream"] for move in json.loads(ran("checkpoint", "import", file, "--json", *options).stdout)["moves"]}
        for options in ((), ("--repartitions",))
    }
    assert streams == {(): {"sales"}, ("--repartitions",): {"sales", "shop-per-item-repartition"}}


def test_a_startpoint_that_waits_gives_way(ran: Run) -> None:
    ran("checkpoint", "export", "-o", "positions.json")
    ran("startpoint", "set", "sales", "-p", str(FULL), "--earliest", "--yes")
    assert ran("checkpoint", "import", "positions.json", "--yes").exit_code == 0
    work_off()
    (entry,) = json.loads(ran("state", "get", "per-shop", "shop-0", "--json").stdout)["entries"]
    assert entry["value"] == SALES // SHOPS


def test_another_applications_positions_need_force(ran: Run) -> None:
    found = exported(ran) | {"application": "till"}
    found["positions"] = [one | {"offset": 0} for one in found["positions"] if one["stream"] == "sales"]
    refused = ran("checkpoint", "import", write(found), "--yes")
    assert refused.stderr.startswith("error: these positions are of application 'till', not of 'shop'\nhint: --force")
    assert (refused.exit_code, asked(STARTPOINTS)) == (1, [])
    assert ran("checkpoint", "import", write(found), "--yes", "--force").exit_code == 0
    assert len(asked(STARTPOINTS)) == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"stream": "sale"}, "application 'shop' does not read stream 'sale', of which there is a position\nhint: did you"),
        ({"partition": 4}, "application 'shop' does not read partition 4 of stream 'sales'"),
        ({"offset": 10**6}, f"offset 1000000 of stream 'sales' partition {FULL} is not there: it holds 0 to "),
        ({"offset": -1}, "positions.json holds no exported positions: Expected `int` >= 0 - at `$.positions[0].offset`"),
        ({"offset": "5"}, "positions.json holds no exported positions: Expected `int`, got `str` - at `$.positions[0].offset`"),
        ({"offfset": 5}, "positions.json holds no exported positions: Object contains unknown field `offfset`"),
        ({"task": "Partition_9"}, "application 'shop' has no task 'Partition_9'\nhint: did you mean 'Partition_"),
        ({"task": f"Partition_{(FULL + 1) % 4}"}, f"task Partition_{(FULL + 1) % 4} does not read partition {FULL} of stream"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(ran: Run, change: dict[str, Any], text: str) -> None:
    one = {"stream": "sales", "partition": FULL, "offset": 0} | change
    file = write(exported(ran) | {"positions": [one]})
    done = ran("checkpoint", "import", file, "--yes")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: {text}")
    assert asked(STARTPOINTS) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "positions.json holds no exported positions: Input data was truncated"),
        ("{'a': 1}", "positions.json holds no exported positions: JSON is malformed: object keys must be strings (byte 1)"),
        ("[]", "positions.json holds no exported positions: Expected `object`, got `array`"),
        ("{}", "positions.json holds no exported positions: Object missing required field `positions_version`"),
        ('{"positions_version": 2, "new": 1}', "positions.json has version 2 of exported positions, and version 1 is known"),
    ],
)
def test_a_file_that_is_something_else_is_refused(ran: Run, text: str, says: str) -> None:
    done = ran("checkpoint", "import", write(text), "--yes")
    assert (done.exit_code, done.stderr.startswith(f"error: {says}")) == (1, True), done.stderr


def test_a_position_is_there_once(ran: Run) -> None:
    one = {"stream": "sales", "partition": FULL, "offset": 0}
    done = ran("checkpoint", "import", write(exported(ran) | {"positions": [one, one | {"offset": 1}]}), "--yes")
    assert f"stream 'sales' partition {FULL} is there 2 times" in done.stderr


def test_files_that_cannot_be_read_or_written_are_named(ran: Run) -> None:
    assert ran("checkpoint", "import", "nowhere.json", "--yes").stderr.startswith("error: nowhere.json cannot be read: No such")
    done = ran("checkpoint", "export", "-o", "nowhere/positions.json")
    assert done.stderr.startswith("error: nowhere/positions.json cannot be written: No such file")
    written = ran("checkpoint", "export", "-o", "positions.json", "--json")
    assert json.loads(written.stdout) == {"application": "shop", "positions": 8, "file": "positions.json"}
    assert [path.name for path in Path().glob("*positions.json*")] == ["positions.json"]


def test_where_several_tasks_read_a_partition_each_has_its_own(fresh: Run) -> None:
    """A global table: all tasks read all of it."""
    Path("tills.py").write_text(
        "import headrace as hr\n"
        'app = hr.App("tills", system="log:./data")\n'
        'shops = app.global_table("shops", key=hr.String(), value=hr.String())\n'
        'sales = app.stream("sales", key=hr.String(), value=hr.String())\n'
        "sales.join(shops, lambda sale, shop: shop, key=lambda sale: sale.value, value=hr.String()).to('out')\n"
    )
    with hr.open_system("log:./data") as system:
        system.create_stream("sales", 2)
        system.create_stream("shops", 1)
        system.produce("shops", [("a", "x"), ("b", "y")], key=hr.String(), value=hr.String())
    caught_up(load_app("tills.py"))
    found = exported(fresh)
    shops = [one for one in found["positions"] if one["stream"] == "shops"]
    assert [(one["partition"], one["offset"], one["task"]) for one in shops] == [(0, 2, "Partition_0"), (0, 2, "Partition_1")]
    shops[1]["offset"] = 1
    done = json.loads(fresh("checkpoint", "import", write(found), "--yes", "--json").stdout)
    assert [(move["task"], move["now"], move["new"]) for move in done["moves"]] == [("Partition_1", 2, 1)]
