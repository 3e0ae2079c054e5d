"""What every implementation of `headrace.ports.metadata_store.MetadataStore` must do, and the writing of it by its
`CoordinatorStore`.

`own` is a class as a user writes it (`examples/shared_requests.py`), behind what the configuration key puts around it.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from contracts.conftest import KINDS
from headrace.errors import FencedError
from headrace.model.commits import DriverLease
from headrace.ports.metadata_store import MetadataStore
from headrace.wiring.request_store import users_store

HOLDER = DriverLease("run-1", "another-host", 17, "1@1", "boot", 0)
EXAMPLE = Path(__file__).parents[2] / "examples" / "shared_requests.py"


class OwnSystem:
    """A user's stores in one file, and a driver's writing of them: the epoch is this object's."""

    def __init__(self, made: Callable[[str], Any]) -> None:
        self._made, self._epoch = made, 0

    def metadata_store(self, application: str) -> MetadataStore:
        return users_store(self._made, application)

    def job_store(self, application: str) -> OwnSystem:
        self._store = self._made(application)
        return self

    def acquire(self, holder: DriverLease, now_us: int) -> int:
        self._epoch += 1
        return self._epoch

    def write_metadata(
        self, epoch: int, namespace: str, values: Mapping[str, bytes | None], done: Collection[str] = ()
    ) -> None:
        if epoch != self._epoch:
            raise FencedError(f"epoch {epoch}: the newest is {self._epoch}")
        self._store.write(namespace, values, done)


@pytest.fixture(params=[*sorted(KINDS), "own"])
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "own":
        kind = runpy.run_path(str(EXAMPLE))["SharedRequests"]
        yield OwnSystem(lambda application: kind(application, str(tmp_path / "requests.sqlite")))
        return
    with KINDS[request.param].opened(request, tmp_path) as opened:
        yield opened


@pytest.fixture
def epoch(job_store: Any) -> int:
    epoch: int = job_store.acquire(HOLDER, 0)
    return epoch


class TestValues:
    def test_values_are_kept_by_namespace(self, metadata_store: Any, job_store: Any, epoch: int) -> None:
        job_store.write_metadata(epoch, "a", {"k": b"1"})
        job_store.write_metadata(epoch, "b", {"k": b"\x00\xff"})
        assert (metadata_store.get("a", "k"), metadata_store.get("b", "k")) == (b"1", b"\x00\xff")
        assert metadata_store.get("c", "k") is None
        assert metadata_store.all("a") == {"k": b"1"}

    def test_values_are_kept_by_application(self, system: Any, job_store: Any, epoch: int) -> None:
        job_store.write_metadata(epoch, "a", {"k": b"1"})
        assert system.metadata_store("other").all("a") == {}

    def test_a_value_is_replaced_and_deleted(self, metadata_store: Any, job_store: Any, epoch: int) -> None:
        job_store.write_metadata(epoch, "a", {"k": b"1"})
        job_store.write_metadata(epoch, "a", {"k": b""})
        assert metadata_store.get("a", "k") == b""
        job_store.write_metadata(epoch, "a", {"k": None, "never-there": None})
        assert metadata_store.get("a", "k") is None

    def test_several_are_written_all_or_nothing(self, metadata_store: Any, job_store: Any, epoch: int) -> None:
        job_store.write_metadata(epoch, "a", {"z": b"old"})
        job_store.write_metadata(epoch, "a", {"y": b"1", "x": b"2"})
        assert metadata_store.all("a") == {"x": b"2", "y": b"1", "z": b"old"}
        with pytest.raises(TypeError):
            job_store.write_metadata(epoch, "a", {"z": None, "x": b"3", "y": "text"})
        assert metadata_store.all("a") == {"x": b"2", "y": b"1", "z": b"old"}

    def test_a_former_driver_writes_nothing(self, metadata_store: Any, job_store: Any, epoch: int) -> None:
        request = metadata_store.request("a", b"r")
        job_store.acquire(HOLDER, 1)
        with pytest.raises(FencedError):
            job_store.write_metadata(epoch, "a", {"k": b"1"}, [request])
        assert (metadata_store.all("a"), metadata_store.requests("a")) == ({}, {request: b"r"})


class TestStamps:
    def test_equal_ones_mean_that_nothing_has_changed(
        self, system: Any, metadata_store: Any, job_store: Any, epoch: int
    ) -> None:
        seen = [metadata_store.stamp()]

        def is_new() -> bool:
            seen.append(metadata_store.stamp())
            return bool(seen[-1] != seen[-2])

        assert not is_new()
        (one,) = metadata_store.request_all("a", [b"r"])
        assert is_new()
        assert not is_new()
        job_store.write_metadata(epoch, "a", {"k": b"1"})
        assert is_new()
        metadata_store.withdraw("a", [one])
        assert is_new()
        assert not is_new()

    def test_one_that_was_asked_for_before_there_was_anything_is_another(self, system: Any) -> None:
        store = system.metadata_store("to-come")
        before = store.stamp()
        system.metadata_store("to-come").request("a", b"r")
        assert store.stamp() != before


class TestRequests:
    def test_requests_wait_in_order_for_the_driver_who_takes_them_up(
        self, metadata_store: Any, job_store: Any, epoch: int
    ) -> None:
        made = [metadata_store.request("startpoints", b"%d" % number) for number in range(12)]
        assert len(set(made)) == 12
        assert list(metadata_store.requests("startpoints").items()) == [(id_, b"%d" % n) for n, id_ in enumerate(made)]
        assert metadata_store.requests("elasticity") == {}
        assert metadata_store.all("startpoints") == {}
        job_store.write_metadata(epoch, "startpoints", {"a": b"0"}, done=made[:11])
        assert metadata_store.requests("startpoints") == {made[11]: b"11"}
        assert metadata_store.all("startpoints") == {"a": b"0"}

    def test_several_are_left_at_once_in_their_order(self, metadata_store: Any) -> None:
        first = metadata_store.request("startpoints", b"0")
        rest = metadata_store.request_all("startpoints", [b"%d" % number for number in range(1, 30)])
        assert list(metadata_store.requests("startpoints")) == [first, *rest]
        assert list(metadata_store.requests("startpoints").values()) == [b"%d" % number for number in range(30)]
        assert metadata_store.request_all("startpoints", []) == ()

    def test_withdrawn_requests_are_gone_and_nothing_else(
        self, system: Any, metadata_store: Any, job_store: Any, epoch: int
    ) -> None:
        job_store.write_metadata(epoch, "startpoints", {"a": b"value"})
        first, second, third = metadata_store.request_all("startpoints", [b"1", b"2", b"3"])
        elsewhere = metadata_store.request("elasticity", b"4")
        metadata_store.withdraw("startpoints", [first, third, "never-there", "a"])
        metadata_store.withdraw("startpoints", [first])
        metadata_store.withdraw("startpoints", [])
        assert metadata_store.requests("startpoints") == {second: b"2"}
        assert metadata_store.requests("elasticity") == {elsewhere: b"4"}
        assert metadata_store.all("startpoints") == {"a": b"value"}
        assert system.metadata_store("delays").requests("startpoints") == {second: b"2"}

    def test_requests_wait_for_an_application_that_never_ran(self, system: Any) -> None:
        store = system.metadata_store("to-come")
        assert store.requests("startpoints") == {}
        store.withdraw("startpoints", ["never-there"])
        (one,) = store.request_all("startpoints", [b"1"])
        assert system.metadata_store("to-come").requests("startpoints") == {one: b"1"}
