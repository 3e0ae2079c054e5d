"""Random topologies and data: every output agrees with plain models, on both systems, with a SIGKILL in between."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given, settings

from headrace.errors import TopologyError
from headrace.testing import Driver, KafkaServer
from headrace.testing import driver as driver_module
from topologies.building import build
from topologies.drawing import DRAWN, Drawn
from topologies.judging import judge
from topologies.killing import kill_case
from topologies.recording import Told, recording

SEEDS = range(5)


@given(DRAWN)
@settings(max_examples=60)
def test_every_output_agrees_with_the_models(drawn: Drawn) -> None:
    spec = drawn.spec("random")
    records = drawn.records(spec)
    pauses = dict(drawn.pauses)
    told: list[Told] = []
    driver = Driver(build(spec), partitions={spec.input_name(stream): spec.partitions[stream] for stream in spec.inputs})
    run = recording(driver_module.run_container, lambda: driver._system, told.append)
    with mock.patch.object(driver_module, "run_container", run):
        try:
            driver.open()
        except TopologyError:
            assume(False)
    try:
        for number, (stream, key, value, time_us) in enumerate(records):
            driver.send(spec.input_name(stream), key, value, at=time_us)
            if number in pauses:
                driver.run()
                if pauses[number]:
                    driver.advance("1 hour")
                    driver.run()
        driver.run()
        judge(spec, records, told, driver._system)
    finally:
        driver.close()


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
    compared: Any = kill_case(Random(seed), url, tmp_path)
    assert compared > 0
