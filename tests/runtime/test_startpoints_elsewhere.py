"""Startpoints that are asked for in another system's metadata store (`startpoint_metadata_store`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.adapters.log.metadata import LogMetadataStore
from headrace.client.startpoint_manager import StartpointManager
from headrace.errors import NotSupportedError, SetupError, UnavailableError
from headrace.model.startpoint import PositionType, Startpoint, StartpointStatus
from headrace.model.streams import SSP
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

EARLIEST = Startpoint(PositionType.EARLIEST)
WAIT_S = 20.0


class World:
    """An application on one log, and another log that has its requests."""

    def __init__(self, root: Path) -> None:
        self.root, self.url, self.url_elsewhere = root, f"log:{root / 'log'}", f"log:{root / 'elsewhere'}"
        self.system, self.elsewhere = hr.open_system(self.url), hr.open_system(self.url_elsewhere)
        self.system.create_stream("in", 1)
        self.system.create_stream("out", 1)
        self.manager = StartpointManager(self.system.metadata_store("app"), self.elsewhere.metadata_store("app"))

    def close(self) -> None:
        self.elsewhere.close()
        self.system.close()

    def send(self, count: int) -> None:
        self.system.produce("in", [(b"k", b"v")] * count)

    def app(self, **keys: Any) -> hr.App:
        folders = {"local_store_dir": str(self.root / "stores"), "state_uri": str(self.root / "state")}
        app = hr.App("app", self.url, **(folders | {"startpoint_metadata_store": self.url_elsewhere} | keys))
        app.stream("in", key=hr.Bytes(), value=hr.Bytes()).to("out")
        return app

    def start(self, until: str | None = None, **keys: Any) -> Any:
        return wiring.start(self.app(**keys), until, engine=InlineEngine(run_container))

    def run(self) -> None:
        self.start("caught-up").wait(WAIT_S)

    @property
    def written(self) -> int:
        return int(self.system.end_offsets("out")[0])

    @property
    def requests(self) -> dict[str, bytes]:
        found: dict[str, bytes] = self.elsewhere.metadata_store("app").requests("startpoints")
        return found

    def status(self) -> list[StartpointStatus | None]:
        return [known.status for known in self.manager.records().values()]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.send(5)
    yield world
    world.close()


def wait_for(what: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


class Broken:
    """Makes a call of the metadata stores in one folder fail, while it `is_broken`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, call: str) -> None:
        self.is_broken = True
        works = getattr(LogMetadataStore, call)

        def called(store: LogMetadataStore, *arguments: Any) -> Any:
            if self.is_broken and store._catalog.root == folder:
                raise UnavailableError("it does not answer", "is it up?")
            return works(store, *arguments)

        monkeypatch.setattr(LogMetadataStore, call, called)


