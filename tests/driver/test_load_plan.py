"""The plan that a driver runs is the one that is stored: another process loads the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.codec.documents import encode
from headrace.codec.job_records import SCALES
from headrace.driver.change_requests import AGAIN_S, ChangeRequests
from headrace.driver.group.group_planner import GroupPlanner
from headrace.driver.planning import job_planner
from headrace.driver.planning.job_plan import Pace
from headrace.driver.planning.load_plan import load
from headrace.driver.planning.observe import terms_of
from headrace.errors import FencedError, StorageError, StreamNotFoundError
from headrace.model.scale import ScaleRequest
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.testing import Driver

TASK, PLACE = TaskName.parse("Partition_0"), SSP("log", "in", 0)


def application() -> hr.App:
    app = hr.App("loaded")
    app.stream("in", key=hr.String(), value=hr.Bytes()).group_by_key().count(store="counts")
    return app


def loaded(driver: Driver, folder: Path, application_name: str) -> Any:
    """What a process with a system of its own loads, and the driver's plan."""
    planner, plan = driver._held.preparer.planner, driver._held.prepared.plan
    (catalog,) = folder.rglob("catalog.sqlite")
    with hr.open_system(f"log:{catalog.parent}") as log:
        terms = terms_of(planner.topology, planner.config, log.name, sides=planner.sides)
        store, metadata = log.job_store(application_name), log.metadata_store(application_name)
        return load(store, metadata, terms, plan.programs, plan.epoch), plan


def test_another_process_loads_the_plan_that_the_driver_runs(tmp_path: Path) -> None:
    with Driver(application(), directory=tmp_path) as driver:
        for value in (b"a", b"b", b"c"):
            driver.send("in", "k", value)
            driver.run()
        driver.startpoint("in", "earliest")
    with Driver(application(), directory=tmp_path) as driver:
        found, plan = loaded(driver, tmp_path, "loaded")
    assert found.model == plan.model
    assert found.checkpoints == plan.checkpoints
    assert found.checkpoints[TASK].positions == {PLACE: 0}
    assert found.startpoints.pending_of(TASK) == plan.startpoints.pending_of(TASK)
    assert list(found.startpoints.pending_of(TASK)) == [PLACE]
    assert (found.rewinds, found.scales, found.epoch) == (plan.rewinds, plan.scales, 2)
    assert found.records.expansions == plan.records.expansions
    assert plan.found_counts == {"in": 1}, "what its maker has seen is the maker's"
    assert found.found_counts == {}


def test_a_plan_whose_output_was_deleted_since_cannot_be_loaded_by_a_processor_and_the_error_names_it(tmp_path: Path) -> None:
    app = hr.App("passing")
    app.stream("in", key=hr.String(), value=hr.Bytes()).to("out")
    with Driver(app, directory=tmp_path) as driver:
        driver.send("in", "k", b"a")
        driver.run()
        planner = driver._held.preparer.planner
        system, plans = planner.backend.system, GroupPlanner(planner)
        assert plans.loaded(system.job_store("passing"), 7, "p").programs[None].partition_counts == {"out": 1}
        system.delete_stream("out")
        with pytest.raises(StreamNotFoundError, match="'out', to which it writes, does not exist"):
            plans.loaded(system.job_store("passing"), 7, "p")


def test_a_stream_that_is_read_and_written_has_as_many_partitions_as_the_plan_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another processor may have counted them before it grew: all write a key's records to one partition."""
    app = hr.App("passing")
    app.stream("in", key=hr.String(), value=hr.Bytes()).filter(lambda record: False).to("in", feedback=True)
    with Driver(app, directory=tmp_path) as driver:
        driver.send("in", "k", b"a")
        driver.run()
        planner = driver._held.preparer.planner
        system = planner.backend.system
        former = system.streams(of="passing")
        driver.expand("in", 4)
        driver.run()
        monkeypatch.setattr(system, "streams", lambda of=None: former)
        found = GroupPlanner(planner).loaded(system.job_store("passing"), 7, "p")
    assert found.programs[None].partition_counts == {"in": 4} == found.found_counts


class OwnTasks(hr.SystemStreamPartitionGrouper):
    """A task for each partition, also for those that a stream has grown by: these would take keys from their state."""

    def group(self, previous_assignment: Any, ssps: Any) -> Any:
        return {TaskName.parse(f"own{ssp.partition}"): frozenset({ssp}) for ssp in ssps}


