"""A job that reads what it writes: `until="caught-up"` ends once nothing of its own is left to be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.testing import Driver
from support.world import caught_up, source_of

TEXT, NUMBER = hr.String(), hr.Long()


def app_at(folder: Path, name: str = "around", **options: Any) -> hr.App:
    url = f"log:{folder / 'log'}"
    return hr.App(name, url, state_uri=str(folder / "state"), local_store_dir=str(folder / "stores"), **options)


def send(folder: Path, stream: str, *values: tuple[str, int]) -> None:
    with hr.open_system(f"log:{folder / 'log'}") as system:
        if stream not in [one.name for one in system.streams()]:
            system.create_stream(stream, 2)
        for key, value in values:
            system.produce(stream, [hr.Record(key, value, 0)], key=TEXT, value=NUMBER)


def read(folder: Path, stream: str) -> Counter[tuple[str, int]]:
    with hr.open_system(f"log:{folder / 'log'}") as system:
        return Counter((r.key, r.value) for r in system.consume(stream, key=TEXT, value=NUMBER))


def one_less(numbers: Any) -> Any:
    return numbers.filter(lambda r: r.value > 0).map_values(lambda r: r.value - 1, value=NUMBER)


def directly(app: hr.App) -> None:
    one_less(app.stream("numbers", key=TEXT, value=NUMBER)).to("numbers", feedback=True)


def through_a_repartition(app: hr.App) -> None:
    numbers = app.stream("numbers", key=TEXT, value=NUMBER)
    one_less(numbers.repartition(hr.Repartitioned(name="across"))).to("numbers", feedback=True)


def through_a_table(app: hr.App) -> None:
    lowest = app.stream("numbers", key=TEXT, value=NUMBER).group_by_key().reduce(min, store="lowest")
    one_less(lowest.to_stream(emit="each")).to("numbers", feedback=True)


@pytest.mark.parametrize("declare", [directly, through_a_repartition, through_a_table])
def test_a_loop_is_read_to_its_fixed_point(declare: Callable[[hr.App], None], tmp_path: Path) -> None:
    app = app_at(tmp_path)
    declare(app)
    send(tmp_path, "numbers", ("a", 4), ("b", 0), ("c", 2))
    job = caught_up(app)
    counted = [("a", n) for n in range(5)] + [("c", n) for n in range(3)] + [("b", 0)]
    assert read(tmp_path, "numbers") == Counter(counted)
    assert source_of(job)["records"] == 9 and source_of(job)["lag"] == 0
    caught_up(app)  # and stays there
    assert read(tmp_path, "numbers") == Counter(counted)


def test_an_output_that_is_another_input_is_read_to_its_end(tmp_path: Path) -> None:
    app = app_at(tmp_path)
    one_less(app.stream("first", key=TEXT, value=NUMBER)).to("second")
    one_less(app.stream("second", key=TEXT, value=NUMBER)).to("third")
    one_less(app.stream("third", key=TEXT, value=NUMBER)).to("out")
    send(tmp_path, "second", ("x", 2))
    send(tmp_path, "third")
    send(tmp_path, "out")
    send(tmp_path, "first", ("a", 5))
    caught_up(app)
    assert read(tmp_path, "out") == Counter([("a", 2), ("x", 0)])


def test_the_bound_ends_it_and_the_next_run_continues(tmp_path: Path) -> None:
    app = app_at(tmp_path, caught_up_passes_max=3)
    directly(app)
    send(tmp_path, "numbers", ("a", 7), ("b", 7))
    with pytest.raises(hr.WaitTimeoutError, match=r"after 3 passes: .* wrote 2 to 'numbers'"):
        caught_up(app)
    assert read(tmp_path, "numbers") == Counter({(key, n): 1 for key in "ab" for n in (7, 6, 5, 4)})
    with pytest.raises(hr.WaitTimeoutError, match="after 3 passes"):
        caught_up(app)
    caught_up(app)
    assert read(tmp_path, "numbers") == Counter({(key, n): 1 for key in "ab" for n in range(8)})


def test_what_others_send_meanwhile_is_for_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_at(tmp_path)
    directly(app)
    send(tmp_path, "numbers", ("a", 1))
    commit = SubTopologyRunner.commit

    def committing(self: Any, *given: Any) -> None:
        commit(self, *given)
        send(tmp_path, "numbers", ("other", 0))  # for ever: behind each round

    monkeypatch.setattr(SubTopologyRunner, "commit", committing)
    job = caught_up(app)
    assert source_of(job)["lag"] == 1  # what came behind the last round
    assert {key for key, n in read(tmp_path, "numbers") if n == 0} == {"a", "other"}


def test_a_round_that_failed_behind_its_commit_is_not_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_at(tmp_path)
    directly(app)
    send(tmp_path, "numbers", ("a", 3))
    commit, failed = SubTopologyRunner.commit, list[bool]()

    def committing(self: Any, *given: Any) -> None:
        commit(self, *given)
        if not failed:
            failed.append(True)
            raise hr.RoundFailedError("the answer was lost")

    monkeypatch.setattr(SubTopologyRunner, "commit", committing)
    caught_up(app)
    assert read(tmp_path, "numbers") == Counter({("a", n): 1 for n in range(4)})


def test_the_test_driver_reads_a_loop_to_its_end_and_has_the_same_bound() -> None:
    app = hr.App("around")
    directly(app)
    with Driver(app) as d:
        d.send("numbers", "a", 6)
        d.run()
        assert [r.value for r in d.read("numbers")] == [6, 5, 4, 3, 2, 1, 0]
    endless = hr.App("endless", caught_up_passes_max=20)
    endless.stream("numbers", key=TEXT, value=NUMBER).to("numbers", feedback=True)
    with Driver(endless) as d:
        d.send("numbers", "a", 6)
        with pytest.raises(hr.WaitTimeoutError, match=r"after 20 passes: .* wrote 1 to 'numbers'"):
            d.run()
