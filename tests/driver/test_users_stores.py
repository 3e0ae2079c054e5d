"""`startpoint_metadata_store` as a class of a user's own: what is one, what is none, and a job that goes by it."""

from __future__ import annotations

import functools
import logging
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.wiring.request_store import is_users_own, users_store
from support.fixtures import only_on
from support.world import World, started, waited

EXAMPLE = Path(__file__).parents[2] / "examples" / "shared_requests.py"
EARLIEST = hr.Startpoint(hr.PositionType.EARLIEST)
SSP = hr.SystemStreamPartition("log", "in", 0)


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of the example, whose file is in the test's folder."""
    monkeypatch.setenv("SHARED_REQUESTS", str(tmp_path / "requests.sqlite"))
    return runpy.run_path(str(EXAMPLE))["SharedRequests"]


class Copying(World):
    NAME = "app"
    STREAMS: ClassVar = {"in": 1, "out": 1}
    KEYS: ClassVar = {}

    def app(self, store: Any) -> hr.App:
        app = super().app(startpoint_metadata_store=store)
        app.stream("in").to("out")
        return app

    def run(self, store: Any) -> int:
        """Run until caught up; how many records there are behind it."""
        super().run(self.app(store))
        return self.written()

    def written(self) -> int:
        return int(self.system.end_offsets("out")[0])


WORLD, place = Copying, only_on("log")


@pytest.fixture(autouse=True)
def filled(world: Copying) -> None:
    world.system.produce("in", [(b"k", b"v")] * 5)


def test_a_job_that_stands_and_one_that_runs_apply_what_is_asked_for_there(world: Copying, shared: Any) -> None:
    assert world.run(shared) == 5
    with hr.startpoints(world.app(shared)) as points:
        points.set("in", "earliest")
        points.manager.write_startpoint(SSP, EARLIEST)
    assert len(shared("app").requests("startpoints")) == 2
    assert world.run(shared) == 10
    assert shared("app").requests("startpoints") == {}
    with world.running(world.app(shared)), hr.startpoints(world.app(shared)) as points:
        (id_,) = points.set("in", "earliest")
        waited(lambda: world.written() == 15 and shared("app").requests("startpoints") == {})
        waited(lambda: {one.entry.id: one.status for one in points.list()}[id_] == "applied")


@pytest.mark.parametrize("way", ["class", "object", "function", "place"])
def test_a_class_an_object_a_function_and_a_place_are_all_taken(
    way: str, world: Copying, shared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "place":
        (tmp_path / "stores_of_mine.py").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
        monkeypatch.chdir(tmp_path)
    ways = {
        "class": shared,
        "object": shared("app"),
        "function": functools.partial(shared, path=None),
        "place": "stores_of_mine:SharedRequests",
    }
    assert world.run(ways[way]) == 5
    with hr.startpoints(world.app(ways[way])) as points:
        points.set("in", 3)
    assert len(shared("app").requests("startpoints")) == 1
    assert world.run(ways[way]) == 7
    sys.modules.pop("stores_of_mine", None)


def test_a_command_in_the_folder_of_headrace_toml_finds_it(world: Copying, shared: Any) -> None:
    (world.folder / "stores_of_mine.py").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    settings = 'startpoint_metadata_store = "stores_of_mine:SharedRequests"\n'
    (world.folder / "headrace.toml").write_text(settings, encoding="utf-8")
    assert world.run(shared) == 5
    command = [sys.executable, "-m", "headrace", "startpoint", "set", "in", "--application", "app", "--system", world.url]
    done = subprocess.run([*command, "--earliest", "--yes"], cwd=world.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(shared("app").requests("startpoints")) == 1
    assert world.run(shared) == 10


class Half:
    def __init__(self, application: str) -> None:
        pass

    def requests(self, namespace: str) -> dict[str, bytes]:
        return {}


class Unfinished(hr.MetadataStore):
    def requests(self, namespace: str) -> dict[str, bytes]:
        return {}


def raising(application: str) -> Any:
    raise OSError("no such server")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Half, "what Half gives is no metadata store: it has no get"),
        (Half("app"), "is no metadata store: it has no get"),
        (Unfinished, "Unfinished is no metadata store: it does not define "),
        (raising, r"raising\('app'\) raised OSError: no such server\n.*fix it at test_users_stores.py"),
        (lambda application: 7, "gives is no metadata store: it has no get"),
        ("no_such_module.at_all:Mine", "there is no module 'no_such_module'"),
        ("collections:Mine", "module 'collections' has no 'Mine'"),
        ("collections:abc", "is no metadata store: it has no get"),
    ],
)
def test_what_is_no_store_is_refused_before_anything_is_held(value: Any, said: str, world: Copying) -> None:
    with pytest.raises(hr.ConfigError, match=rf"startpoint_metadata_store(.|\n)*{said}") as caught:
        started(world.app(value))
    assert caught.value.hint is not None
    assert world.system.job_store("app").holder() is None


