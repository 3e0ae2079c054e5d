"""Random topologies and data: every output agrees with a plain model, on both systems, with a SIGKILL in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import TopologyError
from headrace.testing import Driver, KafkaServer
from topologies.judging import judge
from topologies.topology import Spec, build, drawn, inputs_of

CHILD = Path(__file__).with_name("child.py")
RECORDS = 60
SEEDS = range(5)
STEPS = {"log": range(1, 13), "kafka": range(1, 12)}


@given(st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_every_output_agrees_with_the_model(draw: Random) -> None:
    spec = drawn(draw, "random")
    inputs = inputs_of(draw, spec, RECORDS)
    try:
        app = build(spec)
        driver = Driver(app, partitions={f"random-{stream}": spec.partitions for stream in inputs}).open()
    except TopologyError:
        assume(False)
    with driver as d:
        for stream, records in inputs.items():
            for number, record in enumerate(records):
                d.send(f"random-{stream}", record.key, record.value, at=record.timestamp_us)
                if number % 25 == 24:
                    d.run()
        d.run()
        judge(spec, inputs, d._system)


@pytest.mark.chaos
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("system", ["log", "kafka"])
def test_a_kill_in_between_changes_nothing(
    system: str, seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"log:{tmp_path / 'log'}"
    if system == "kafka":
        server: KafkaServer = request.getfixturevalue("kafka_server")
        url = f"kafka://{server.bootstrap}"
    draw = Random(seed)
    spec, inputs = startable(draw)
    places = {"system": url, "local_store_dir": str(tmp_path / "stores"), "state_uri": str(tmp_path / "state")}
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({"spec": asdict(spec), "keys": places}))
    with hr.open_system(url) as opened:
        for stream, records in inputs.items():
            opened.create_stream(f"{spec.name}-{stream}", spec.partitions)
            opened.produce(f"{spec.name}-{stream}", records, key=hr.String(), value=hr.Json())
        trap = f"kill:{system}:{draw.choice(STEPS[system])}:{draw.randint(1, 3)}"
        codes = [run(file, HEADRACE_TEST_STEPS=trap), run(file)]
        assert codes[0] in (0, -9) and codes[1] == 0, f"{trap}: {codes}"
        assert judge(spec, inputs, opened) > 0


def startable(draw: Random) -> tuple[Spec, dict[str, list[hr.Record]]]:
    """The first that can be started of those that are drawn."""
    while True:
        spec = drawn(draw, f"random-{uuid.uuid4().hex[:8]}")
        try:
            with Driver(build(spec), partitions={f"{spec.name}-{s}": spec.partitions for s in ("a", "b")}):
                return spec, inputs_of(draw, spec, RECORDS)
        except TopologyError:
            continue


def run(file: Path, **variables: str) -> Any:
    """The exit code of a run."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_TEST_")}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, str(CHILD), str(file)]
    done = subprocess.run(command, env=environ | variables, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode in (0, -9), done.stderr[-3000:]
    return done.returncode
