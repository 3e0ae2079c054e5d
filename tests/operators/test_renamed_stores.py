"""Stores that are renamed with all that is under them: values, windows that expire, pending results, timers, kept versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

SECOND, HOUR = 1_000_000, 3_600_000_000
SERDES: dict[str, Any] = {"key": hr.String(), "value": hr.Long()}
Build = Callable[[hr.App, str], None]


def app_of(build: Build, name: str) -> hr.App:
    app = hr.App("renamed")
    build(app, name)
    return app


def opened(build: Build, name: str, folder: Path, *overrides: str, partitions: int = 2) -> Driver:
    return Driver(app_of(build, name), directory=folder, partitions=partitions, overrides=overrides)


def grouped(app: hr.App) -> hr.KGrouped:
    return app.stream("in", **SERDES).group_by_key()


def counts(app: hr.App, name: str) -> None:
    grouped(app).count(store=name).to_stream().to("out")


KEYS = ["a", "b", "c", "d"]


def test_a_renamed_store_goes_on_with_its_state_and_back(tmp_path: Path) -> None:
    def send(d: Driver, expected: int, name: str) -> None:
        for key in KEYS:
            d.send("in", key, 1)
        d.run()
        assert d.store(name).all() == dict.fromkeys(KEYS, expected)

    with opened(counts, "old", tmp_path) as d:
        send(d, 1, "old")
    with opened(counts, "new", tmp_path, "rename_stores=old=new") as d:
        assert "store 'old' is now 'new', with its state" in d._held.prepared.plan.notes
        (edit,) = (note for note in d._held.prepared.plan.notes if note.startswith("operators since the last run: "))
        renamed = "old to new, old-to_stream to new-to_stream, old-to_stream-to to new-to_stream-to"
        assert edit == f"operators since the last run: renamed {renamed}"
        send(d, 2, "new")
    with opened(counts, "new", tmp_path, "rename_stores=old=new") as d:  # it may stay in a configuration
        assert not d._held.prepared.plan.notes
        send(d, 3, "new")
    with opened(counts, "new", tmp_path) as d:
        send(d, 4, "new")
    with opened(counts, "old", tmp_path, "rename_stores=new=old") as d:
        send(d, 5, "old")
    with opened(counts, "new", tmp_path, "rename_stores=old=new") as d, pytest.raises(hr.HeadraceError):
        d.store("old")


def test_a_look_from_outside_goes_by_the_name_of_now(tmp_path: Path) -> None:
    def app(name: str, **keys: Any) -> hr.App:
        app = hr.App("renamed", system=f"log:{tmp_path / 'log'}", state_uri=str(tmp_path / "state"), **keys)
        counts(app, name)
        return app

    with Driver(app("old"), directory=tmp_path) as d:
        d.send("in", "a", 1)
        d.run()
    with Driver(app("new"), directory=tmp_path, overrides=["rename_stores=old=new"]):
        pass
    assert app("new").state("new").get("a") == 1
    assert app("new").state("new").to_arrow().to_pylist() == [{"key": "a", "value": 1}]
    with pytest.raises(hr.HeadraceError, match="has no store 'old'"):
        app("new").state("old").get("a")


def test_behind_a_grouping_the_repartition_keeps_its_name(tmp_path: Path) -> None:
    def build(app: hr.App, name: str) -> None:
        name, _, stream = name.partition("/")
        options = hr.Repartitioned(name=stream or None, key_serde=hr.String())
        app.stream("in", **SERDES).group_by(lambda r: f"all-{r.key}", options).count(store=name).to_stream().to("out")

    def send(d: Driver) -> Any:
        for key in KEYS:
            d.send("in", key, 1)
        d.run()
        return d

    with opened(build, "old", tmp_path) as d:
        send(d)
    with pytest.raises(hr.IncompatibleChangeError) as refused:
        opened(build, "new", tmp_path).open()
    way = "rename with the state: hr.Repartitioned(name='old') in front of it, so that its tasks stay, and "
    assert f"{way}`headrace run ... --rename-store old=new`" in str(refused.value.hint)
    with pytest.raises(hr.IncompatibleChangeError) as refused:
        opened(build, "new", tmp_path, "rename_stores=old=new").open()
    assert "name the repartition before it as it was: hr.Repartitioned(name='old')" in str(refused.value.hint)
    with opened(build, "new/old", tmp_path, "rename_stores=old=new") as d:
        assert send(d).store("new").all() == {f"all-{key}": 2 for key in KEYS}


@pytest.mark.parametrize("kind", ["count", "reduce", "sessions"])
def test_windows_of_a_renamed_store_expire_when_they_should(tmp_path: Path, kind: str) -> None:
    def build(app: hr.App, name: str) -> None:
        is_session = kind == "sessions"
        windows: Any = hr.Session("1 second", retention="1 hour") if is_session else hr.Tumbling("1 hour", retention="1 hour")
        rows = grouped(app).windowed_by(windows)
        table = rows.reduce(lambda a, b: a + b, store=name) if kind == "reduce" else rows.count(store=name)
        table.to_stream().to("out")

    with opened(build, "old", tmp_path, partitions=1) as d:
        for _ in range(2):
            d.send("in", "a", 1, at=0)
        d.run()
    with opened(build, "new", tmp_path, "rename_stores=old=new", partitions=1) as d:
        d.send("in", "a", 1, at=1)
        d.send("in", "b", 1, at=HOUR)
        d.run()
        (start,) = {start for key, start in d.store("new").all() if key == "a"}
        assert d.store("new").get("a", at=start) == 3
        for at in (3 * HOUR, 3 * HOUR):
            d.send("in", "b", 1, at=at)
            d.run()
        assert d.store("new").get("a", at=start) is None
        assert d.counters["entries_expired"] >= 1


def test_results_that_are_held_back_come_from_a_renamed_store(tmp_path: Path) -> None:
    def build(app: hr.App, name: str) -> None:
        windows = hr.Tumbling("1 hour", grace="0 seconds")
        table = grouped(app).windowed_by(windows).count(store="n")
        table.suppress(hr.until_window_closes(), store=name).to_stream().to("out")

    with opened(build, "old", tmp_path, partitions=1) as d:
        d.send("in", "a", 1, at=0)
        d.run()
        assert d.read("out") == []
    with opened(build, "new", tmp_path, "rename_stores=old=new", partitions=1) as d:
        d.send("in", "b", 1, at=HOUR)
        d.run()
        d.run()
        assert [(r.key.key, r.value) for r in d.read("out")] == [("a", 1)]
        assert "timers_orphaned" not in d.counters


@pytest.mark.parametrize("with_record", [True, False], ids=["operators on record", "run by an older version"])
def test_a_join_that_is_renamed_still_gives_its_results_without_a_match(
    tmp_path: Path, with_record: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(app: hr.App, name: str) -> None:
        left, right = (app.stream(side, **SERDES) for side in ("left", "right"))
        joined = left.outer_join(
            right, lambda a, b: f"{a}-{b}", within="10 seconds", grace="0 seconds", name=name, value=hr.String()
        )
        joined.to("out")

    if not with_record:
        monkeypatch.setattr("headrace.driver.planning.job_planner.OPERATORS", "operators-elsewhere")
    with opened(build, "old", tmp_path, partitions=1) as d:
        d.send("left", "a", 1, at=0)
        d.send("right", "b", 2, at=0)
        d.run()
    monkeypatch.undo()
    renames = "rename_stores=old-left=new-left,old-right=new-right"
    with opened(build, "new", tmp_path, renames, partitions=1) as d:
        for side in ("left", "right"):
            d.send(side, "c", 3, at=60 * SECOND)
        d.run()
        d.run()
        assert sorted(r.value for r in d.read("out")) == ["1-None", "3-3", "None-2"]
        assert "timers_orphaned" not in d.counters
    with opened(build, "third", tmp_path, "rename_stores=new-left=third-left,new-right=third-right", partitions=1) as d:
        d.send("left", "d", 4, at=61 * SECOND)
        d.run()
        for side in ("left", "right"):
            d.send(side, "e", 5, at=120 * SECOND)
        d.run()
        d.run()
        assert sorted(r.value for r in d.read("out")) == ["1-None", "3-3", "4-None", "5-5", "None-2"]


class Reminding(hr.Processor[str, int, str, int]):
    name = "old"

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: hr.Record) -> None:
        store = self.context.store(self.name)
        store.put(store.get(default=0) + record.value)
        self.context.timer("later", after="1 hour")

    def on_timer(self, timer: Any) -> None:
        self.context.forward(value=self.context.store(self.name).get())


def test_a_processors_store_and_its_timers_go_on_under_other_names(tmp_path: Path) -> None:
    def build(app: hr.App, name: str) -> None:
        store = hr.KeyValueStore(name, value=hr.Long(), ttl="30 days")
        processor = type("Reminding", (Reminding,), {"stores": (store,), "name": name})
        app.stream("in", **SERDES).process(processor, name=f"remind-{name}", value=hr.Long()).to("out")

    with opened(build, "old", tmp_path, partitions=1) as d:
        d.send("in", "a", 7, at=0)
        d.run()
    with opened(build, "new", tmp_path, "rename_stores=old=new", partitions=1) as d:
        d.send("in", "a", 1, at=1)
        d.send("in", "b", 1, at=2 * HOUR)
        d.run()
        d.run()
        assert [(r.key, r.value) for r in d.read("out")] == [("a", 8)]
        assert "timers_orphaned" not in d.counters


def test_a_table_that_is_joined_keeps_what_it_has(tmp_path: Path) -> None:
    def build(app: hr.App, name: str) -> None:
        table = app.table("users", **SERDES, store=name)
        app.stream("in", **SERDES).left_join(table, lambda a, b: f"{a}-{b}", value=hr.String(), name="joined").to("out")

    with opened(build, "old", tmp_path) as d:
        d.send("users", "a", 1)
        d.run()
    with opened(build, "new", tmp_path, "rename_stores=old=new") as d:
        d.send("in", "a", 5)
        d.run()
        assert [r.value for r in d.read("out")] == ["5-1"]


def test_a_rewind_finds_the_state_that_was_kept_before_the_rename(tmp_path: Path) -> None:
    settings = ["state_version_interval_s=1", "keep_state_versions=10"]
    with opened(counts, "old", tmp_path, *settings, partitions=1) as d:
        for _ in range(3):
            d.send("in", "a", 1)
            d.run()
            d.advance("1 minute")
        d.run()
    with opened(counts, "new", tmp_path, *settings, "rename_stores=old=new", partitions=1) as d:
        d.send("in", "a", 1)
        d.run()
        assert d.store("new").get("a") == 4
        d.startpoint("in", 2, state="rewind")
        assert d.run()
        assert d.store("new").get("a") == 4


def test_a_form_that_changed_begins_empty_where_that_is_asked_for_and_is_rebuilt(tmp_path: Path) -> None:
    def sessions(gap: str) -> Build:
        def build(app: hr.App, name: str) -> None:
            grouped(app).windowed_by(hr.Session(gap)).count(store=name).to_stream().to("out")

        return build

    with opened(sessions("5 minutes"), "s", tmp_path, partitions=1) as d:
        for minute in (0, 7):
            d.send("in", "a", 1, at=minute * 60 * SECOND)
        d.run()
        assert sorted(d.store("s").all().values()) == [1, 1]
    with pytest.raises(hr.IncompatibleChangeError, match="store 's': its gap was 5 minutes, is 10 minutes"):
        opened(sessions("10 minutes"), "s", tmp_path, partitions=1).open()
    with opened(sessions("10 minutes"), "s", tmp_path, "drop_stores=s", partitions=1) as d:
        assert d.store("s").all() == {}
        d.send("in", "a", 1, at=14 * 60 * SECOND)
        d.run()
        assert d.store("s").all() == {("a", 14 * 60 * SECOND): 1}
        d.run()
    with opened(sessions("10 minutes"), "s", tmp_path, "drop_stores=s", partitions=1) as d:
        assert d.store("s").all() == {("a", 14 * 60 * SECOND): 1}, "what begins again does so once"


def with_timers(stores: tuple[str, ...], name: str) -> type:
    """A Processor that sets a timer 10 s after each record, and says its own name and the key when it fires."""

    def process(self: Any, record: hr.Record) -> None:
        self.context.timer("t", at=record.timestamp_us + 10 * SECOND)

    def on_timer(self: Any, timer: Any) -> None:
        self.context.forward(value=[name, timer.key, timer.timestamp_us // SECOND])

    members = {"stores": [hr.KeyValueStore(store, value=hr.Long()) for store in stores], "process": process}
    return type(name, (hr.Processor,), members | {"on_timer": on_timer})


def processors(*parts: tuple[str, tuple[str, ...]]) -> hr.App:
    app = hr.App("renamed")
    stream = app.stream("in", **SERDES)
    for name, stores in parts:
        stream.process(with_timers(stores, name), name=name, value=hr.Json()).to("out")
    return app


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([("X", ("s", "u"))], [("X", ("s",)), ("Y", ("u",))]),
        ([("X", ("s", "u"))], [("Y", ("u",)), ("X", ("s",))]),
        ([("X", ("s", "u"))], [("X", ("s",)), ("A", ("u", "v"))]),
        ([("X", ("s", "u")), ("Y", ("v",))], [("X", ("s",)), ("Y", ("v", "u"))]),
        ([("X", ("s",)), ("Y", ("u",))], [("X", ("u",)), ("Y", ("s",))]),
        ([("X", ("s",)), ("Y", ("u",))], [("X", ("s", "u"))]),
        ([("X", ("s",))], [("Y", ("s",))]),
        ([("X", ())], [("Y", ())]),
        ([("X", ("s",)), ("Z", ("z",))], [("Y", ("s",)), ("Z", ("z",))]),
    ],
)
def test_each_operator_has_timers_of_its_own_wherever_stores_move(tmp_path: Path, before: Any, after: Any) -> None:
    def names(parts: Any) -> list[str]:
        return [name for name, _ in parts]

    with Driver(processors(*before), directory=tmp_path) as d:
        d.send("in", "old", 1, at=0)
        d.run()
    for _ in range(2):  # and at a start without an edit
        with Driver(processors(*after), directory=tmp_path) as d:
            d.send("in", "new", 1, at=5 * SECOND)
            d.run()
    with Driver(processors(*after), directory=tmp_path) as d:
        d.send("in", "tick", 1, at=100 * SECOND)
        d.run()
        found = sorted(r.value for r in d.read("out", from_start=True) if r.value[1] != "tick")
    renamed = dict(zip(names(before), names(after), strict=True)) if len(before) == len(after) else {}
    kept = [name if name in names(after) else renamed.get(name) for name in names(before)]
    expected = [[name, "old", 10] for name in kept if name] + [[name, "new", 15] for name in names(after)]
    assert found == sorted(expected)


def test_a_chain_of_renames_may_stay_in_a_configuration(tmp_path: Path) -> None:
    def send(d: Driver, expected: int, name: str) -> None:
        d.send("in", "a", 1)
        d.run()
        assert d.store(name).all() == {"a": expected}

    with opened(counts, "a", tmp_path / "step by step") as d:
        send(d, 1, "a")
    with opened(counts, "b", tmp_path / "step by step", "rename_stores=a=b") as d:
        send(d, 2, "b")
    for expected in (3, 4):
        with opened(counts, "c", tmp_path / "step by step", "rename_stores=a=b,b=c") as d:
            send(d, expected, "c")
    with opened(counts, "a", tmp_path / "at once") as d:
        send(d, 1, "a")
    for expected in (2, 3):
        with opened(counts, "c", tmp_path / "at once", "rename_stores=a=b,b=c") as d:
            send(d, expected, "c")
