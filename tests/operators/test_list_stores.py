"""List stores: a list of values under a record's key, against a list of Python's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver

COMMANDS: list[Any] = []  # what a record's number stands for
INDEXES = st.integers(-4, 6)
BOUNDS = st.one_of(st.none(), INDEXES)
LIMITS = st.one_of(st.none(), st.integers(0, 3))
VALUES = st.integers(-5, 5)


def done(store: Any, command: Any) -> Any:
    what, *arguments = command
    match what:
        case "range":
            *bounds, reverse, limit = arguments
            return store.range(*bounds, reverse=reverse, limit=limit)
        case "iterate":
            return [len(store), list(store)]
        case "fail":
            store.extend(arguments)
            store.trim(1)
            raise ValueError("none of it counts")
    return getattr(store, what)(*arguments)


def expected(model: list[int], command: Any) -> Any:
    what, *arguments = command
    match what:
        case "append":
            model.append(arguments[0])
        case "extend":
            model.extend(arguments[0])
        case "get":
            index = arguments[0]
            return model[index] if -len(model) <= index < len(model) else None
        case "range":
            start, stop, reverse, limit = arguments
            return (model[start:stop][::-1] if reverse else model[start:stop])[:limit]
        case "iterate":
            return [len(model), list(model)]
        case "pop_first":
            return model.pop(0) if model else arguments[0]
        case "trim":
            del model[: arguments[0]]
        case "clear":
            model.clear()
    return None


def app_of(body: Any, value: Any = None, **keys: Any) -> hr.App:
    store = hr.ListStore("l", value=value or hr.Long())

    class Commands(hr.Processor):
        stores: ClassVar[Any] = [store]

        def process(self, record: hr.Record) -> None:
            self.context.forward(value=body(self.context.store(store), COMMANDS[record.value]))

    app = hr.App("lists", **keys)
    app.stream("in", key=hr.String(), value=hr.Long()).process(Commands, value=hr.MessagePack()).to("out")
    return app


WAYS = st.one_of(
    st.tuples(st.just("append"), VALUES),
    st.tuples(st.just("append"), VALUES),
    st.tuples(st.just("extend"), st.lists(VALUES, max_size=4)),
    st.tuples(st.just("fail"), VALUES, VALUES),
    st.tuples(st.just("get"), INDEXES),
    st.tuples(st.just("range"), BOUNDS, BOUNDS, st.booleans(), LIMITS),
    st.tuples(st.just("iterate")),
    st.tuples(st.just("pop_first"), st.just(-9)),
    st.tuples(st.just("trim"), st.integers(0, 3)),
    st.tuples(st.just("clear")),
)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from("xy"), WAYS), max_size=25), st.sampled_from([1, 4, 1000]), st.sampled_from([1, 4])
)
def test_it_is_a_list(sent: Any, per_round: int, factor: int) -> None:
    COMMANDS[:] = [command for _, command in sent]
    app = app_of(done, max_records_per_round=per_round, elasticity_factor=factor, dead_letter_stream="dead")
    with Driver(app) as d:
        models: dict[str, list[int]] = {"x": [], "y": []}
        results: dict[str, list[Any]] = {"x": [], "y": []}
        for number, (key, command) in enumerate(sent):
            d.send("in", key, number)
            if command[0] != "fail":
                results[key].append(expected(models[key], command))
        d.run()
        found: dict[str, list[Any]] = {"x": [], "y": []}
        for record in d.read("out"):
            found[record.key].append(record.value)
        assert found == results
        stored = d.store("l").items()
        for key, model in models.items():
            numbers = [number for (one, number), _ in stored if one == key]
            assert [value for (one, _), value in stored if one == key] == model
            assert numbers == list(range(numbers[0], numbers[0] + len(model))) if model else not numbers


def test_a_value_is_appended_without_the_others() -> None:
    """Whatever the length of the list: two entries are written, and one is read."""
    COMMANDS[:] = [("extend", [1] * 500), ("append", 2), ("pop_first",)]
    seen: list[tuple[int, int]] = []

    def counted(store: Any, command: Any) -> Any:
        calls = store._database()._calls
        before = calls.reads, calls.writes
        done(store, command)
        seen.append((calls.reads - before[0], calls.writes - before[1]))

    with Driver(app_of(counted, max_records_per_round=1)) as d:
        for number in range(3):
            d.send("in", "k", number)
        d.run()
        assert seen[1:] == [(1, 2), (3, 2)]
        assert len(d.store("l")) == 500


def test_it_is_kept_through_restarts_and_changes_of_scale(tmp_path: Path) -> None:
    def queued(store: Any, command: Any) -> Any:
        store.append(command)
        return [store.pop_first() if len(store) > 3 else None, list(store)]

    COMMANDS[:] = list(range(30))
    for factor in (1, 4, 2):
        with Driver(app_of(queued, elasticity_factor=factor), directory=tmp_path) as d:
            at = {1: 0, 4: 10, 2: 20}[factor]
            for number in range(at, at + 10):
                d.send("in", "k", number)
            d.run()
            last = at + 9
            assert list(d.read("out"))[-1].value == [last - 3, [last - 2, last - 1, last]]


def test_it_looks_like_a_list_from_outside(tmp_path: Path) -> None:
    COMMANDS[:] = [("extend", [5, 6, 7]), ("pop_first",), ("append", 8)]
    app = app_of(done, system=f"log:{tmp_path / 'log'}", state_uri=str(tmp_path / "state"))
    with Driver(app, directory=tmp_path) as d:
        for number in range(3):
            d.send("in", "k", number)
        d.send("in", "other", 0)
        d.run()
        assert d.store("l").get("k", sub=1) == 6
        assert len(d.store("l")) == 6
        state = app.state("l")
        assert state.get("k") == [6, 7, 8]
        assert state.get("none") is None
        assert state.get("k", sub=3) == 8
        assert [entry.sub for entry in state.entries("k")] == [1, 2, 3]
        rows, _ = state.rows_as_of(10, lambda key: key == "other")
        assert rows == [{"key": "other", "sub": number, "value": number + 5} for number in range(3)]
        table = state.to_arrow()
        assert table.column_names == ["key", "sub", "value"]
        rows = sorted(tuple(row.values()) for row in table.to_pylist())
        assert rows == [("k", 1, 6), ("k", 2, 7), ("k", 3, 8), ("other", 0, 5), ("other", 1, 6), ("other", 2, 7)]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("append", None), "holds no None"),
        (("range", None, None, False, -1), "expected 0 or more"),
        (("trim", -1), "expected 0 or more"),
    ],
)
def test_what_a_list_does_not_take_is_an_error_of_the_record(command: Any, text: str) -> None:
    COMMANDS[:] = [command]
    with Driver(app_of(done)) as d:
        d.send("in", "k", 0)
        with pytest.raises(hr.RecordError, match=text):
            d.run()


def test_it_is_no_other_kind_of_store(tmp_path: Path) -> None:
    COMMANDS[:] = [("append", 1)]
    with Driver(app_of(done), directory=tmp_path) as d:
        d.send("in", "k", 0)
        d.run()
    with pytest.raises(hr.IncompatibleChangeError, match="were `long`, are `string`"):
        Driver(app_of(done, hr.String()), directory=tmp_path).open()
