"""A round is told to stop or to end soon, whenever it ends by itself meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.driver.rounds.sub_topology_rounds import SubTopologyRunner


@pytest.mark.parametrize(("flag", "name"), [(SubTopologyRunner.stop_flag, "stopped"), (SubTopologyRunner.cut_flag, "cut")])
def test_a_round_whose_folder_is_deleted_meanwhile_needs_no_flag(flag: Any, name: str, tmp_path: Path) -> None:
    staging = tmp_path / "round"
    rounds = SubTopologyRunner.__new__(SubTopologyRunner)
    rounds._plans = SimpleNamespace(staging_of=lambda _: staging)  # type: ignore[assignment]
    ended = threading.Event()

    def end_rounds() -> None:
        while not ended.is_set():
            for file in list(staging.glob("*")) if staging.exists() else []:
                file.unlink(missing_ok=True)
            try:
                staging.rmdir()
            except OSError:  # it is not there, or has a flag again
                continue

    ending = threading.Thread(target=end_rounds)
    ending.start()
    try:
        for _ in range(3_000):
            flag(rounds, SimpleNamespace(id=1))
    finally:
        ended.set()
        ending.join()
    flag(rounds, SimpleNamespace(id=1))
    assert [file.name for file in staging.iterdir()] == [name], "a round that still runs is told"
