"""Map stores: ordered sub-keys under a record's key, against a dict."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver

TEXTS = st.text("aé😀b\x00", max_size=4)
SUBS: dict[type, st.SearchStrategy[Any]] = {
    str: TEXTS,
    bytes: st.binary(max_size=3) | st.sampled_from([b"\xff", b"\xff\xff", b"\xff" * 64]),
    int: st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
}
LIMITS = st.one_of(st.none(), st.integers(0, 3))


def order(sub: Any) -> Any:
    return sub.encode() if isinstance(sub, str) else sub


def app_of(kind: type, body: Any, **keys: Any) -> hr.App:
    """`body(store, command, values)`: works on the store with what was sent, and gives what is written."""
    store = hr.MapStore("m", value=hr.Long(), sub=kind)

    class Commands(hr.Processor):
        stores: ClassVar[Any] = [store]

        def process(self, record: hr.Record) -> None:
            self.context.forward(value=body(self.context.store(store), COMMANDS[record.value]))

    app = hr.App("maps", **keys)
    app.stream("in", key=hr.String(), value=hr.Long()).process(Commands, value=hr.MessagePack()).to("out")
    return app


COMMANDS: list[Any] = []  # what a record's number stands for: sub-keys and bounds of any kind


def done(store: Any, command: Any) -> Any:
    what, *arguments = command
    match what:
        case "put" | "delete" | "get":
            return getattr(store, what)(*arguments)
        case "clear":
            return store.clear()
        case "fail":
            store.put(*arguments)
            store.clear()
            raise ValueError("none of it counts")
    *bounds, reverse, limit = arguments
    return [list(pair) for pair in getattr(store, what)(*bounds, reverse=reverse, limit=limit)]


def expected(model: dict[Any, int], command: Any) -> Any:
    what, *arguments = command
    match what:
        case "put":
            return model.update([arguments])
        case "delete":
            return model.pop(arguments[0], None) and None
        case "get":
            return model.get(arguments[0])
        case "clear":
            return model.clear()
    *bounds, reverse, limit = arguments
    found = sorted(model.items(), key=lambda pair: order(pair[0]), reverse=reverse)
    if what == "range":
        low, high = (None if bound is None else order(bound) for bound in bounds)
        found = [(s, v) for s, v in found if (low is None or order(s) >= low) and (high is None or order(s) < high)]
    else:
        found = [(s, v) for s, v in found if order(s).startswith(order(bounds[0]))]
    return [list(pair) for pair in found[:limit]]


@st.composite
def commands(draw: Any) -> tuple[type, list[tuple[str, Any]]]:
    kind = draw(st.sampled_from(list(SUBS)))
    sub = SUBS[kind]
    bound = st.one_of(st.none(), sub)
    ways = [
        st.tuples(st.just("put"), sub, st.integers(-5, 5)),
        st.tuples(st.just("put"), sub, st.integers(-5, 5)),
        st.tuples(st.just("fail"), sub, st.integers(-5, 5)),
        st.tuples(st.sampled_from(["delete", "get"]), sub),
        st.tuples(st.just("clear")),
        st.tuples(st.just("range"), bound, bound, st.booleans(), LIMITS),
    ]
    if kind is not int:
        ways.append(st.tuples(st.just("prefix_scan"), sub, st.booleans(), LIMITS))
    return kind, draw(st.lists(st.tuples(st.sampled_from("xy"), st.one_of(ways)), max_size=25))


@settings(max_examples=60)
@given(commands(), st.sampled_from([1, 4, 1000]), st.sampled_from([1, 4]))
def test_it_is_a_dict_in_the_order_of_its_sub_keys(drawn: Any, per_round: int, factor: int) -> None:
    kind, sent = drawn
    COMMANDS[:] = [command for _, command in sent]
    app = app_of(kind, done, max_records_per_round=per_round, elasticity_factor=factor, dead_letter_stream="dead")
    with Driver(app) as d:
        models: dict[str, dict[Any, int]] = {"x": {}, "y": {}}
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
        assert len(d.store("m")) == sum(map(len, models.values()))


def test_it_is_kept_through_restarts_and_changes_of_scale(tmp_path: Path) -> None:
    def put(store: Any, command: Any) -> Any:
        store.put(*command)
        return [list(pair) for pair in store.range()]

    COMMANDS[:] = [(f"s{number:02d}", number) for number in range(30)]
    for factor in (1, 4, 2):
        with Driver(app_of(str, put, elasticity_factor=factor), directory=tmp_path) as d:
            at = {1: 0, 4: 10, 2: 20}[factor]
            for number in range(at, at + 10):
                d.send("in", "k", number)
            d.run()
            assert list(d.read("out"))[-1].value == [list(one) for one in COMMANDS[: at + 10]]


@pytest.mark.parametrize(
    ("kind", "command", "text"),
    [
        (str, ("put", 5, 1), "expected str, found int"),
        (str, ("put", None, 1), "expected str, found NoneType"),
        (int, ("put", True, 1), "expected int, found bool"),
        (int, ("put", 2**63, 1), "a number of 64 bits"),
        (int, ("prefix_scan", 1, False, None), "have no prefix"),
        (bytes, ("put", b"x" * 65, 1), "at most 64"),
        (str, ("range", None, None, False, -1), "expected 0 or more"),
    ],
)
def test_what_is_no_sub_key_is_an_error_of_the_record(kind: type, command: Any, text: str) -> None:
    COMMANDS[:] = [command]
    with Driver(app_of(kind, done)) as d:
        d.send("in", "k", 0)
        with pytest.raises(hr.RecordError, match=text):
            d.run()


def test_another_class_of_sub_keys_is_another_store(tmp_path: Path) -> None:
    COMMANDS[:] = [("put", "a", 1)]
    with Driver(app_of(str, done), directory=tmp_path) as d:
        d.send("in", "k", 0)
        d.run()
    with pytest.raises(hr.IncompatibleChangeError, match="a MapStore's values, by texts"):
        Driver(app_of(int, done), directory=tmp_path).open()


def test_sub_keys_of_other_classes_are_refused() -> None:
    with pytest.raises(hr.TopologyError, match="expected str, bytes or int"):
        hr.MapStore("m", value=hr.Long(), sub=float)


@pytest.mark.parametrize(("kind", "subs"), [(str, ["a", "é"]), (bytes, [b"", b"a"]), (int, [-1, 0])])
def test_it_looks_like_a_dict_from_outside(kind: type, subs: list[Any], tmp_path: Path) -> None:
    COMMANDS[:] = [("put", sub, number) for number, sub in enumerate(subs)]
    app = app_of(kind, done, system=f"log:{tmp_path / 'log'}", state_uri=str(tmp_path / "state"))
    with Driver(app, directory=tmp_path) as d:
        for number in range(len(subs)):
            d.send("in", "k", number)
        d.run()
        state = app.state("m")
        assert state.get("k") == {sub: number for number, sub in enumerate(subs)}
        assert state.get("k", sub=subs[1]) == d.store("m").get("k", sub=subs[1]) == 1
        assert [(row["sub"], row["value"]) for row in state.to_arrow().to_pylist()] == [(subs[0], 0), (subs[1], 1)]
