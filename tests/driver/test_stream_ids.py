"""A job goes on with the very streams that its positions are of; which ones those are is stored with its plan."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.core.topology.compatibility import check_same_streams
from headrace.errors import IncompatibleChangeError
from headrace.exchange import fault_injection as steps
from headrace.model.job_model import JobModel
from headrace.testing import Driver

BEFORE = JobModel("delays", 3, (), stream_ids={"a": "1", "b": "2"})


@pytest.mark.parametrize("now", [{}, {"a": "1"}, {"a": "1", "b": "2"}, {"a": "1", "new": None}, {"new": "9"}])
def test_the_same_streams_and_new_ones_are_fine(now: dict[str, str | None]) -> None:
    check_same_streams(BEFORE, now)
    check_same_streams(None, {"a": "another", "b": None})


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"a": "1", "b": "9"}, r"^stream 'b' was deleted and recreated since application 'delays' last ran"),
        ({"a": None, "b": "2"}, r"^stream 'a' was deleted since"),
        ({"a": "9", "b": "9"}, r"^stream 'a' \(and 1 more\) was deleted and recreated since"),
    ],
)
def test_others_are_refused_by_name(now: dict[str, str | None], words: str) -> None:
    with pytest.raises(IncompatibleChangeError, match=words):
        check_same_streams(BEFORE, now)


def application(second: bool = False) -> hr.App:
    app = hr.App("ids")
    stream = app.stream("in", key=hr.String())
    if second:
        stream = stream.merge(app.stream("other", key=hr.String()))
    stream.select_key(lambda r: r.key, key=hr.String()).repartition(name="again").group_by_key().count(store="n")
    return app


def make_anew(folder: Path, stream: str, *, create: bool = True) -> None:
    with hr.open_system(f"log:{next(folder.rglob('catalog.sqlite')).parent}") as log:
        log.delete_stream(stream)
        if create:
            log.create_stream(stream, 1)


@pytest.mark.parametrize(("step", "is_stored"), [(8, False), (9, False), (10, True)])
def test_ids_and_plan_are_stored_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, is_stored: bool
) -> None:
    monkeypatch.setattr(steps, "_traps", [steps._Trap("raise", "start", step, 1, None)])
    with pytest.raises(steps.StepReached):
        Driver(application(), directory=tmp_path).open()
    monkeypatch.setattr(steps, "_traps", None)
    make_anew(tmp_path, "in")
    if is_stored:
        with pytest.raises(IncompatibleChangeError, match="'in' was deleted and recreated"):
            Driver(application(), directory=tmp_path).open()
    else:
        with Driver(application(), directory=tmp_path) as driver:
            driver.send("in", "k", b"v")
            driver.run()
            assert driver.store("n").get("k") == 1


def test_a_repartition_stream_that_was_deleted_is_not_made_again_in_silence(tmp_path: Path) -> None:
    with Driver(application(), directory=tmp_path) as driver:
        driver.send("in", "k", b"v")
        driver.run()
    make_anew(tmp_path, "ids-again-repartition", create=False)
    with pytest.raises(IncompatibleChangeError, match="'ids-again-repartition' was deleted since application 'ids'"):
        Driver(application(), directory=tmp_path).open()


def test_a_stream_that_is_not_read_any_more_may_go_and_come_back(tmp_path: Path) -> None:
    for second in (True, False):
        with Driver(application(second), directory=tmp_path) as driver:
            driver.run()
    make_anew(tmp_path, "other")
    with Driver(application(second=True), directory=tmp_path) as driver:
        driver.send("other", "k", b"v")
        driver.run()
        assert driver.store("n").get("k") == 1
