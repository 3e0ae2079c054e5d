"""Who holds an application: a heartbeat while a start waits, and the signs in its folders, which only the holder leaves."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.adapters.common import lease_holder as holders
from headrace.driver import cluster_view, holding
from headrace.driver import job as jobs
from headrace.driver.change_requests import ChangeRequests
from headrace.driver.cluster_view import ClusterView
from headrace.driver.generation import Generation
from headrace.driver.holding import take_application
from headrace.errors import FencedError, JobHeldError, SetupError
from headrace.exchange.engine import DriverAddress, WorkerCheck
from headrace.model.change import ChangeKind
from headrace.model.commits import DriverLease
from headrace.state_files.files import StateFiles
from headrace.wiring import launch
from headrace.wiring.folders import sign
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

NAME = "held"
OTHER = replace(holders.this_process("the other run", 0), pid=1, host="another-host")


def now_us() -> int:
    return time.time_ns() // 1000


class Place:
    """An application with state on a log, whose folders a cluster shares."""

    def __init__(self, root: Path) -> None:
        self.root, self.url = root, f"log:{root / 'log'}"
        self.folders = StateFiles(str(root / "state")), StateFiles(str(root / "log"))
        with hr.open_system(self.url) as log:
            log.create_stream("in", 1)

    def start(self, until: str | None = "caught-up") -> Any:
        places = {"local_store_dir": str(self.root / "stores"), "state_uri": str(self.root / "state")}
        app = hr.App(NAME, system=self.url, **places)
        app.stream("in", key=hr.String(), value=hr.String()).group_by_key().count(store="counts").to_stream().to("out")
        return wiring.start(app, until)

    @property
    def signs(self) -> list[str]:
        """The runs whose signs are there."""
        return [name.rpartition("/")[2] for folder in self.folders for name in folder.list(f".runs-of-{NAME}")]

    @property
    def holder(self) -> DriverLease | None:
        with hr.open_system(self.url) as log:
            found: DriverLease | None = log.job_store(NAME).holder()
            return found

    def taken_by_another(self) -> None:
        """Another run takes the application, and leaves its signs as a driver on a cluster does."""
        with hr.open_system(self.url) as log:
            take_application(log.job_store(NAME), replace(OTHER, heartbeat_us=now_us()), now_us())
        for folder in self.folders:
            sign(folder, NAME, OTHER.run_id, "its state")


class Cluster(InlineEngine):
    """It calls `wait` where a start waits for its workers. All of them run here."""

    driver_address = DriverAddress("127.0.0.1", "127.0.0.1")

    def __init__(self, wait: Callable[[], None]) -> None:
        super().__init__(run_container)
        self._wait = wait

    def wait_for_workers(self, check: WorkerCheck, say: Callable[[str], None]) -> None:
        self._wait()

    def locations(self) -> Mapping[str, int]:
        return {socket.gethostname(): self.slots}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def on_cluster(monkeypatch: pytest.MonkeyPatch, starting: Callable[[], None], wait: Callable[[], None]) -> None:
    """Have a start call `starting` while its Spark starts, and `wait` while it waits for executors."""

    def spark_engine(app: Any, config: Any) -> Cluster:
        starting()
        return Cluster(wait)

    monkeypatch.setattr(launch, "spark_engine", spark_engine)


def test_a_start_that_loses_the_application_leaves_the_signs_of_the_run_that_has_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both starts have found it free, and the other was quicker to take it while Spark started here."""
    waited = list[str]()
    on_cluster(monkeypatch, place.taken_by_another, lambda: waited.append("waited"))
    with pytest.raises(JobHeldError, match="another-host"):
        place.start()
    assert place.signs == [OTHER.run_id] * 2
    assert waited == []


def test_executors_are_asked_once_the_application_is_held_and_the_signs_are_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[tuple[DriverLease | None, list[str]]]()
    on_cluster(monkeypatch, lambda: None, lambda: seen.append((place.holder, place.signs)))
    place.start().wait(60)
    ((holder, signs),) = seen
    assert holder is not None
    assert signs == [holder.run_id] * 2


