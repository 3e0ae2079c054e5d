"""What functions raise and give that cannot be printed, encoded or held: it is their record's error and has bounded size."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import headrace as hr
from headrace.core.rounds.stream_limits import RECORD_BYTES_MAX
from headrace.testing import Driver


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Shapeless:
    def __repr__(self) -> str:
        raise RuntimeError("no shape")


def raises(error: Any) -> Any:
    def function(record: hr.Record) -> Any:
        if record.value == b"bad":
            raise error
        return record.value

    return lambda s: s.map_values(function, value=hr.Bytes()).to("out")


def bad_or(other: Any, bad: Any) -> Any:
    return lambda record: bad if record.value == b"bad" else other(record)


class Counting(hr.Processor):
    by: Any = 1
    name: Any = "seen"
    headers: Any = None

    def process(self, record: hr.Record) -> None:
        bad = record.value == b"bad"
        self.context.metrics.counter(self.name if bad else "seen")(self.by if bad else 1)
        self.context.forward(value=record.value, headers=self.headers if bad else None)


def counting(**fields: Any) -> Any:
    kind = type("Bad", (Counting,), fields)
    return lambda s: s.process(kind, value=hr.Bytes()).to("out")


HOSTILE = {
    "surrogate": raises(ValueError("bad \ud800")),
    "mute": raises(Mute()),
    "huge": raises(ValueError("x" * (80 << 20))),
    "ours": raises(hr.TopologyError("not a mistake of the program")),
    "pair": lambda s: s.map(bad_or(lambda r: (r.key, r.value), Shapeless()), key=hr.Bytes(), value=hr.Bytes()).to("out"),
    "stream": lambda s: s.to(bad_or(lambda r: "out", Shapeless())),
    "header": lambda s: s.to("out", headers=bad_or(lambda r: {}, {"\ud800": b""})),
    "own input": lambda s: s.to(bad_or(lambda r: "out", "in")),
    "forward": counting(headers={"\ud800": b""}),
    "count text": counting(by="a"),
    "count none": counting(by=None),
    "count part": counting(by=1.5),
    "count large": counting(by=2**100),
    "count name": counting(name="\ud800"),
}


@pytest.mark.parametrize("way", sorted(HOSTILE))
def test_whatever_a_function_raises_or_gives_is_its_records_error(way: str) -> None:
    for dead in ("dead", None):
        app = hr.App("hostile", dead_letter_stream=dead)
        HOSTILE[way](app.stream("in", key=hr.Bytes(), value=hr.Bytes()))
        with Driver(app, partitions={"in": 1, "out": 1}) as d:
            for value in (b"good", b"bad", b"fine"):
                d.send("in", b"k", value)
            if dead is None:
                with pytest.raises(hr.RecordError, match="in, partition 0, offset 1") as raised:
                    d.run()
                assert len(str(raised.value).encode()) < 50_000
                continue
            d.run()
            (letter,) = d.read("dead")
            assert letter.value == b"bad"
            assert sum(len(value) for _, value in letter.headers) < 10_000
            assert [record.value for record in d.read("out", value=hr.Bytes())] == [b"good", b"fine"]


def test_a_letter_too_large_with_its_headers_is_cut_and_says_so() -> None:
    app = hr.App("cut", dead_letter_stream="dead")
    app.stream("in", key=hr.Bytes(), value=hr.Bytes()).to("out", headers=lambda r: {"h": bytes(2000)})
    value = bytes(RECORD_BYTES_MAX - 50)
    with Driver(app) as d:
        d.send("in", b"k", value)
        d.send("in", b"k", b"small")
        d.run()
        (letter,) = d.read("dead")
        headers = dict(letter.headers)
        assert headers["headrace.error-class"] == b"RecordTooLargeError"
        assert headers["headrace.cut"] == f"value: its first {len(letter.value)} of {len(value)} bytes".encode()
        assert value.startswith(letter.value)
        assert len(letter.value) > RECORD_BYTES_MAX - 10_000
        assert [record.value for record in d.read("out")] == [b"small"]


def test_memory_that_is_used_up_is_no_records_fault() -> None:
    app = hr.App("memory", dead_letter_stream="dead")
    raises(MemoryError())(app.stream("in", key=hr.Bytes(), value=hr.Bytes()))
    with Driver(app) as d:
        d.send("in", b"k", b"bad")
        with pytest.raises(hr.RoundFailedError, match="MemoryError"):
            d.run()
        assert d.read("dead") == []


def test_keys_that_cannot_be_hashed_are_given_as_pairs() -> None:
    app = hr.App("lists")
    app.stream("in", key=hr.Json(), value=hr.Bytes()).group_by_key().count(store="s").to("out")
    with Driver(app) as d:
        d.send("in", [1, 2], b"")
        d.run()
        assert d.store("s").items() == [([1, 2], 1)]
        with pytest.raises(hr.StateError, match=r"items\(\)"):
            d.store("s").all()


def test_python_dash_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0
    assert "stream" in done.stdout