@pytest.mark.parametrize("value", [3, "", ["log:x"]])
def test_a_value_of_another_type_is_refused_where_it_is_written(value: Any) -> None:
    with pytest.raises(hr.ConfigError, match="expected a text that is not empty or a metadata store, found"):
        hr.App("app", startpoint_metadata_store=value)


@pytest.mark.parametrize(
    ("value", "is_own"),
    [("log:data", False), ("log:./data", False), ("kafka://a:1", False), ("mine:Store", True), ("a.b:C.d", True), (Half, True)],
)
def test_a_url_is_told_from_a_place(value: Any, is_own: bool) -> None:
    assert is_users_own(value) == is_own


BAD: dict[str, tuple[Callable[..., Any], str]] = {
    "requests": (lambda *given: [b"x"], r"requests\(\) returned \[b'x'\]"),
    "request": (lambda *given: None, r"request\(\) returned None"),
    "request_all": (lambda *given: ("a",), r"request_all\(\) returned \('a',\)"),
    "get": (lambda *given: "text", r"get\(\) returned 'text'"),
    "all": (lambda *given: {"a": "text"}, r"all\(\) returned \{'a': 'text'\}"),
    "stamp": (raising, r"stamp\(\) raised TypeError"),
    "withdraw": (lambda *given: 1 // 0, r"withdraw\(\) raised ZeroDivisionError"),
}


@pytest.mark.parametrize("method", BAD)
def test_what_it_raises_and_wrong_answers_name_it(method: str, shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, method, staticmethod(BAD[method][0]))
    store = users_store(shared, "app")
    calls = {
        "requests": lambda: store.requests("n"),
        "request": lambda: store.request("n", b"1"),
        "request_all": lambda: store.request_all("n", [b"1", b"2"]),
        "get": lambda: store.get("n", "k"),
        "all": lambda: store.all("n"),
        "stamp": store.stamp,
        "withdraw": lambda: store.withdraw("n", ["a"]),
    }
    with pytest.raises(hr.StorageError, match=rf"metadata store SharedRequests: {BAD[method][1]}") as caught:
        calls[method]()
    assert caught.value.hint is not None


def test_a_store_that_cannot_be_read_stops_a_start_and_is_waited_for_by_a_job_that_runs(
    world: Copying, shared: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reading, broken = shared.requests, [True]

    def requests(self: Any, namespace: str) -> dict[str, bytes]:
        if broken[0]:
            raise OSError("gone away")
        found: dict[str, bytes] = reading(self, namespace)
        return found

    monkeypatch.setattr(shared, "requests", requests)
    caplog.set_level(logging.INFO, "headrace.job")
    with pytest.raises(hr.StorageError, match=r"startpoint_metadata_store = 'SharedRequests': .*OSError: gone away"):
        started(world.app(shared))
    broken[0] = False
    with world.running(world.app(shared)):
        waited(lambda: world.written() == 5)
        broken[0] = True
        waited(lambda: "the job keeps running without it" in caplog.text)
        shared("app").request("startpoints", b"of no version")
        broken[0] = False
        waited(lambda: "answers again" in caplog.text)


def test_it_is_closed_with_the_job(world: Copying, shared: Any) -> None:
    closed: list[str] = []

    class Closing(shared):  # type: ignore[misc]  # a class that is only known when the test runs
        def close(self) -> None:
            closed.append(self.application)

    world.run(Closing)
    assert closed == ["app"]
    with hr.startpoints(world.app(Closing)) as points:
        assert points.list() == ()
    assert closed == ["app", "app"]


def test_the_job_s_own_metadata_stays_in_its_system(world: Copying, shared: Any) -> None:
    with pytest.raises(hr.NotSupportedError, match=r"metadata_store = .*\n.*startpoint_metadata_store"):
        hr.App("app", world.url, metadata_store=shared)
