"""What a test needs is seen from its markers, fixtures and parameters, and says which tier and which process it is for."""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import tiers
from support.both_ends import FromBothEnds
from support.tiers import Need, heaviest_files_first, keep_files_in_memory, mark_units, need_of


class Item:
    """What is read of a collected test."""

    def __init__(self, name: str, *markers: Any, fixtures: tuple[str, ...] = (), **parameters: Any) -> None:
        self.path, self.name = Path(name.partition("::")[0]), name
        self.markers = {marker.name: marker.mark for marker in markers}
        self.fixturenames, self.callspec = fixtures, SimpleNamespace(params=parameters)

    def get_closest_marker(self, name: str) -> Any:
        return self.markers.get(name)

    def add_marker(self, marker: Any) -> None:
        self.markers[marker.name] = marker.mark


CASES = [
    (Item("a"), Need.NOTHING),
    (Item("a", system="log"), Need.NOTHING),
    (Item("a", system="kafka"), Need.KAFKA),
    (Item("a", zookeeper="memory"), Need.NOTHING),
    (Item("a", zookeeper="zookeeper"), Need.ZOOKEEPER),
    (Item("a", fixtures=("real_zookeeper",)), Need.ZOOKEEPER),
    (Item("a", fixtures=("kafka_server",), zookeeper="zookeeper"), Need.KAFKA),
    (Item("a", fixtures=("tmp_path", "kafka_server")), Need.KAFKA),
    (Item("a", pytest.mark.kafka), Need.KAFKA),
    (Item("a", pytest.mark.chaos, system="kafka"), Need.KILLS),
    (Item("a", pytest.mark.chaos, pytest.mark.spark), Need.SPARK),
]


@pytest.mark.parametrize(("item", "need"), CASES)
def test_a_test_needs_the_most_of_what_it_names(item: Any, need: Need) -> None:
    assert need_of(item) is need
    mark_units([item])
    assert ("unit" in item.markers) is (need is Need.NOTHING)


def test_a_long_search_is_no_unit() -> None:
    item: Any = Item("a", pytest.mark.search)
    mark_units([item])
    assert "unit" not in item.markers and need_of(item) is Need.NOTHING


def test_files_come_by_need_and_then_by_their_longest_limit_and_keep_their_order() -> None:
    names = ("unit::1", "kills::2", "kills::1", "storm::1", "spark::1", "storm::2")
    markers = {
        "storm::1": [pytest.mark.spark, pytest.mark.timeout(1800)],
        "spark::1": [pytest.mark.spark],
        "kills::1": [pytest.mark.chaos],
    }
    items: list[Any] = [Item(name, *markers.get(name, ())) for name in names]
    heaviest_files_first(items)
    assert [item.name for item in items] == ["storm::1", "storm::2", "spark::1", "kills::2", "kills::1", "unit::1"]


def test_the_second_process_takes_from_the_end_and_all_others_from_the_front() -> None:
    class Node:
        def __init__(self, name: str) -> None:
            self.gateway, self.given = SimpleNamespace(id=name), []

        def send_runtest_some(self, indices: list[int]) -> None:
            self.given += indices

    scheduler = FromBothEnds.__new__(FromBothEnds)
    names = [f"{file}::test" for file in "abcde"]
    scheduler.workqueue = OrderedDict((name[0], {name: False}) for name in names)
    first, second, third = (Node(f"gw{number}") for number in range(3))
    scheduler.assigned_work, scheduler.registered_collections = {}, dict.fromkeys((first, second, third), names)
    for node in (first, second, third, second, first):
        scheduler._assign_work_unit(node)
    assert (first.given, second.given, third.given) == ([0, 2], [4, 3], [1])


def test_folders_of_units_are_in_memory_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = "TMPDIR"
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    monkeypatch.setenv(root, "")  # for it to be put back
    monkeypatch.setattr(tiers, "MEMORY_BYTES_MIN", 1)
    for tier, memory, expected in (("unit", tmp_path / "none", None), ("", tmp_path, None), ("unit", tmp_path, str(tmp_path))):
        monkeypatch.delenv(root, raising=False)
        keep_files_in_memory(tier, memory)
        assert os.environ.get(root) == expected
    assert tempfile.gettempdir() == str(tmp_path)
    keep_files_in_memory("unit", tmp_path.parent)
    assert os.environ[root] == str(tmp_path), "somebody has said where"
    monkeypatch.setattr(tiers, "MEMORY_BYTES_MIN", 1 << 60)
    monkeypatch.delenv(root)
    keep_files_in_memory("unit", tmp_path)
    assert root not in os.environ
