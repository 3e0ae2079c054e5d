"""Whose fault it is when a user's function raises: the record's, the programmer's, or nobody's but a signal's."""

from __future__ import annotations

import errno
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.errors import RecordError, RoundFailedError, TopologyError
from headrace.testing import Driver

RAISED = [SystemExit, KeyboardInterrupt, GeneratorExit, type("OfNoKind", (BaseException,), {})]


class Raising(hr.Processor[str, Any, str, Any]):
    kind: ClassVar[type[BaseException]] = SystemExit

    def process(self, record: hr.Record) -> None:
        checked(self.kind)(record)
        self.context.forward(value=record.value)


class RaisingInBatches(hr.Processor[str, Any, str, Any]):
    kind: ClassVar[type[BaseException]] = SystemExit

    def process_batch(self, batch: Any) -> None:
        for value in batch.column("value").to_pylist():
            checked(self.kind)(hr.Record(value=value))
            self.context.forward(key="k", value=value)


class RaisingInTimers(hr.Processor[str, Any, str, Any]):
    kind: ClassVar[type[BaseException]] = SystemExit

    def process(self, record: hr.Record) -> None:
        self.context.timer(record.value, at=0)
        self.context.forward(value=record.value)

    def on_timer(self, timer: Any) -> None:
        checked(self.kind)(hr.Record(value=timer.name))


def checked(kind: type[BaseException]) -> Callable[[hr.Record], Any]:
    def function(record: hr.Record) -> Any:
        if record.value == "bad":
            raise kind
        return record.value

    return function


def batched(kind: type[BaseException]) -> Any:
    @hr.batch
    def function(batch: Any) -> Any:
        for value in batch.column("value").to_pylist():
            checked(kind)(hr.Record(value=value))
        return batch.column("value")

    return function


def made(base: Any, kind: type[BaseException]) -> Any:
    return type(base.__name__, (base,), {"kind": kind})


PLACES: dict[str, Callable[[hr.KStream, type[BaseException]], hr.KStream]] = {
    "filter": lambda s, kind: s.filter(checked(kind)),
    "map_values": lambda s, kind: s.map_values(checked(kind), value=hr.Json()),
    "flat_map_values": lambda s, kind: s.flat_map_values(lambda r: [checked(kind)(r)], value=hr.Json()),
    "batch": lambda s, kind: s.map_values(batched(kind), value=hr.Json()),
    "reduce": lambda s, kind: s.group_by_key().reduce(lambda a, b: checked(kind)(hr.Record(value=b))).to_stream(),
    "aggregate": lambda s, kind: (
        s.group_by_key().aggregate(initial="", function=lambda a, r: checked(kind)(r), value=hr.Json()).to_stream()
    ),
    "process": lambda s, kind: s.process(made(Raising, kind), value=hr.Json()),
    "process_batch": lambda s, kind: s.process(made(RaisingInBatches, kind), value=hr.Json()),
    "on_timer": lambda s, kind: s.process(made(RaisingInTimers, kind), value=hr.Json()),
}


def app_of(build: Callable[[hr.KStream], hr.KStream], **keys: Any) -> hr.App:
    app = hr.App("faults", **keys)
    build(app.stream("in", key=hr.String(), value=hr.Json())).to("out", value=hr.Json())
    return app


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("place", sorted(PLACES))
def test_whatever_a_function_raises_is_an_error_of_its_record(place: str, kind: type[BaseException]) -> None:
    with Driver(app_of(lambda s: PLACES[place](s, kind), dead_letter_stream="dead")) as d:
        for value in ("good", "bad", "fine"):
            d.send("in", "k", value)
        d.run()
        (letter,) = d.read("dead")
        assert dict(letter.headers)["headrace.error-class"] == kind.__name__.encode()
        assert d.read("out")[-1].value == "fine", "the others go on"


def test_without_a_dead_letter_stream_an_exit_stops_the_job_as_an_error_of_its_record() -> None:
    with Driver(app_of(lambda s: s.filter(checked(SystemExit)))) as d:
        d.send("in", "k", "bad")
        with pytest.raises(RecordError, match="SystemExit"):
            d.run()


