"""`headrace reset`: the next start is a first start; nothing of before is mixed with it, also where it was interrupted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner, Result

import headrace as hr
from headrace import wiring
from headrace.cli.commands import application
from headrace.client.resetting import Reset
from headrace.errors import JobHeldError, StorageError
from headrace.exchange import fault_injection as steps
from headrace.group.layout import escaped
from headrace.state_files.files import StateFiles
from headrace.wiring.worker.entry import run_container
from headrace.wiring.worker.worker_state import forget
from headrace.worker.inline_engine import InlineEngine
from support.world import waited

KEYS = ["a", "b", "a", "c", "a", "b"]


class Counting:
    """A job that counts by key, behind a repartition stream, and its commands."""

    def __init__(self, folder: Path, url: str, name: str) -> None:
        self.folder, self.url, self.name = folder, url, name
        self.system = hr.open_system(url)
        for stream in ("in", "out"):
            self.system.create_stream(f"{name}-{stream}", 2)
        self.send(*KEYS)

    def send(self, *keys: str) -> None:
        self.system.produce(f"{self.name}-in", [(key, key) for key in keys], key=hr.String(), value=hr.String())

    group: ClassVar[dict[str, Any]] = {}  # the settings of a processor

    @property
    def app(self) -> hr.App:
        places = {"local_store_dir": f"{self.folder}/stores", "state_uri": f"{self.folder}/state"}
        app = hr.App(self.name, config={"system": self.url, **places, "trigger_interval_ms": 10, **self.group})
        words = app.stream(f"{self.name}-in", key=hr.String(), value=hr.String())
        counts = words.select_key(lambda record: record.value, key=hr.String()).repartition(hr.Repartitioned(name="by"))
        counts.group_by_key().count(store="counts").to_stream(emit="each").to(f"{self.name}-out")
        return app

    def start(self, until: str | None = "caught-up") -> Any:
        return wiring.start(self.app, until=until, engine=InlineEngine(run_container))

    def work(self) -> None:
        self.start().wait(60)
        forget(self.name, f"{self.folder}/state")  # a worker process of its own would have ended

    def outputs(self) -> list[tuple[str, int]]:
        return [(one.key, one.value) for one in self.system.consume(f"{self.name}-out", key=hr.String(), value=hr.Long())]

    def reset(self, code: int = 0, *options: str) -> Result:
        places = {"local_store_dir": f"{self.folder}/stores", "state_uri": f"{self.folder}/state"}
        places |= self.group
        given = [part for key, value in places.items() for part in ("--set", f"{key}={value}")]
        named = ["--application", self.name, "--system", self.url, *given]
        result = CliRunner().invoke(application, ["reset", *named, "--yes", *options])
        assert result.exit_code == code, result.output
        return result


@pytest.fixture(params=["log", "kafka"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Counting]:
    url = f"log:{tmp_path / 'log'}"
    if request.param == "kafka":
        url = f"kafka://{request.getfixturevalue('kafka_server').bootstrap}"
    made = Counting(tmp_path, url, f"reset-{abs(hash(tmp_path)) % 10**8}")
    yield made
    made.system.close()


def test_after_it_the_job_begins_anew_and_inputs_and_outputs_stay(job: Counting) -> None:
    job.work()
    first = job.outputs()
    assert Counter(key for key, _ in first) == Counter(KEYS)
    with hr.startpoints(job.app) as points:
        points.set(f"{job.name}-in", "latest")
    found = json.loads(job.reset(0, "--json").stdout)
    assert found["tasks"] == 4 and found["state_files"] > 0 and found["local_stores"] > 0
    assert list(found["streams"]) == [f"{job.name}-by-repartition"]
    assert not [path for path in (job.folder / "state").rglob("*") if path.is_file()], "no state file is left"
    internal = [one.name for one in job.system.streams() if one.internal_of == job.name]
    assert internal == [] and len(job.outputs()) == len(first)
    assert "nothing is stored" in job.reset(1).stderr
    job.work()
    assert sorted(job.outputs()) == sorted(first * 2), "the same once more: from the beginning, and counted from nothing"
    assert job.app.state("counts").get("a") == 3


def test_while_it_runs_it_is_refused(job: Counting) -> None:
    running = job.start(until=None)
    try:
        refused = job.reset(1)
        assert "is run by process" in refused.stderr and "stop it first" in refused.stderr
    finally:
        running.stop()
    job.work()
    assert Counter(key for key, _ in job.outputs()) == Counter(KEYS)


@pytest.mark.parametrize(("job", "step"), [("log", 1), ("kafka", 1), ("kafka", 2), ("kafka", 3)], indirect=["job"])
def test_one_that_is_interrupted_is_done_again_and_no_start_comes_between(
    job: Counting, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.work()
    first = job.outputs()
    monkeypatch.setattr(steps, "_traps", steps._traps_of({"HEADRACE_TEST_STEPS": f"raise:reset:{step}:1"}))
    job.reset(1)
    monkeypatch.setattr(steps, "_traps", None)
    if step > 1:
        with pytest.raises(StorageError, match="a reset was begun"):
            job.work()
        assert len(job.outputs()) == len(first)
    job.reset()
    job.work()
    assert sorted(job.outputs()) == sorted(first * 2)


def test_one_that_is_interrupted_before_the_state_files_deletes_them_when_it_is_done_again(
    job: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is left then by which they could be known as the application's own."""
    job.work()

    def interrupted(files: StateFiles, name: str) -> None:
        raise OSError("it is killed here")

    with monkeypatch.context() as patched, Reset(job.name, wiring.config_of(job.app)) as resetting:
        patched.setattr(StateFiles, "delete", interrupted)
        with pytest.raises(OSError, match="killed here"):
            resetting.forget()
    found = json.loads(job.reset(0, "--json").stdout)
    assert found["tasks"] == 0 and found["state_files"] > 0 and found["shared_state"] == ""
    assert not [path for path in (job.folder / "state").rglob("*") if path.is_file()], "no state file is left"


@pytest.mark.parametrize("job", ["kafka"], indirect=True)
def test_a_group_is_forgotten_too_unless_a_processor_is_in_it(job: Counting, real_zookeeper: Any) -> None:
    url = f"zookeeper://127.0.0.1:{real_zookeeper.server.port}/headrace"
    job.group = {"coordinator": url, "processor_id": "a", "settle_time_s": 0.2}  # type: ignore[misc]
    node = f"/headrace/{escaped(job.name)}-1-{escaped(job.name)}-1-1"
    running = job.start(None)
    waited(lambda: len(job.outputs()) == len(KEYS), running)
    assert f"application {job.name} is run by " in job.reset(1).output
    with Reset(job.name, wiring.config_of(job.app)) as resetting, pytest.raises(JobHeldError, match="1 processor of its group"):
        resetting.forget()
    running.stop()
    forget(job.name, f"{job.folder}/state")
    assert real_zookeeper.tree().read(node) is not None
    assert f"its group has stored in {node} of ZooKeeper" in job.reset().output
    assert real_zookeeper.tree().read(node) is None and real_zookeeper.tree().read("/headrace") is not None
    assert "nothing is stored of application" in job.reset(1).output
    running = job.start(None)
    waited(lambda: len(job.outputs()) == 2 * len(KEYS), running)
    running.stop()
    assert Counter(key for key, _ in job.outputs()) == Counter(2 * KEYS)
