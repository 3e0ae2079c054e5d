"""Other factors together with all else that changes a job: startpoints, replays, rewinds, expansions, inputs out and in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import xxhash

import headrace as hr
from elasticity.stepping import checkpoints, history, replan, rounds, scales_of, startpoints_of
from headrace.core.keys.compaction import borrowed
from headrace.errors import StartpointError
from headrace.model.change import Outcome
from headrace.testing import Driver

KEYS = [f"k{number}" for number in range(16)]
TEXT, JSON, LONG = hr.String(), hr.Json(), hr.Long()


def counting(factor: int = 1, inputs: tuple[str, ...] = ("in",), **keys: Any) -> hr.App:
    app = hr.App("all", elasticity_factor=factor, **keys)
    rows = app.stream(inputs[0], key=TEXT, value=JSON)
    for other in inputs[1:]:
        rows = rows.merge(app.stream(other, key=TEXT, value=JSON))
    rows.group_by_key().count(store="counts").to_stream(emit="each").to("out", value=LONG)
    return app


def send(driver: Driver, each: int, stream: str = "in") -> None:
    for number in range(each):
        for key in KEYS:
            driver.send(stream, key, {"n": number})


def counts(driver: Driver) -> dict[str, int]:
    return dict(driver.store("counts").all())


def all_at(number: int) -> dict[str, int]:
    return dict.fromkeys(KEYS, number)


# --- startpoints and replays ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factors", [(1, 4), (4, 1), (4, 8, 2)])
def test_a_startpoint_and_another_factor_in_one_plan(factors: tuple[int, ...]) -> None:
    with Driver(counting(factors[0])) as driver:
        send(driver, 3)
        driver.run()
        for turn, factor in enumerate(factors[1:], start=1):
            driver.startpoint("in", "earliest")
            driver.elasticity(factor)
            driver.run()
            assert counts(driver) == all_at(3 + 3 * turn)


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (2, 8), (8, 2)])
def test_a_pending_startpoint_is_spent_once_behind_a_change(before: int, after: int) -> None:
    with Driver(counting(before)) as driver:
        send(driver, 3)
        driver.run()
        driver.startpoint("in", "earliest")
        replan(driver)
        assert {one.positions[ssp] for one in checkpoints(driver).values() for ssp in one.positions} == {0}
        driver.elasticity(after)
        replan(driver)
        assert len(checkpoints(driver)) == after
        driver.run()
        assert counts(driver) == all_at(6)
        with startpoints_of(driver) as points:
            assert [one.status for one in points.list()] == ["applied"]
        driver.run()
        assert counts(driver) == all_at(6)


@pytest.mark.parametrize(("before", "after"), [(1, 4), (2, 8), (4, 1), (8, 2)])
def test_a_pending_startpoint_can_be_deleted_behind_a_change(before: int, after: int) -> None:
    with Driver(counting(before)) as driver:
        send(driver, 3)
        driver.run()
        (id_,) = driver.startpoint("in", "earliest")
        replan(driver)
        driver.elasticity(after)
        replan(driver)
        with startpoints_of(driver) as points:
            points.delete(id_)
        driver.run()
        assert counts(driver) == all_at(3)


NOON_US = 1_700_000_000_000_000
PLACES: list[tuple[Any, int | None, int]] = [
    ("earliest", None, 6),
    ("bootstrap", None, 6),
    (48, None, 3),
    (hr.Startpoint(hr.PositionType.TIMESTAMP, NOON_US + 4), None, 2),
    ("latest", None, 0),
    ("earliest", 1, 6),
    (48, 1, 3),
]


@pytest.mark.parametrize(("place", "bucket", "again"), PLACES, ids=str)
def test_a_startpoint_of_any_type_means_the_same_records_under_a_factor(place: Any, bucket: int | None, again: int) -> None:
    """Each round of records has one record of each key, at one time. `again`: how many rounds are read again."""
    with Driver(counting(4)) as driver:
        for number in range(6):
            for key in KEYS:
                driver.send("in", key, {}, at=NOON_US + number)
        driver.run()
        driver.startpoint("in", place, task=None if bucket is None else f"Partition_0-{bucket}-4")
        driver.run()
        concerned = [key for key in KEYS if bucket is None or bucket_of(key, 4) == bucket]
        assert 0 < len(concerned) <= 16
        assert counts(driver) == {key: 6 + (again if key in concerned else 0) for key in KEYS}
        send(driver, 1)
        driver.run()
        with startpoints_of(driver) as points:
            assert [one.status for one in points.list()] == ["applied"]


def bucket_of(key: str, factor: int) -> int:
    return xxhash.xxh64(key.encode(), seed=42).intdigest() % factor


@pytest.mark.parametrize("factor", [4, 8])
def test_a_bootstrap_holds_the_other_inputs_of_all_virtual_tasks(factor: int) -> None:
    app = hr.App("all", elasticity_factor=factor)
    rows = app.stream("in", key=TEXT, value=JSON).merge(app.stream("more", key=TEXT, value=JSON))
    rows.map_values(lambda record: [record.stream, record.value["n"]], value=JSON).to("out")
    with Driver(app, overrides=["max_records_per_round=20"]) as driver:
        send(driver, 5, "more")
        driver.run()
        driver.read("out")
        driver.startpoint("more", "bootstrap")
        send(driver, 5)
        driver.run()
        given = [(record.key, *record.value) for record in driver.read("out")]
        for key in KEYS:
            assert [(stream, n) for of, stream, n in given if of == key] == [
                (stream, n) for stream in ("more", "in") for n in range(5)
            ]


def test_what_is_written_again_has_the_header_and_nothing_else_whatever_the_factor() -> None:
    with Driver(counting(1), overrides=["max_records_per_round=10"]) as driver:
        send(driver, 4)
        driver.run()
        first = len(driver.read("out"))
        driver.startpoint("in", "earliest")
        send(driver, 2)
        replan(driver)
        for factor in (8, 2):
            rounds(driver, 2)
            driver.elasticity(factor)
            replan(driver)
        driver.run()
        again = [dict(record.headers).get("headrace.replay") for record in driver.read("out")]
        assert first == 64 and Counter(again) == {b"1": 64, None: 32}
        assert counts(driver) == all_at(4 + 4 + 2)


def test_a_startpoint_for_a_virtual_task_means_those_that_have_its_keys_now() -> None:
    with Driver(counting(4)) as driver:
        send(driver, 2)
        driver.run()
        driver.startpoint("in", "earliest", task="Partition_0-1-4")
        driver.elasticity(8)
        driver.run()
        eighth = {key for key, count in counts(driver).items() if count == 4}
        driver.elasticity(4)
        driver.run()
        driver.startpoint("in", "earliest", task="Partition_0-1-4")
        driver.run()
        assert {key for key, count in counts(driver).items() if count == 6} == eighth
        assert set(counts(driver).values()) == {2, 6}


# --- tasks that are apart ---------------------------------------------------------------------------------------------


def test_tasks_that_are_apart_are_brought_together_before_they_are_merged() -> None:
    with Driver(counting(4), overrides=["max_records_per_round=7"]) as driver:
        send(driver, 6)
        driver.run()
        driver.startpoint("in", "earliest", task="Partition_0-2-4")
        replan(driver)
        rounds(driver, 2)
        assert len({tuple(one.positions.values()) for one in checkpoints(driver).values()}) == 2
        driver.elasticity(1)
        send(driver, 1)
        driver.run()
        assert list(checkpoints(driver)) == ["Partition_0"]
        assert Counter(counts(driver).values()).keys() <= {7, 13}
        assert [(one.outcome, one.after) for one in history(driver)] == [(Outcome.APPLIED, "factor 1, containers automatic")]


def test_a_start_with_another_factor_over_tasks_that_are_apart_comes_up_with_the_old_one(tmp_path: Path) -> None:
    with Driver(counting(8), directory=tmp_path, overrides=["max_records_per_round=7"]) as driver:
        send(driver, 6)
        driver.run()
        driver.startpoint("in", "earliest", task="Partition_0-5-8")
        replan(driver)
        rounds(driver, 1)
    with Driver(counting(2), directory=tmp_path) as driver:
        assert len(checkpoints(driver)) == 8, "their positions differ"
        driver.run()
        assert list(checkpoints(driver)) == ["Partition_0-0-2", "Partition_0-1-2"]
        assert set(counts(driver).values()) <= {6, 12}


# --- rewinds ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def rewinding() -> Iterator[Driver]:
    with Driver(counting(2), overrides=["keep_state_versions=10", "state_version_interval_s=0"]) as driver:
        yield driver


@pytest.mark.parametrize("factors", [(2, 8), (2, 1), (2, 8, 1), (2, 1, 4)])
def test_going_back_across_changes_counts_each_record_once(rewinding: Driver, factors: tuple[int, ...]) -> None:
    driver = rewinding
    for factor in factors:
        if factor != 2:
            driver.elasticity(factor)
        send(driver, 2)
        driver.run()
        driver.advance("2 minutes")
    total = 2 * len(factors)
    for offset in (16 * (total - 1), 16 * 3, 5):
        driver.startpoint("in", offset, state="rewind")
        driver.run()
        assert counts(driver) == all_at(total), f"back to {offset}"
        driver.advance("2 minutes")


def behind_a_repartition(factor: int) -> hr.App:
    app = hr.App("all", elasticity_factor=factor)
    rows = app.stream("in", key=TEXT, value=JSON)
    rows.group_by_key().count(store="counts")
    grouped = rows.group_by(lambda record: f"g{record.value['n']}", hr.Repartitioned(name="by-n"), key=TEXT)
    grouped.count(store="groups").to_stream().to("out", value=LONG)
    return app


def test_going_back_across_a_repartition_and_changes_on_either_side() -> None:
    overrides = ["keep_state_versions=10", "state_version_interval_s=0"]
    with Driver(behind_a_repartition(2), overrides=overrides) as driver:
        sent = 0
        for sub, factor in ((None, 2), ("source", 8), ("by-n", 1), ("source", 1)):
            if sub is not None:
                driver.elasticity(factor, sub_topology=sub)
            send(driver, 3)
            sent += 3
            driver.run()
            driver.advance("2 minutes")
        expected = {f"g{number}": 16 * 4 for number in range(3)}
        assert counts(driver) == all_at(sent) and driver.store("groups").all() == expected
        for offset in (16 * 10, 16 * 5, 0):
            driver.startpoint("in", offset, state="rewind")
            driver.run()
            assert counts(driver) == all_at(sent), f"back to {offset}"
            assert driver.store("groups").all() == expected
            driver.advance("2 minutes")


def test_a_rewind_cannot_be_undone_behind_a_change(rewinding: Driver) -> None:
    driver = rewinding
    send(driver, 2)
    driver.run()
    driver.advance("2 minutes")
    send(driver, 2)
    driver.run()
    driver.advance("2 minutes")
    (id_,) = driver.startpoint("in", 0, state="rewind")
    replan(driver)
    with scales_of(driver) as scales:
        assert scales.preview(4).for_good == (id_,), "it is told before"
        assert scales.preview(containers=3).for_good == ()
    driver.elasticity(4)
    replan(driver)
    with startpoints_of(driver) as points, pytest.raises(StartpointError, match="it cannot be deleted any more"):
        points.delete(id_)
    driver.run()
    assert counts(driver) == all_at(4)
    with scales_of(driver) as scales:
        assert scales.preview(8).for_good == ()


# --- expansions and edits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factors", [(4, 2), (1, 4), (2, 8, 1)])
def test_expansions_and_changes_in_any_order(factors: tuple[int, ...]) -> None:
    with Driver(counting(factors[0]), partitions=2) as driver:
        send(driver, 2)
        driver.run()
        partitions, sent = 2, 2
        for factor in factors[1:]:
            partitions *= 2
            driver.elasticity(factor)
            send(driver, 1)
            driver.expand("in", partitions)
            send(driver, 2)
            sent += 3
            driver.run()
            assert counts(driver) == all_at(sent)
            assert len(checkpoints(driver)) == 2 * factor


def test_an_input_that_is_out_for_a_while_is_put_back_under_another_factor(tmp_path: Path) -> None:
    def driver_of(factor: int, *inputs: str) -> Driver:
        return Driver(counting(factor, inputs), directory=tmp_path, partitions={"in": 1, "more": 1})

    with driver_of(4, "in", "more") as driver:
        send(driver, 2)
        send(driver, 3, "more")
        driver.run()
    with driver_of(4, "in") as driver:
        send(driver, 1)
        driver.run()
        with hr.open_system(driver._config().system) as system:
            system.produce("more", [hr.Record(key.encode(), b'{"n":9}', 0) for key in KEYS])
        driver.elasticity(2)
        driver.run()
        assert counts(driver) == all_at(6)
    with driver_of(2, "in", "more") as driver:
        driver.run()
        assert counts(driver) == all_at(7)


# --- state ----------------------------------------------------------------------------------------------------------------


def test_split_and_back_before_a_commit_is_as_if_nothing_had_been() -> None:
    with Driver(counting(2)) as driver:
        for _ in range(5):
            send(driver, 2)
            driver.run()
        before = checkpoints(driver)
        for factor in (16, 2, 1, 2):
            driver.elasticity(factor)
            replan(driver)
            if factor == 2:
                after = checkpoints(driver)
                assert {task: one.head for task, one in after.items()} == {task: one.head for task, one in before.items()}
                assert {task: one.positions for task, one in after.items()} == {t: one.positions for t, one in before.items()}
        send(driver, 1)
        driver.run()
        assert counts(driver) == all_at(11)


@pytest.mark.parametrize("containers", [1, 2])
def test_one_task_of_a_container_writes_a_snapshot_in_a_round_after_a_split(containers: int) -> None:
    """Not all of them at once, which would make that round long; and each has one in the end."""
    with Driver(counting(1, containers=containers)) as driver:
        for number in range(3_000):  # so many that a few rounds do not make a snapshot due by their size
            driver.send("in", f"k{number}", {"n": number})
        driver.run()
        driver.elasticity(8)
        replan(driver)
        still = [8]
        for _ in range(8 // containers):
            for number in range(64):  # some of each task
                driver.send("in", f"k{number}", {"n": number})
            driver.run()
            heads = [one.head for one in checkpoints(driver).values()]
            still.append(sum(bool(head is not None and borrowed(head)) for head in heads))
        assert still == list(range(8, -1, -containers))


def files_of(driver: Driver) -> tuple[set[str], set[str]]:
    """The state files that there are, and those that current checkpoints and kept versions name."""
    files, metadata = driver._held.preparer.files, driver._system.metadata_store("all")
    from headrace.driver.maintenance.state_versions import versions_of

    kept = [version.checkpoint for versions in versions_of(metadata).values() for version in versions]
    heads = [one.head for one in (*checkpoints(driver).values(), *kept) if one.head is not None]
    return set(files.list("all")), {file.name for head in heads for file in head.files}


def test_no_state_file_is_missing_or_left_over_through_changes(tmp_path: Path) -> None:
    overrides = ["keep_state_versions=3", "state_version_interval_s=0"]
    for factors in ((1, 8, 2), (2, 16, 1), (1, 4)):
        with Driver(counting(factors[0]), directory=tmp_path, overrides=overrides) as driver:
            for factor in factors:
                driver.elasticity(factor)
                for number in range(6):
                    for key in KEYS[: 2 + 3 * number]:
                        driver.send("in", key, {"n": number})
                    driver.run()
                    driver.advance("2 minutes")
                    there, named = files_of(driver)
                    assert named <= there, "a file is missing"
    with Driver(counting(4), directory=tmp_path, overrides=overrides) as driver:  # a start removes what is left over
        driver.run()
        there, named = files_of(driver)
        assert there == named


def test_local_stores_of_former_tasks_are_removed(tmp_path: Path) -> None:
    with Driver(counting(2), directory=tmp_path) as driver:
        for factor in (2, 8, 1, 4):
            driver.elasticity(factor)
            for _ in range(3):
                send(driver, 1)
                driver.run()
            there = {place.name for place in (tmp_path / "stores" / "all").iterdir()}
            assert there and there <= set(checkpoints(driver))


def test_local_stores_are_rebuilt_where_they_are_lost(tmp_path: Path) -> None:
    import shutil

    sent = 0
    for factor in (1, 8, 2, 16, 1):
        with Driver(counting(1), directory=tmp_path) as driver:
            driver.elasticity(factor)
            send(driver, 2)
            sent += 2
            driver.run()
            assert counts(driver) == all_at(sent)
        shutil.rmtree(tmp_path / "stores")


# --- requests ---------------------------------------------------------------------------------------------------------------


def test_setting_what_is_in_force_makes_no_new_model() -> None:
    with Driver(counting(4)) as driver:
        send(driver, 1)
        driver.run()
        before = driver._prepared.plan.model.version
        driver.elasticity(4)
        driver.run()
        assert driver._prepared.plan.model.version == before
        with scales_of(driver) as scales:
            assert not scales.open_requests()


@pytest.mark.parametrize("wrong", [{"factor": 0}, {"factor": 3}, {"factor": 2048}, {"factor": 2, "sub_topology": "by-night"}])
def test_what_cannot_be_done_is_refused_before_anything_is_written(wrong: dict[str, Any]) -> None:
    with Driver(counting(4)) as driver:
        with pytest.raises(hr.ConfigError, match=r"power of two|no sub-topology"):
            driver.elasticity(**wrong)
        with scales_of(driver) as scales:
            assert not scales.open_requests()


def test_positions_exported_under_one_factor_are_imported_under_another() -> None:
    with Driver(counting(8)) as driver:
        send(driver, 2)
        driver.run()
        with startpoints_of(driver) as points:
            exported = points.export_positions()
            send(driver, 1)
            driver.run()
            driver.elasticity(2)
            driver.run()
            points.write(points.preview_import(exported))
        driver.run()
        assert counts(driver) == all_at(4)


@pytest.mark.parametrize("factor", [8, 2, 1, 16])
def test_positions_of_tasks_that_are_apart_are_imported_under_any_factor(factor: int) -> None:
    """By the tasks that have the keys now; of several positions for one of them the lowest."""
    with Driver(counting(8), overrides=["max_records_per_round=7"]) as driver:
        send(driver, 6)
        driver.run()
        bucket = bucket_of(KEYS[0], 8)
        driver.startpoint("in", 32, task=f"Partition_0-{bucket}-8")
        replan(driver)
        rounds(driver, 1)
        with startpoints_of(driver) as points:
            exported = points.export_positions()
        places = {str(one.task): one.offset for one in exported.positions}
        lowest = places[f"Partition_0-{bucket}-8"]
        assert 32 < lowest < 96 and Counter(places.values()) == {96: 7, lowest: 1}
        driver.run()
        before = counts(driver)
        driver.elasticity(factor)
        driver.run()
        with startpoints_of(driver) as points:
            points.write(points.preview_import(exported))
        driver.run()
        common = min(factor, 8)
        moved = {key for key in KEYS if bucket_of(key, common) == bucket % common}
        again = Counter(record.key for record in driver._system.consume("in", key=TEXT, start={0: lowest}))
        assert counts(driver) == {key: before[key] + (again[key] if key in moved else 0) for key in KEYS}


# --- groupers and keys ------------------------------------------------------------------------------------------------------


class InPairs(hr.SystemStreamPartitionGrouper):
    """Two partitions to a task, with names of its own."""

    def group(self, previous: Any, ssps: Any) -> Any:
        def pair(number: int) -> set[Any]:
            return {ssp for ssp in ssps if ssp.partition // 2 == number}

        return {hr.TaskName.parse(f"pair.{number}"): pair(number) for number in range(2)}


def test_a_grouper_of_ones_own_takes_a_factor() -> None:
    with Driver(counting(1, ssp_grouper=InPairs), partitions=4) as driver:
        for factor in (4, 1, 2):
            driver.elasticity(factor)
            send(driver, 2)
            driver.run()
            assert len(checkpoints(driver)) == 2 * factor
        assert counts(driver) == all_at(6)


@pytest.mark.parametrize("threads", [1, 4])
def test_records_without_keys_that_get_one_stay_in_the_order_of_their_partition_in_one_container(threads: int) -> None:
    """They are shared out by their offsets: to any of the virtual tasks."""
    app = hr.App("all", elasticity_factor=4)
    rows = app.stream("in", key=TEXT, value=JSON).select_key(lambda record: f"k{record.value['n'] % 5}", key=TEXT)
    again = rows.repartition(hr.Repartitioned(name="again", number_of_partitions=2))
    again.map_values(lambda record: record.value["n"], value=LONG).to("out")
    with Driver(app, overrides=["max_records_per_round=60", f"task_threads={threads}"]) as driver:
        for number in range(300):
            driver.send("in", None, {"n": number})
        driver.run()
        given = [(record.key, record.value) for record in driver.read("out")]
        for key in range(5):
            assert [n for of, n in given if of == f"k{key}"] == list(range(key, 300, 5))