def raising_handler(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("handler", [signal.default_int_handler, raising_handler], ids=["Python's", "another"])
def test_a_signal_is_no_error_of_a_record(handler: Any, request: pytest.FixtureRequest) -> None:
    before = signal.signal(signal.SIGINT, handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def interrupted(record: hr.Record) -> bool:
        signal.raise_signal(signal.SIGINT)
        return True

    with Driver(app_of(lambda s: s.filter(interrupted), dead_letter_stream="dead")) as d:
        d.send("in", "k", 1)
        with pytest.raises(KeyboardInterrupt):
            d.run()
        assert d.read("dead") == []


def test_an_exit_while_a_processor_is_made_ready_is_said() -> None:
    class Leaves(hr.Processor[str, Any, str, Any]):
        def init(self, context: Any) -> None:
            raise SystemExit("no model here")

        def process(self, record: hr.Record) -> None: ...

    with Driver(app_of(lambda s: s.process(Leaves, value=hr.Json()))) as d:
        d.send("in", "k", 1)
        with pytest.raises(RoundFailedError, match="SystemExit: no model here"):
            d.run()


# --- misuse ---------------------------------------------------------------------------------------------------------


class Misusing(hr.Processor[str, Any, str, Any]):
    stores: ClassVar = [hr.KeyValueStore("seen", value=hr.Json(), ttl="1 hour")]
    misuse: ClassVar[Callable[[Any], Any]]

    def process(self, record: hr.Record) -> None:
        self.context.store("seen").put(1)
        self.context.forward(value="before")
        if record.value == "bad":
            type(self).misuse(self.context)


MISUSES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a store that is not declared": (lambda c: c.store("nope"), r"no store 'nope'; it declares: seen"),
    "an operator that does not follow": (lambda c: c.forward(value=1, to="nobody"), r"to='nobody'"),
    "an unknown clock": (lambda c: c.timer("t", at=0, clock="moon"), r"clock 'moon'"),
    "a timer without a time": (lambda c: c.timer("t"), r"either `at` or `after`"),
    "an unknown attribute": (lambda c: c.forwrad(1), r"(?s)no 'forwrad'.*'forward'"),
    "an unknown argument": (lambda c: c.forward(vlaue=1), r"unexpected keyword argument 'vlaue'"),
    "an unknown method of a store": (lambda c: c.store("seen").set(1), r"no attribute 'set'"),
    "many puts with a ttl": (lambda c: c.store("seen").put_many([], []), r"put_many on a store with a ttl"),
}


@pytest.mark.parametrize("misuse", sorted(MISUSES))
def test_misuse_stops_the_job_though_there_is_a_dead_letter_stream(misuse: str) -> None:
    call, message = MISUSES[misuse]
    misusing = type("Misusing", (Misusing,), {"misuse": staticmethod(call)})
    with Driver(app_of(lambda s: s.process(misusing, name="p", value=hr.Json()), dead_letter_stream="dead")) as d:
        d.send("in", "k", "good")
        d.run()
        d.send("in", "k", "bad")
        for _ in range(2):  # the position has not moved: the record comes again
            with pytest.raises(TopologyError, match=message) as caught:
                d.run()
        assert "'p'" in str(caught.value)
        assert "test_faults.py" in str(caught.value)
        assert d.read("dead") == []
        assert len(d.read("out")) == 1


class Counting(hr.Processor[str, Any, str, Any]):
    stores: ClassVar = [hr.KeyValueStore("seen", value=hr.Long())]

    def process(self, record: hr.Record) -> None:
        seen = self.context.store("seen")
        seen.put(seen.get(default=0) + 1)
        self.context.forward(value=seen.get())


def refuse_to_open(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


COUNTS: dict[str, Callable[[hr.KStream], hr.KStream]] = {
    "process": lambda s: s.process(Counting, value=hr.Json()),
    "aggregate": lambda s: (
        s.group_by_key().aggregate(initial=0, function=lambda n, r: n + 1, value=hr.Json(), store="seen").to_stream()
    ),
}


@pytest.mark.parametrize("trouble", ["no state file", "a full disk"])
@pytest.mark.parametrize("place", sorted(COUNTS))
def test_a_store_that_cannot_be_opened_is_no_error_of_a_record(
    place: str, trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_of(COUNTS[place], dead_letter_stream="dead")
    with Driver(app, directory=tmp_path / "job") as d:
        d.send("in", "k", "first")
        d.run()
    stores = [file.parent for file in (tmp_path / "job").rglob("data.mdb")]
    files = [*(tmp_path / "job" / "state").rglob("*.arrow")]
    assert stores and files
    for folder in stores:
        shutil.rmtree(folder)
    kept = {file: file.read_bytes() for file in files}
    if trouble == "no state file":
        expected = "found no such file"
        for file in files:
            file.unlink()
    else:
        expected = "the disk is full"
        monkeypatch.setattr("lmdb.open", refuse_to_open)
    with Driver(app, directory=tmp_path / "job") as d:
        d.send("in", "k", "second")
        with pytest.raises(hr.HeadraceError, match=expected):
            d.run()
        assert d.read("dead") == []
        monkeypatch.undo()
        for file, data in kept.items():
            file.write_bytes(data)
        d.run()
        assert d.read("dead") == [] and d.store("seen").get("k") == 2


def test_a_wait_that_a_record_gives_is_the_records() -> None:
    class Waits(hr.Processor[str, Any, str, Any]):
        def process(self, record: hr.Record) -> None:
            self.context.timer("t", after=record.value)

        def on_timer(self, timer: Any) -> None: ...

    with Driver(app_of(lambda s: s.process(Waits, value=hr.Json()), dead_letter_stream="dead")) as d:
        for value in ("1 hour", "soon"):
            d.send("in", "k", value)
        d.run()
        assert [letter.value for letter in d.read("dead")] == [b'"soon"']


# --- nothing stays of a record that failed --------------------------------------------------------------------------


def test_a_record_that_fails_in_one_of_its_windows_is_in_none() -> None:
    def second_fails(state: int, record: hr.Record) -> int:
        if record.value == "bad" and state >= 10:
            raise ValueError("no more")
        return state + 1

    app = hr.App("windows", dead_letter_stream="dead")
    grouped = app.stream("in", key=hr.String(), value=hr.Json()).group_by_key()
    windows = grouped.windowed_by(hr.Hopping("2 minutes", "1 minute"))
    windows.aggregate(initial=0, function=second_fails, value=hr.Long(), store="s").to_stream().to("out")
    minute = 60_000_000
    with Driver(app) as d:
        for _ in range(10):
            d.send("in", "k", "good", at=0)  # in the windows from -1 and from 0
        d.send("in", "k", "bad", at=minute)  # in those from 0, which is full, and from 1
        d.run()
        assert {r.key.start_us // minute: r.value for r in d.read("out")} == {-1: 10, 0: 10}
        assert [letter.value for letter in d.read("dead")] == [b'"bad"']


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_of_a_state_without_bytes_only_the_record_that_made_it_so_is_set_aside(bad: int) -> None:
    def gathered(state: list[Any], record: hr.Record) -> list[Any]:
        state.append(object() if record.value == bad else record.value)
        return state

    app = hr.App("states", dead_letter_stream="dead")
    grouped = app.stream("in", key=hr.String(), value=hr.Json()).group_by_key()
    grouped.aggregate(initial=list, function=gathered, value=hr.Json(), store="s").to_stream().to("out")
    with Driver(app) as d:
        d.send("in", "k", 10)
        d.run()
        for value in range(3):
            d.send("in", "k", value)
        d.run()
        assert d.store("s").get("k") == [10, *(v for v in range(3) if v != bad)]
        assert [letter.value for letter in d.read("dead")] == [b"%d" % bad]
        assert d.read("out")[-1].value == d.store("s").get("k")


def test_a_counter_does_not_count_a_record_that_fails() -> None:
    class Counts(hr.Processor[str, Any, str, Any]):
        def process(self, record: hr.Record) -> None:
            self.context.metrics.counter("seen")()
            if record.value == "bad":
                raise ValueError(record.value)

    with Driver(app_of(lambda s: s.process(Counts, name="p", value=hr.Json()), dead_letter_stream="dead")) as d:
        for value in ("good", "bad"):
            d.send("in", "k", value)
        d.run()
        assert d.counters["p.seen"] == 1


def test_a_record_that_fails_in_one_branch_goes_on_in_the_others() -> None:
    app = hr.App("branches", dead_letter_stream="dead")
    records = app.stream("in", key=hr.String(), value=hr.Json())
    records.map_values(checked(ValueError), value=hr.Json(), name="strict").to("strict-out")
    records.group_by_key().count(store="counts").to_stream().to("counted")
    with Driver(app) as d:
        for value in ("good", "bad"):
            d.send("in", "k", value)
        d.run()
        assert [r.value for r in d.read("strict-out")] == ["good"]
        assert d.store("counts").get("k") == 2
        (letter,) = d.read("dead")
        assert dict(letter.headers)["headrace.operator"] == b"strict"


def test_a_predicate_whose_result_has_no_truth_is_an_error_of_its_record() -> None:
    class Neither:
        def __bool__(self) -> bool:
            raise ValueError("neither")

    app = app_of(lambda s: s.filter(lambda r: Neither() if r.value == "bad" else True), dead_letter_stream="dead")
    with Driver(app) as d:
        for value in ("good", "bad"):
            d.send("in", "k", value)
        d.run()
        assert [r.value for r in d.read("out")] == ["good"]
        assert [letter.value for letter in d.read("dead")] == [b'"bad"']


# --- hints ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [lambda r: r["d"], lambda r: r.d, lambda r: r + 1, lambda r: r > 1, lambda r: "d" in r, len],
    ids=["item", "attribute", "sum", "comparison", "in", "len"],
)
def test_a_record_taken_for_its_value_is_explained(function: Callable[[Any], Any]) -> None:
    with Driver(app_of(lambda s: s.filter(function))) as d:
        d.send("in", "k", {"d": 1})
        with pytest.raises(RecordError, match=r"(?s)hint: .*record\.value\["):
            d.run()
