"""Local stores are a cache: deleted, cut, flipped or of another run, what the job writes stays right."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.world import PARTITIONS, SeededWorld
from support.checker import KillReport
from support.children import Children, report_of
from support.world import Place

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(200)]
SEED = 20262


def data_files(stores: Path) -> list[Path]:
    return sorted(stores.rglob("data.mdb"))


def flip(draw: random.Random, stores: Path) -> None:
    """Flip one bit of one store, anywhere in its file."""
    path = draw.choice(data_files(stores))
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def cut(draw: random.Random, stores: Path) -> None:
    path = draw.choice(data_files(stores))
    with path.open("r+b") as file:
        file.truncate(draw.randrange(path.stat().st_size))


def delete(draw: random.Random, stores: Path) -> None:
    shutil.rmtree(stores)


def delete_one(draw: random.Random, stores: Path) -> None:
    draw.choice(data_files(stores)).unlink()


FAULTS: list[tuple[str, Callable[[random.Random, Path], None]]] = [
    *[("flipped", flip)] * 10,
    *[("cut", cut)] * 2,
    ("deleted", delete),
    ("one deleted", delete_one),
]


def test_damaged_stores_are_found_and_rebuilt(tmp_path: Path, children: Children) -> None:
    draw = random.Random(SEED)
    report = KillReport()
    world = SeededWorld(tmp_path, Place(), children, SEED)
    world.produce(200)
    world.finish()
    for name, fault in FAULTS:
        fault(draw, world.folder / "stores")
        report.fault("between runs", name, landed=True)
        world.produce(40)
        for _ in range(3):  # LMDB may fault on what it maps; that ends the process, and the next one knows
            run = world.run_of()
            code = children.finish(run)
            if code >= 0:
                break
        assert code == 0, (name, report_of(run))
    world.judge(report)
    print(report)
    report.verify(landed_min=len(FAULTS))


def test_stores_of_another_log_s_run_are_not_taken_for_ours(tmp_path: Path, children: Children) -> None:
    """Two logs with an application of the same name that share a folder of stores: each finds the other's state."""
    worlds = [SeededWorld(tmp_path, Place(), children, SEED + number) for number in range(2)]
    for world in worlds:
        world.name = "shared"
        world.system.create_stream(world.stream("in"), PARTITIONS)
    for _ in range(3):
        for world in worlds:
            world.produce(50)
            world.finish(stores=str(tmp_path / "shared-stores"))
    report = KillReport()
    for world in worlds:
        world.judge(report)
    report.verify(landed_min=0)
