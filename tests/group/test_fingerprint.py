"""The fingerprint of code: equal for one application wherever it runs, another for each change that makes another plan."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.config.loading import load_config
from headrace.core.topology.fingerprint import code_fingerprint, code_lines

VERSIONS = {"Headrace": "1", "PySpark": "4"}
SOURCE = '''
import headrace as hr

class Keep(hr.Processor):
    stores = [hr.KeyValueStore("kept", value=hr.Json())]
    def process(self, record): ...

def carrier(flight):
    return flight.value["carrier"]

app = hr.App("flights", "kafka://127.0.0.1:1")
flights = app.stream("flights", key=hr.String(), value=hr.Json("carrier string, delay int"))
late = flights.filter("value.delay > 0").select_key(carrier, key=hr.String())
by = late.group_by_key(hr.Repartitioned(number_of_partitions=4))
by.windowed_by(hr.Tumbling("1 hour")).aggregate(n=hr.count(), mean=hr.mean("value.delay"), store="delays").to_stream().to("out")
by.aggregate(initial=dict, function=lambda state, record: state, value=hr.Json(), store="all").to_stream().to("all")
flights.join(app.table("names", key=hr.String(), value=hr.Json()), lambda left, right: left, value=hr.Json()).to("named")
flights.process(Keep, name="keep", key=hr.String(), value=hr.Json()).to("kept")
'''


def topology_of(source: str, file: str = "flights.py") -> Any:
    names: dict[str, Any] = {"__name__": "flights"}
    exec(compile(source, file, "exec"), names)
    return names["app"].topology()


def fingerprint(source: str = SOURCE, file: str = "flights.py", **keys: Any) -> str:
    return code_fingerprint(topology_of(source, file), load_config(None, {}, keys).plan_settings, VERSIONS)


def test_lines_and_folders_of_a_file_do_not_count() -> None:
    moved = SOURCE.replace("def carrier", "\n\n# a comment\ndef carrier")
    assert fingerprint() == fingerprint(moved, "/opt/elsewhere/other.py")


def test_two_processes_have_the_same(tmp_path: Path) -> None:
    """With other seeds of hashes, in other folders, by other names of the module."""
    command = "import sys; from group.test_fingerprint import fingerprint; print(fingerprint())"
    tests = Path(__file__).parents[1]
    found = set()
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", command],
            env={"PYTHONPATH": f"{tests}:{tests.parent / 'src'}", "PYTHONHASHSEED": seed},
            cwd=folder, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        found.add(done.stdout.strip())
    assert found == {fingerprint()}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('App("flights"', 'App("other"'),
        ('stream("flights"', 'stream("flights-2"'),
        ('"out"', '"out-2"'),
        ("carrier string", "carrier long"),
        ("value.delay > 0", "value.delay > 1"),
        ("carrier, key=hr.String()", "carrier, key=hr.Bytes()"),
        ("number_of_partitions=4", "number_of_partitions=8"),
        ("number_of_partitions=4", ""),
        ("1 hour", "2 hours"),
        ("mean=hr.mean", "low=hr.min"),
        ('n=hr.count(), mean=hr.mean("value.delay")', 'mean=hr.mean("value.delay"), n=hr.count()'),
        ('store="delays"', 'store="late"'),
        ("flights.join", "flights.left_join"),
        ('"kept", value=hr.Json()', '"kept", value=hr.Long()'),
        ('"kept", value=hr.Json()', '"kept", value=hr.Json(), ttl="1 day"'),
        ('name="keep"', 'name="hold"'),
        ("Keep", "Hold"),
        ('flights.process(Keep, name="keep", key=hr.String(), value=hr.Json()).to("kept")', ""),
        ('app.stream("flights",', 'app.stream("flights", reset_offset=True,'),
        ("carrier", "airline"),
        ("initial=dict", "initial=list"),
    ],
)
def test_another_operator_stream_serde_store_or_count_is_another(before: str, after: str) -> None:
    assert before in SOURCE
    assert fingerprint(SOURCE.replace(before, after)) != fingerprint()


@pytest.mark.parametrize(
    "keys",
    [
        {"containers": 2},
        {"containers.source": 2},
        {"elasticity_factor": 2},
        {"ssp_grouper": "system_stream_partition"},
        {"ssp_grouper": hr.GroupByPartition},
        {"dead_letter_stream": "bad"},
        {"on_lost_offsets": "latest"},
        {"drop_stores": "a"},
        {"rename_stores": "a=b"},
    ],
)
def test_a_setting_that_shapes_plans_makes_another(keys: dict[str, Any]) -> None:
    assert fingerprint(**keys) != fingerprint()


@pytest.mark.parametrize(
    "keys",
    [
        {"local_store_dir": "/elsewhere"},
        {"processor_id": "b"},
        {"location_id": "host-2"},
        {"state_uri": "/state"},
        {"system": "kafka://127.0.0.1:1,127.0.0.1:2"},
        {"kafka.client.id": "me"},
        {"spark.driver.memory": "2g"},
        {"max_round_ms": 5},
        {"on_lost_offsets": "fail"},  # the default
    ],
)
def test_what_is_of_one_processor_does_not_count(keys: dict[str, Any]) -> None:
    assert fingerprint(**keys) == fingerprint()


def test_other_versions_make_another() -> None:
    topology = topology_of(SOURCE)
    found = {code_fingerprint(topology, {}, versions) for versions in (VERSIONS, {**VERSIONS, "PySpark": "5"}, {})}
    assert len(found) == 3


def started_at(start: Any) -> str:
    app = hr.App("flights", "kafka://127.0.0.1:1")
    app.stream("flights", start=start, key=hr.String(), value=hr.Json()).to("out")
    return code_fingerprint(app.topology(), {}, {})


def test_a_start_counts_but_for_its_moment() -> None:
    starts = ["earliest", "latest", 5, 6, "2026-01-01T00:00:00Z"]
    assert len({*map(started_at, starts)}) == 5
    assert started_at(starts[-1]) == started_at("2026-02-01T00:00:00Z")


@pytest.mark.parametrize("function", [lambda flight: True, lambda flight: False])
def test_what_a_function_does_is_not_compared(function: Callable[[Any], bool]) -> None:
    """As it is while new code is rolled out."""
    app = hr.App("flights", "kafka://127.0.0.1:1")
    app.stream("flights", key=hr.String(), value=hr.Json()).filter(function).to("out")
    text = "\n".join(code_lines(app.topology(), {}, {}))
    assert "<lambda>'" in text and "0x" not in text and ".py" not in text
