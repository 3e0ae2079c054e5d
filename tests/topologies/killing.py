"""A random topology that is killed at a random step, finishes, and is judged: for the tests, and for the soak."""

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

import headrace as hr
from headrace.errors import TopologyError
from headrace.testing import Driver
from topologies.building import build
from topologies.drawing import from_seed
from topologies.judging import judge
from topologies.spec import Spec

CHILD = Path(__file__).with_name("child.py")
STEPS = {"log": range(1, 13), "kafka": range(1, 12)}


def kill_case(draw: Random, url: str, folder: Path) -> int:
    """Run a drawn topology on the system at `url`, twice, with a kill in the first run; how many records were compared."""
    system = url.partition(":")[0]
    spec, records = startable(draw)
    places = {"system": url, "local_store_dir": str(folder / "stores"), "state_uri": str(folder / "state")}
    case, told = folder / "case.json", folder / "told.jsonl"
    case.write_text(json.dumps({"spec": asdict(spec), "keys": places, "told": str(told)}))
    with hr.open_system(url) as opened:
        for stream in spec.inputs:
            name = spec.input_name(stream)
            opened.create_stream(name, spec.partitions[stream])
            mine = [hr.Record(key, value, time_us) for to, key, value, time_us in records if to == stream]
            opened.produce(name, mine, key=hr.String(), value=hr.Json())
        trap = f"kill:{system}:{draw.choice(STEPS[system])}:{draw.randint(1, 4)}"
        codes = [run(case, HEADRACE_TEST_STEPS=trap), run(case)]
        assert codes[0] in (0, -9) and codes[1] == 0, f"{trap}: {codes}"
        plans = map(json.loads, told.read_text().splitlines())
        return judge(spec, records, plans, opened)


def startable(draw: Random) -> tuple[Spec, Any]:
    """The first that can be started of those that are drawn."""
    while True:
        drawn = from_seed(draw)
        spec = drawn.spec(f"random-{uuid.uuid4().hex[:8]}")
        try:
            with Driver(build(spec), partitions={spec.input_name(s): spec.partitions[s] for s in spec.inputs}):
                return spec, drawn.records(spec)
        except TopologyError:
            continue


def run(case: Path, **variables: str) -> Any:
    """The exit code of a run."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_TEST_")}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, str(CHILD), str(case)]
    done = subprocess.run(command, env=environ | variables, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode in (0, -9), done.stderr[-3000:]
    return done.returncode
