"""The outputs of several tasks are joined: no task's records change places, and where each is in order the whole is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.worker import outputs as task_outputs
from headrace.worker.outputs import FINISH, Outputs, TaskOutputs, output_table

Origin = tuple[int, int]  # SSP, offset


def add(task: TaskOutputs, origins: list[Origin], texts: list[str]) -> None:
    count = len(origins)
    ssps, offsets = (np.array([origin[at] for origin in origins], np.int64) for at in (0, 1))
    values = pa.array([text.encode() for text in texts], pa.binary())
    table = output_table(values, values, np.zeros(count, np.int64), None)
    task.add("out", table, None, offsets, np.arange(count) % 3, ssps=ssps)


def texts_of(outputs: Outputs) -> list[str]:
    return [key.as_py().decode() for _, batch, _ in outputs.batches() for key in batch.column(0)]


PIECES = [(256 * 1024 * 1024, 50_000), (300, 50_000), (256 * 1024 * 1024, 7), (100, 20)]


@pytest.mark.parametrize(("piece_bytes", "piece_records"), PIECES)
def test_virtual_tasks_write_in_the_order_of_the_whole_task(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int, piece_records: int
) -> None:
    monkeypatch.setattr(task_outputs, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(task_outputs, "PIECE_RECORDS", piece_records)

    @settings(max_examples=200, deadline=None)
    @given(
        owners=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=60),  # task, and copies less one
        sections=st.lists(st.integers(0, FINISH + 1), max_size=3),
        sizes=st.lists(st.integers(1, 7), min_size=1),
        ssps=st.integers(1, 3),
        high=st.sampled_from([0, 2**40, 2**62]),
    )
    def check(owners: list[tuple[int, int]], sections: list[int], sizes: list[int], ssps: int, high: int) -> None:
        records = [(number * ssps // max(1, len(owners)), high + number) for number in range(len(owners))]
        outputs, whole = Outputs({"out": 3}), list[str]()
        tasks = [outputs.of_task() for _ in range(4)]
        for section in sorted({*sections, 1}):
            texts = [
                [f"{section} {ssp} {offset} {copy}" for copy in range(copies + 1)]
                for (ssp, offset), (_, copies) in zip(records, owners, strict=True)
            ]
            whole += [text for mine in texts for text in mine]
            for number, task in enumerate(tasks):
                task.section = section
                mine = [
                    (origin, text)
                    for origin, own, (owner, _) in zip(records, texts, owners, strict=True)
                    for text in own
                    if owner == number
                ]
                at = 0
                while mine[at:]:
                    size = sizes[at % len(sizes)]
                    add(task, [origin for origin, _ in mine[at : at + size]], [text for _, text in mine[at : at + size]])
                    at += size
        assert texts_of(outputs) == whole
        assert outputs.records["out"] == len(whole)

    check()


@pytest.mark.parametrize("piece_records", [50_000, 5])
@settings(max_examples=200, deadline=None)
@given(
    emitted=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(-1, 9) | st.integers(0, 10_000)), max_size=40)
)
def test_no_tasks_records_change_places(piece_records: int, emitted: list[tuple[int, int, int]]) -> None:
    """Also where it emits what came of a later record first, as timers, joins and suppressed results do."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(task_outputs, "PIECE_RECORDS", piece_records)
        _check_that_no_tasks_records_change_places(emitted)


def _check_that_no_tasks_records_change_places(emitted: list[tuple[int, int, int]]) -> None:
    outputs = Outputs({"out": 3})
    tasks = [outputs.of_task() for _ in range(3)]
    texts: list[list[str]] = [[], [], []]
    for number, (task, ssp, offset) in enumerate(emitted):
        add(tasks[task], [(ssp, offset)], [f"{task} {number}"])
        texts[task].append(f"{task} {number}")
    found = texts_of(outputs)
    for task in range(3):
        assert [text for text in found if text.startswith(f"{task} ")] == texts[task]
    assert sorted(found) == sorted(text for mine in texts for text in mine)


def test_dead_letters_come_last_and_partitions_go_with_their_records() -> None:
    outputs = Outputs({"out": 3})
    first, second = outputs.of_task(), outputs.of_task()
    add(second, [(0, 2), (0, 4)], ["b", "d"])
    add(first, [(0, 1), (0, 3), (0, 5)], ["a", "c", "e"])
    table = output_table(pa.array([b"x"], pa.binary()), pa.array([b"x"], pa.binary()), np.zeros(1, np.int64), None)
    outputs.add("out", table, None, np.zeros(1, np.int64), np.array([1]))
    found: list[tuple[str, Any]] = []
    for _, batch, partitions in outputs.batches():
        found += zip((key.as_py().decode() for key in batch.column(0)), partitions.tolist(), strict=True)
    assert found == [("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 2), ("x", 1)]
