"""Random topologies and data: every output agrees with plain models, on both systems, with a SIGKILL in between."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given, settings

from headrace.testing import KafkaServer
from topologies.drawing import DRAWN, Drawn
from topologies.driving import driven
from topologies.killing import kill_case

SEEDS = [("log", 0), ("kafka", 2)]  # `make soak` takes others


@given(DRAWN)
@settings(max_examples=max(40, settings().max_examples // 10))
def test_every_output_agrees_with_the_models(drawn: Drawn) -> None:
    assume(driven(drawn) is not None)


@pytest.mark.chaos
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("system", "seed"), SEEDS)
def test_a_kill_in_between_changes_nothing(
    system: str, seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"log:{tmp_path / 'log'}"
    if system == "kafka":
        server: KafkaServer = request.getfixturevalue("kafka_server")
        url = f"kafka://{server.bootstrap}"
    assert kill_case(Random(seed), url, tmp_path) > 0
