"""Random topologies for `scripts/soak.py`: some at work in this process, and on each system one that is killed."""

from __future__ import annotations

from pathlib import Path
from random import Random

from headrace.testing import KafkaServer
from topologies.drawing import from_seed
from topologies.driving import driven
from topologies.killing import kill_case

DRIVEN = 25


def topologies_run(folder: Path, seed: int, broker: KafkaServer) -> tuple[int, int]:
    """How many topologies were judged, and how many records were compared; an error names what fails."""
    draw = Random(seed)
    compared = [driven(from_seed(draw)) or 0 for _ in range(DRIVEN)]
    for url in (f"log:{folder / 'log'}", f"kafka://{broker.bootstrap}"):
        place = folder / url.partition(":")[0]
        place.mkdir(parents=True, exist_ok=True)
        compared.append(kill_case(draw, url, place))
    return len(compared), sum(compared)