class TestStoppedJob:
    def test_a_request_there_is_taken_up_recorded_here_and_removed(self, world: World) -> None:
        world.run()
        world.manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
        assert world.status() == [None]
        world.run()
        assert (world.written, world.requests) == (10, {})
        world.run()
        assert (world.written, world.status()) == (10, [StartpointStatus.APPLIED])
        assert world.elsewhere.metadata_store("app").all("startpoints") == {}

    def test_from_python_and_by_commands_they_are_asked_for_there(self, world: World) -> None:
        world.run()
        with hr.startpoints(world.app()) as points:
            (id_,) = points.set("in", "earliest")
            assert len(world.requests) == 1
            assert world.system.metadata_store("app").requests("startpoints") == {}
            assert [known.entry.id for known in points.list()] == [id_]
            points.delete(id_)
        world.run()
        assert (world.written, world.status()) == (5, [StartpointStatus.DELETED])

    def test_one_that_somebody_left_with_the_job_itself_counts_as_well(self, world: World) -> None:
        world.run()
        StartpointManager(world.system.metadata_store("app")).write_startpoint(SSP("log", "in", 0), EARLIEST)
        world.run()
        assert (world.written, world.system.metadata_store("app").requests("startpoints")) == (10, {})

    def test_one_that_could_not_be_removed_is_not_taken_up_again(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.run()
        world.manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
        withdrawals = Broken(monkeypatch, world.root / "elsewhere", "withdraw")
        world.run()
        world.run()
        assert (world.written, len(world.requests)) == (10, 1)
        assert "requests that are done cannot be removed: it does not answer" in caplog.text
        withdrawals.is_broken = False
        world.run()
        assert (world.written, world.requests) == (10, {})

    def test_a_store_that_cannot_be_reached_is_named_before_anything_is_held(self, world: World) -> None:
        (world.root / "file").touch()
        with pytest.raises(SetupError, match=r"startpoint_metadata_store = 'log:.*file/log'"):
            world.start(startpoint_metadata_store=f"log:{world.root / 'file' / 'log'}")
        assert world.system.job_store("app").holder() is None

    def test_a_store_that_cannot_be_read_is_named(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        Broken(monkeypatch, world.root / "elsewhere", "requests")
        with pytest.raises(UnavailableError, match="elsewhere': the requests for startpoints cannot be read: it") as raised:
            world.start()
        assert raised.value.message.startswith("startpoint_metadata_store = ")
        assert raised.value.hint == "is it up?"
        assert world.system.job_store("app").holder() is None

    def test_the_job_s_own_system_is_no_other_one(self, world: World) -> None:
        world.run()
        StartpointManager(world.system.metadata_store("app")).write_startpoint(SSP("log", "in", 0), EARLIEST)
        world.start("caught-up", startpoint_metadata_store=world.url).wait(WAIT_S)
        assert world.written == 10

    def test_moving_all_of_the_metadata_is_refused(self, world: World) -> None:
        with pytest.raises(NotSupportedError, match="metadata_store = 'log:elsewhere'"):
            world.start(metadata_store="log:elsewhere")


class TestRunningJob:
    def test_a_request_there_takes_effect(self, world: World) -> None:
        job = world.start()
        try:
            wait_for(lambda: world.written == 5)
            world.manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
            wait_for(lambda: world.written == 10 and not world.requests)
            wait_for(lambda: world.status() == [StartpointStatus.APPLIED])
        finally:
            job.stop()
        job.wait()
        assert world.written == 10

    def test_what_cannot_be_removed_is_tried_again_and_asks_for_one_plan_only(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = world.start()
        try:
            wait_for(lambda: world.written == 5)
            withdrawals = Broken(monkeypatch, world.root / "elsewhere", "withdraw")
            world.manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
            wait_for(lambda: world.written == 10)
            epoch = job.plan.epoch
            time.sleep(1.5)  # several looks
            assert (job.plan.epoch, len(world.requests)) == (epoch, 1)
            withdrawals.is_broken = False
            wait_for(lambda: not world.requests)
        finally:
            job.stop()
        job.wait()
        assert world.written == 10

    def test_the_job_goes_on_while_the_store_does_not_answer(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "headrace.job")
        job = world.start()
        try:
            wait_for(lambda: world.written == 5)
            lost = Broken(monkeypatch, world.root / "elsewhere", "requests")
            wait_for(lambda: "the job keeps running without it" in caplog.text)
            world.manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
            world.send(1)
            wait_for(lambda: world.written == 6)
            lost.is_broken = False
            wait_for(lambda: world.written == 12)
        finally:
            job.stop()
        job.wait()
        assert caplog.text.count("the job keeps running without it") == 1
        assert "answers again" in caplog.text


def test_a_job_on_the_log_takes_up_what_is_asked_for_on_a_broker(world: World, kafka_server: Any) -> None:
    url = f"kafka://{kafka_server.bootstrap}"
    with hr.open_system(url) as broker:
        there = broker.metadata_store("app")
        manager = StartpointManager(world.system.metadata_store("app"), there)
        job = world.start(startpoint_metadata_store=url)
        try:
            wait_for(lambda: world.written == 5)
            manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
            wait_for(lambda: world.written == 10 and not there.requests("startpoints"))
        finally:
            job.stop()
        job.wait()
        manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
        world.start("caught-up", startpoint_metadata_store=url).wait(WAIT_S)
        assert (world.written, there.requests("startpoints")) == (15, {})
