"""Two clusters run an application of one name, each on a system of its own, with one `state_uri`: each finds its own sign."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.core.affinity.admission import Admitted
from headrace.driver.job import Job
from headrace.errors import StateError
from headrace.exchange.engine import ContainerWork, WorkerCheck
from headrace.state_files.files import StateFiles
from headrace.wiring import local_stores
from headrace.wiring.group_launch import StateFolder
from headrace.wiring.worker import entry, worker_state
from headrace.wiring.worker.worker_state import forget
from support.located import HERE, LocatedEngine

NAME, SIGNS = "words", ".runs-of-words"


class Cluster(LocatedEngine):
    """It keeps what each executor is asked as it appears."""

    check: WorkerCheck

    def wait_for_workers(self, check: WorkerCheck, say: Callable[[str], None]) -> None:
        self.check = check

    def run(self, sub_topology: str, round_id: str, works: Sequence[Sequence[ContainerWork]], program: Any) -> list[bytes]:
        return [self.at_home(work, program) for group in works for work in group]


class Words:
    """The application on one of the systems, with the local stores of its own cluster."""

    def __init__(self, folder: Path, name: str, system: str = "") -> None:
        self.system, self.uri = system or f"log:{folder / name}", str(folder / "state")
        self._stores = str(folder / f"{name}-stores")
        self.cluster, self.sent = Cluster(), 0
        with hr.open_system(self.system) as system:
            system.create_stream("in", 1)

    def start(self, until: str | None = None) -> Job:
        return wiring.start(self._app(), until, engine=self.cluster)

    def send(self) -> None:
        with hr.open_system(self.system) as system:
            system.produce("in", [("a", "")], key=hr.String(), value=hr.String())
        self.sent += 1

    def await_counts(self, job: Job) -> None:
        until_s = time.monotonic() + 60
        while self._app().state("counts").get("a") != self.sent:
            if not job.is_running:
                job.wait(1)  # raises why it has ended
            assert job.is_running and time.monotonic() < until_s
            time.sleep(0.02)

    def signs(self) -> set[str]:
        return set(StateFiles(self.uri).list(SIGNS))

    def _app(self) -> hr.App:
        places = {"local_store_dir": self._stores, "state_uri": self.uri}
        app = hr.App(NAME, system=self.system, trigger_interval_ms=5, **places)
        app.stream("in", key=hr.String(), value=hr.String()).group_by_key().count(store="counts").to_stream().to("out")
        return app


@pytest.fixture
def systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Words, Words]]:
    for module in (entry, local_stores):
        monkeypatch.setattr(module, "location_of", lambda given: HERE.location)
    yield Words(tmp_path, "first"), Words(tmp_path, "second")
    forget(NAME, str(tmp_path / "state"))


def test_both_jobs_run_with_new_worker_processes_and_new_executors(
    systems: tuple[Words, Words], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = systems
    jobs = {first: first.start()}
    try:
        first.send()
        first.await_counts(jobs[first])
        jobs[second] = second.start()
        for one in (first, second, first):
            monkeypatch.setattr(worker_state, "_checked", {})  # as in a worker process that has just begun
            one.send()
            one.await_counts(jobs[one])
            assert isinstance(one.cluster.check.verdict_on(one.cluster.check.ask()), Admitted)
    finally:
        for job in jobs.values():
            job.stop()


def test_a_start_deletes_the_sign_of_the_run_before_and_leaves_that_of_the_other_system(systems: tuple[Words, Words]) -> None:
    first, second = systems
    second.start("caught-up").wait(60)
    (others,) = second.signs()
    seen = set[str]()
    for _ in range(3):
        first.start("caught-up").wait(60)
        (mine,) = first.signs() - {others}
        assert mine not in seen and others in first.signs()
        seen.add(mine)


@pytest.mark.kafka
def test_a_first_run_on_kafka_signs_for_the_state_that_its_note_names(
    tmp_path: Path, request: pytest.FixtureRequest, systems: tuple[Words, Words]
) -> None:
    words = Words(tmp_path, "kafka", f"kafka://{request.getfixturevalue('kafka_server').bootstrap}")
    seen = set[str]()
    for _ in range(2):
        words.start("caught-up").wait(60)
        ((sign,), (note,)) = words.signs(), StateFiles(words.uri).list(f".states-of-{NAME}")
        assert StateFiles(words.uri).note(sign) == StateFiles(words.uri).note(note)
        seen |= {sign, note}
    assert len(seen) == 3, "two runs of one state"


def test_a_processor_joins_its_group_when_that_of_another_system_has_begun_a_run_since(tmp_path: Path) -> None:
    place = StateFolder(NAME, str(tmp_path / "state"))
    place.sign("run-1", "state-1")
    place.sign("run-2", "state-2")
    for run in ("run-1", "run-2"):
        place.check(run)
    with pytest.raises(StateError, match="this is not the folder that the leader of the group writes to"):
        StateFolder(NAME, str(tmp_path / "other")).check("run-1")
