"""An application that was edited goes on with its state and positions, or is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver


def counting(
    before: Callable[[hr.KStream], hr.KStream] = lambda s: s,
    after: Callable[[hr.KStream], hr.KStream] = lambda s: s,
    aggregate: Callable[[Any], Any] = lambda g: g.count(store="counts"),
) -> hr.App:
    app = hr.App("edited")
    stream = before(app.stream("in", key=hr.String(), value=hr.Long()))
    after(aggregate(stream.group_by_key()).to_stream()).to("out")
    return app


def run(app: hr.App, directory: Path, values: list[int]) -> tuple[dict[Any, Any], list[tuple[Any, Any]]]:
    with Driver(app, directory=directory, partitions=2) as d:
        d.read("out")  # what former runs wrote
        for value in values:
            d.send("in", "k", value)
        d.run()
        return d.store("counts").all(), [(r.key, r.value) for r in d.read("out")]


def test_an_operator_before_the_store(tmp_path: Path) -> None:
    run(counting(), tmp_path, [1, 2, 3])
    state, updates = run(counting(before=lambda s: s.filter(lambda r: r.value > 10)), tmp_path, [4, 50])
    assert (state, updates) == ({"k": 4}, [("k", 4)])  # the first three are not read again


def test_an_operator_after_the_store(tmp_path: Path) -> None:
    run(counting(), tmp_path, [1, 2, 3])
    edited = counting(after=lambda s: s.map_values(lambda r: r.value * 100, value=hr.Long()))
    assert run(edited, tmp_path, [1]) == ({"k": 4}, [("k", 400)])


def test_another_branch_beside_the_store(tmp_path: Path) -> None:
    run(counting(), tmp_path, [1, 2, 3])
    app = counting()
    app.stream("other", key=hr.String(), value=hr.Long()).group_by_key().count(store="more").to("more-out")
    with Driver(app, directory=tmp_path, partitions=2) as d:
        d.send("in", "k", 1)
        d.send("other", "k", 1)
        d.run()
        assert (d.store("counts").get("k"), d.store("more").get("k")) == (4, 1)


@pytest.mark.parametrize(
    ("aggregate", "words"),
    [
        (lambda g: g.reduce(lambda a, b: a + b, store="counts"), "cannot be read as that"),
        (lambda g: g.aggregate(n=hr.count(), store="counts"), "cannot be read as that"),
        (lambda g: g.windowed_by(hr.Tumbling("1 hour")).count(store="counts"), "cannot be read as that"),
    ],
    ids=["reduce", "named", "windows"],
)
def test_another_form_of_a_store_is_refused(tmp_path: Path, aggregate: Any, words: str) -> None:
    run(counting(), tmp_path, [1, 2])
    with pytest.raises(hr.IncompatibleChangeError, match=words):
        Driver(counting(aggregate=aggregate), directory=tmp_path, partitions=2).open()
    assert run(counting(), tmp_path, [3])[0] == {"k": 3}, "the refused start has changed nothing"


def test_a_store_that_moves_to_another_sub_topology_is_refused(tmp_path: Path) -> None:
    run(counting(), tmp_path, [1, 2])
    moved = counting(before=lambda s: s.repartition(hr.Repartitioned(name="again", number_of_partitions=2)))
    with pytest.raises(hr.IncompatibleChangeError, match="'source' and is now in 'again'"):
        Driver(moved, directory=tmp_path, partitions=2).open()
    assert run(counting(), tmp_path, [3])[0] == {"k": 3}


def test_a_store_of_another_name_is_refused_and_begins_empty_where_the_old_state_is_given_up(tmp_path: Path) -> None:
    run(counting(), tmp_path, [1, 2])

    def renamed(**keys: Any) -> Driver:
        overrides = [f"{key}={value}" for key, value in keys.items()]
        app = counting(aggregate=lambda g: g.count(store="other"))
        return Driver(app, directory=tmp_path, partitions=2, overrides=overrides)

    with pytest.raises(hr.IncompatibleChangeError, match="store 'counts' is no longer in the application") as refused:
        renamed().open()
    hint = refused.value.hint or ""
    assert "keep the old name 'counts'" in hint
    assert "--rename-store counts=other" in hint
    assert "--drop-store counts" in hint
    assert "headrace startpoint set in --application" in hint
    assert run(counting(), tmp_path, [3])[0] == {"k": 3}, "the refused start has changed nothing"
    with renamed(drop_stores="counts") as d:
        d.send("in", "k", 3)
        d.run()
        assert d.store("other").all() == {"k": 1}
    with renamed(drop_stores="counts") as d:  # a request that was carried out may stay in a configuration
        d.send("in", "k", 3)
        d.run()
        assert d.store("other").all() == {"k": 2}


def test_watermarks_carry_on(tmp_path: Path) -> None:
    hour = 3_600_000_000

    def app() -> hr.App:
        windows = hr.Tumbling("1 hour", grace="0 s")
        return counting(aggregate=lambda g: g.windowed_by(windows).count(store="counts"))

    with Driver(app(), directory=tmp_path) as d:
        d.send("in", "k", 1, at=5 * hour)
        d.run()
    with Driver(app(), directory=tmp_path) as d:
        d.send("in", "k", 1, at=0)
        d.run()
        assert d.counters["late_records"] == 1


def test_an_input_that_was_deleted_and_made_anew_is_refused(tmp_path: Path) -> None:
    def counting() -> hr.App:
        app = hr.App("anew")
        app.stream("in", key=hr.String()).group_by_key().count(store="c").to_stream().to("out")
        return app

    with Driver(counting(), directory=tmp_path) as d:
        d.send("in", "a", b"1")
        d.run()
    folder = next(path.parent for path in tmp_path.rglob("catalog.sqlite"))
    with hr.open_system(f"log:{folder}") as log:
        log.delete_stream("in")
        log.create_stream("in", 1)
    with pytest.raises(hr.IncompatibleChangeError, match="deleted and recreated"), Driver(counting(), directory=tmp_path) as d:
        d.run()


def test_a_store_that_was_taken_out_cannot_come_back_with_a_hole_in_it(tmp_path: Path) -> None:
    def app_with(keyed: bool) -> hr.App:
        app = hr.App("holes")
        stream = app.stream("in", key=hr.String())
        if keyed:
            stream.group_by_key().count(store="c").to_stream().to("out")
        else:
            stream.to("plain")
        return app

    for keyed in (True, False, False):
        with Driver(app_with(keyed), directory=tmp_path) as d:
            d.send("in", "a", b"1")
            d.run()
    with pytest.raises(hr.IncompatibleChangeError, match="missed all records"), Driver(app_with(True), directory=tmp_path) as d:
        d.run()
