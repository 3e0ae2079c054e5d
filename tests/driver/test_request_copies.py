"""Startpoints that are asked for in another system's metadata store (`startpoint_metadata_store`)."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.adapters.log.metadata import LogMetadataStore
from headrace.client.startpoint_manager import StartpointManager
from headrace.errors import NotSupportedError, SetupError, UnavailableError
from headrace.model.startpoint import PositionType, Startpoint, StartpointStatus
from headrace.model.streams import SSP
from support.fixtures import only_on
from support.world import Place, World, started, waited

EARLIEST = Startpoint(PositionType.EARLIEST)


class Elsewhere(World):
    """An application on one log, and another log that has its requests."""

    NAME = "app"
    STREAMS: ClassVar = {"in": 1, "out": 1}
    KEYS: ClassVar = {}

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder, place)
        self.url_elsewhere = f"log:{self.folder / 'elsewhere'}"
        self.elsewhere = hr.open_system(self.url_elsewhere)
        self.manager = StartpointManager(self.system.metadata_store("app"), self.elsewhere.metadata_store("app"))
        self.send(5)

    def close(self) -> None:
        self.elsewhere.close()
        super().close()

    def send(self, count: int) -> None:
        self.system.produce("in", [(b"k", b"v")] * count)

    def app(self, **keys: Any) -> hr.App:
        app = super().app(**({"startpoint_metadata_store": self.url_elsewhere} | keys))
        app.stream("in", key=hr.Bytes(), value=hr.Bytes()).to("out")
        return app

    def run(self, **keys: Any) -> None:
        super().run(self.app(**keys))

    @property
    def written(self) -> int:
        return int(self.system.end_offsets("out")[0])

    @property
    def requests(self) -> dict[str, bytes]:
        found: dict[str, bytes] = self.elsewhere.metadata_store("app").requests("startpoints")
        return found

    def status(self) -> list[StartpointStatus | None]:
        return [known.status for known in self.manager.records().values()]


WORLD, place = Elsewhere, only_on("log")


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
    def test_a_request_there_is_taken_up_recorded_here_and_removed(self, world: Elsewhere) -> None:
        world.run()
        world.manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
        assert world.status() == [None]
        world.run()
        assert (world.written, world.requests) == (10, {})
        world.run()
        assert (world.written, world.status()) == (10, [StartpointStatus.APPLIED])
        assert world.elsewhere.metadata_store("app").all("startpoints") == {}

    def test_from_python_and_by_commands_they_are_asked_for_there(self, world: Elsewhere) -> None:
        world.run()
        with hr.startpoints(world.app()) as points:
            (id_,) = points.set("in", "earliest")
            assert len(world.requests) == 1
            assert world.system.metadata_store("app").requests("startpoints") == {}
            assert [known.entry.id for known in points.list()] == [id_]
            points.delete(id_)
        world.run()
        assert (world.written, world.status()) == (5, [StartpointStatus.DELETED])

    def test_one_that_somebody_left_with_the_job_itself_counts_as_well(self, world: Elsewhere) -> None:
        world.run()
        StartpointManager(world.system.metadata_store("app")).write_startpoint(SSP("log", "in", 0), EARLIEST)
        world.run()
        assert (world.written, world.system.metadata_store("app").requests("startpoints")) == (10, {})

    def test_one_that_could_not_be_removed_is_not_taken_up_again(
        self, world: Elsewhere, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.run()
        world.manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
        withdrawals = Broken(monkeypatch, world.folder / "elsewhere", "withdraw")
        world.run()
        world.run()
        assert (world.written, len(world.requests)) == (10, 1)
        assert "requests that are done cannot be removed: it does not answer" in caplog.text
        withdrawals.is_broken = False
        world.run()
        assert (world.written, world.requests) == (10, {})

    def test_a_store_that_cannot_be_reached_is_named_before_anything_is_held(self, world: Elsewhere) -> None:
        (world.folder / "file").touch()
        with pytest.raises(SetupError, match=r"startpoint_metadata_store = 'log:.*file/log'"):
            started(world.app(startpoint_metadata_store=f"log:{world.folder / 'file' / 'log'}"))
        assert world.system.job_store("app").holder() is None

    def test_a_store_that_cannot_be_read_is_named(self, world: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
        Broken(monkeypatch, world.folder / "elsewhere", "requests")
        with pytest.raises(UnavailableError, match="elsewhere': the requests for startpoints cannot be read: it") as raised:
            started(world.app())
        assert raised.value.message.startswith("startpoint_metadata_store = ")
        assert raised.value.hint == "is it up?"
        assert world.system.job_store("app").holder() is None

    def test_the_job_s_own_system_is_no_other_one(self, world: Elsewhere) -> None:
        world.run()
        StartpointManager(world.system.metadata_store("app")).write_startpoint(SSP("log", "in", 0), EARLIEST)
        world.run(startpoint_metadata_store=world.url)
        assert world.written == 10

    def test_moving_all_of_the_metadata_is_refused(self, world: Elsewhere) -> None:
        with pytest.raises(NotSupportedError, match="metadata_store = 'log:elsewhere'"):
            started(world.app(metadata_store="log:elsewhere"))


class TestRunningJob:
    def test_a_request_there_takes_effect(self, world: Elsewhere) -> None:
        with world.running(world.app()):
            waited(lambda: world.written == 5)
            world.manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
            waited(lambda: world.written == 10 and not world.requests)
            waited(lambda: world.status() == [StartpointStatus.APPLIED])
        assert world.written == 10

    def test_what_cannot_be_removed_is_tried_again_and_asks_for_one_plan_only(
        self, world: Elsewhere, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with world.running(world.app()) as job:
            waited(lambda: world.written == 5)
            withdrawals = Broken(monkeypatch, world.folder / "elsewhere", "withdraw")
            world.manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
            waited(lambda: world.written == 10)
            epoch = job.plan.epoch
            time.sleep(1.5)  # several looks
            assert (job.plan.epoch, len(world.requests)) == (epoch, 1)
            withdrawals.is_broken = False
            waited(lambda: not world.requests)
        assert world.written == 10

    def test_the_job_goes_on_while_the_store_does_not_answer(
        self, world: Elsewhere, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "headrace.job")
        with world.running(world.app()):
            waited(lambda: world.written == 5)
            lost = Broken(monkeypatch, world.folder / "elsewhere", "requests")
            waited(lambda: "the job keeps running without it" in caplog.text)
            world.manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
            world.send(1)
            waited(lambda: world.written == 6)
            lost.is_broken = False
            waited(lambda: world.written == 12)
        assert caplog.text.count("the job keeps running without it") == 1
        assert "answers again" in caplog.text


def test_a_job_on_the_log_takes_up_what_is_asked_for_on_a_broker(world: Elsewhere, kafka_server: Any) -> None:
    url = f"kafka://{kafka_server.bootstrap}"
    with hr.open_system(url) as broker:
        there = broker.metadata_store("app")
        manager = StartpointManager(world.system.metadata_store("app"), there)
        with world.running(world.app(startpoint_metadata_store=url)):
            waited(lambda: world.written == 5)
            manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
            waited(lambda: world.written == 10 and not there.requests("startpoints"))
        manager.write_startpoint(SSP("log", "in", 0), EARLIEST)
        world.run(startpoint_metadata_store=url)
        assert (world.written, there.requests("startpoints")) == (15, {})