def test_a_growth_that_a_plan_refuses_is_refused_by_processors_that_load_this_plan(tmp_path: Path) -> None:
    """By the numbers alone they could follow it: they read on, without the new partitions."""
    app = hr.App("grown", config={"ssp_grouper": OwnTasks})
    app.stream("in", key=hr.String(), value=hr.Bytes()).group_by_key().count(store="counts")
    with Driver(app, directory=tmp_path) as driver:
        driver.send("in", "k", b"a")
        driver.run()
        planner = driver._held.preparer.planner
        store = planner.backend.system.job_store("grown")
        watch = ChangeRequests(planner.backend, Pace(0.1, 0.1, 1, 1.0, 1.0))
        watch.begin(GroupPlanner(planner).loaded(store, 7, "p"), 0.0)
        planner.backend.system.expand_stream("in", 2)
        assert not watch.refused({"in"}), "no plan has seen it"
        driver._replan()
        (error,) = driver._prepared.plan.refused.values()
        assert watch.refused({"in"})["in"].message == error.message != ""
        watch.begin(GroupPlanner(planner).loaded(store, 7, "p"), 0.0)
        assert watch.refused({"in"}).keys() == {"in"}, "one that starts then is no other"
        planner.backend.system.expand_stream("in", 4)
        assert not watch.refused({"in"}), "the next plan may follow this"


def test_a_repartition_stream_that_another_tool_expands_is_refused_where_a_users_partitioner_fills_it(tmp_path: Path) -> None:
    app = hr.App("placed")
    parts = hr.Repartitioned(name="by-page", number_of_partitions=2, partitioner=lambda key, value, count: 0)
    pages = app.stream("in", key=hr.String(), value=hr.String())
    pages.repartition(parts).group_by_key().count(store="counts")
    with Driver(app, directory=tmp_path) as driver:
        driver.send("in", "k", "a")
        driver.run()
        planner = driver._held.preparer.planner
        watch = ChangeRequests(planner.backend, Pace(0.1, 0.1, 1, 1.0, 1.0))
        watch.begin(GroupPlanner(planner).loaded(planner.backend.system.job_store("placed"), 7, "p"), 0.0)
        planner.backend.system.expand_stream("placed-by-page-repartition", 4)
        (error,) = watch.refused({"in", "placed-by-page-repartition"}).values()
        assert "a partitioner of the application's own distributes its records" in error.message
        assert error.hint is not None and "other names" in error.hint


def test_a_process_that_finds_no_plan_says_so(tmp_path: Path) -> None:
    with Driver(application(), directory=tmp_path) as driver:
        driver.run()
        with pytest.raises(StorageError, match="no job model is stored"):
            loaded(driver, tmp_path, "another")


def test_a_driver_that_is_replaced_before_it_has_loaded_its_plan_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it reads may be of two plans then, and does not fit."""

    def two_plans(store: Any, *arguments: Any) -> Any:
        (catalog,) = tmp_path.rglob("catalog.sqlite")
        with hr.open_system(f"log:{catalog.parent}") as log:
            log.job_store("loaded").acquire(store.holder(), 1)  # the same run may take it again
        raise StorageError("task Partition_0 has committed, but its checkpoint is missing")

    monkeypatch.setattr(job_planner, "load", two_plans)
    with pytest.raises(FencedError, match="another driver took over"):
        Driver(application(), directory=tmp_path).__enter__()


@pytest.fixture
def lagging(tmp_path: Path) -> Callable[[int], Driver]:
    """An application with factor 4 of whose virtual tasks one is behind the others; gives drivers of it with another factor."""

    def driver(factor: int) -> Driver:
        app = hr.App("scaled", config={"elasticity_factor": factor})
        app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().count(store="counts")
        return Driver(app, directory=tmp_path)

    with driver(4) as first:
        for number in range(40):
            first.send("in", f"k{number}", number)
        first.run()
        first.startpoint("in", "earliest", task="Partition_0-1-4")
    with driver(4):
        pass  # it is applied
    return driver


def test_a_leader_knows_of_a_configured_factor_that_waits(lagging: Any) -> None:
    """No request says so: each leader looks."""
    with lagging(1) as driver:
        planner, plan = driver._held.preparer.planner, driver._held.prepared.plan
        assert plan.waiting_scales.keys() == {"source"}
        found = GroupPlanner(planner).to_lead(plan.epoch, None)
        assert found.waiting_scales == plan.waiting_scales
        requests = ChangeRequests(planner.backend, Pace(0.1, 0.1, 1, 1.0, 1.0))
        requests.begin(found, 0.0)
        due, merging = requests.scales(1.0, driver._held.prepared.runners)
        assert due or merging or requests.waiting


def test_a_factor_whose_tasks_did_not_come_together_is_tried_again_after_half_a_minute(lagging: Any) -> None:
    """Also where its leader has loaded the plan in force since."""
    with lagging(4) as driver:
        planner, runners = driver._held.preparer.planner, driver._held.prepared.runners
        driver._system.metadata_store("scaled").request(SCALES, encode(ScaleRequest("me", 1, None, 1, None)))
        requests = ChangeRequests(planner.backend, Pace(0.1, 0.1, 1, 1.0, 1.0))
        requests.begin(driver._held.prepared.plan, 0.0)
        assert requests.scales(0.0, runners)[1], "a pause is requested, for which one does not rest"
        requests.begin(GroupPlanner(planner).to_lead(driver._held.prepared.plan.epoch, None), 1.0)
        assert not requests.scales(AGAIN_S - 1.0, runners)[1]
        assert requests.scales(AGAIN_S, runners)[1]