def test_while_executors_are_waited_for_no_other_start_finds_the_application_free(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "HEARTBEAT_S", 0.02)
    beats = set[int]()

    def wait() -> None:
        until_s = time.monotonic() + 30
        while len(beats) < 3:
            assert time.monotonic() < until_s, "expected heartbeats while executors are waited for"
            holder = place.holder
            assert holder is not None
            beats.add(holder.heartbeat_us)
            time.sleep(0.01)

    on_cluster(monkeypatch, lambda: None, wait)
    place.start().wait(60)
    assert len(beats) >= 3


def test_a_start_that_finds_no_executor_gives_the_application_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_comes() -> None:
        raise SetupError("Spark has had no executor")

    on_cluster(monkeypatch, lambda: None, none_comes)
    with pytest.raises(SetupError, match="no executor"):
        place.start()
    assert place.holder is None


def test_who_lost_the_application_meanwhile_hears_that_instead_of_what_came_of_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signs are another run's by then, and executors are rejected for what is not wrong with them."""
    monkeypatch.setattr(holding, "HEARTBEAT_S", 0.02)

    def wait() -> None:
        holder = place.holder
        assert holder is not None
        with hr.open_system(place.url) as log:  # the same run may take it again: another would have to wait for 10 s
            log.job_store(NAME).acquire(holder, now_us())
        until_s = time.monotonic() + 30
        while any(thread.name == "headrace-heartbeat" for thread in threading.enumerate()):
            assert time.monotonic() < until_s, "expected the heartbeat to find out"
            time.sleep(0.01)
        raise SetupError("all of Spark's executors are rejected")

    on_cluster(monkeypatch, lambda: None, wait)
    with pytest.raises(FencedError, match="another driver took over"):
        place.start()


class Hanging(Cluster):
    """An engine that says nothing of its locations while `is_held`, as where Spark's JVM hangs."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.is_held, self.asked = threading.Event(), threading.Event()

    def locations(self) -> Mapping[str, int]:
        if self.is_held.is_set():
            self.asked.set()
            until(lambda: not self.is_held.is_set())
        return super().locations()


def until(look: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 30
    while not look():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_an_engine_that_hangs_holds_up_no_heartbeat_and_no_look_at_long_rounds(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another start would take the application, and the round that hangs with it would never be given up."""
    monkeypatch.setattr(jobs, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(jobs, "LOOK_S", 0.01)
    monkeypatch.setattr(cluster_view, "LOOK_S", 0.0)
    looked, look = list[int](), Generation.look_at_long_rounds
    monkeypatch.setattr(Generation, "look_at_long_rounds", lambda self: (looked.append(1), look(self)))
    engine = Hanging()
    monkeypatch.setattr(launch, "spark_engine", lambda app, config: engine)
    job = place.start(None)
    try:
        engine.is_held.set()
        assert engine.asked.wait(30)
        before, beats = len(looked), {holder.heartbeat_us for holder in [place.holder] if holder is not None}
        until(lambda: len(looked) > before + 3)
        until(lambda: (holder := place.holder) is not None and holder.heartbeat_us not in beats)
    finally:
        engine.is_held.clear()
        job.stop()


def test_what_was_seen_of_a_cluster_before_a_plan_asks_for_no_other_one() -> None:
    """The look is made without the lock that a change holds, which has seen the location that came meanwhile."""
    slots = {"east": 1}
    view = ClusterView(SimpleNamespace(locations=lambda: dict(slots)), 0.0)  # type: ignore[arg-type]
    metadata = SimpleNamespace(requests=lambda namespace: {})
    system = SimpleNamespace(metadata_store=lambda application: metadata)
    backend = SimpleNamespace(system=system, store=None, elsewhere=None, cluster=view, store_builder=None)
    topology = SimpleNamespace(application=NAME)

    def planned(*locations: str) -> Any:
        shape = {"topology": topology, "waiting_scales": {}, "startpoint_requests": frozenset()}
        return SimpleNamespace(locations=dict.fromkeys(locations, 1), **shape)

    requests = ChangeRequests(backend, SimpleNamespace(clock_us=now_us, partition_check_s=60.0, settle_s=0.0))  # type: ignore[arg-type]
    requests.begin(planned("east", "west"), 0.0)
    requests.look_at_cluster()
    found = requests.found(time.monotonic(), with_streams=False)
    assert [(one.kind, one.subject) for one in found] == [(ChangeKind.REBALANCE, "west has left")]
    requests.begin(planned("east", "north"), 0.0)
    assert requests.found(time.monotonic(), with_streams=False) == ()
