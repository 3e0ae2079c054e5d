"""Records that fail: set aside whole, in the same commit, or named by the error that stops the job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import headrace as hr
from headrace.core.rounds.stream_limits import StreamLimits
from headrace.core.topology.program import Program
from headrace.exchange.messages import Reject
from headrace.testing import Driver
from headrace.worker import dead_letters
from headrace.worker.outputs import Outputs

PROGRAM = Program("id", "letters", None, (), (), (), {"dead": 1}, "dead", stateful=False)


def app_of(build: Any, dead: str | None = "dead", value: Any = None) -> hr.App:
    app = hr.App("letters", dead_letter_stream=dead)
    build(app.stream("in", key=hr.String(), value=value or hr.Json())).to("out")
    return app


def refuses(record: hr.Record) -> Any:
    if record.value == "bad":
        raise LookupError("no such thing: bad")
    return record.value


PLACES = {
    "filter": lambda s: s.filter(refuses),
    "map_values": lambda s: s.map_values(refuses, value=hr.Json()),
    "map": lambda s: s.map(lambda r: (r.key, refuses(r)), key=hr.String(), value=hr.Json()),
    "select_key": lambda s: s.select_key(lambda r: str(refuses(r)), key=hr.String()),
    "flat_map": lambda s: s.flat_map(lambda r: [(r.key, 1), (r.key, refuses(r))], key=hr.String(), value=hr.Json()),
    "flat_map_values": lambda s: s.flat_map_values(lambda r: iter([1, refuses(r)]), value=hr.Json()),
    "peek": lambda s: s.peek(refuses),
    "split": lambda s: s.split(refuses)[0],
    "reduce": lambda s: s.group_by_key().reduce(lambda a, b: refuses(hr.Record(value=b)), store="s").to_stream(),
    "to": lambda s: s.map_values(lambda r: object() if r.value == "bad" else 0, value=hr.Json()),
}


@pytest.mark.parametrize("place", sorted(PLACES))
def test_a_letter_has_the_original_bytes_and_says_what_was_wrong(place: str) -> None:
    with Driver(app_of(PLACES[place]), partitions=2) as d:
        for value in ("good", "bad", "fine"):
            d.send("in", "k", value, at=77, headers={"trace": "t"}, partition=1)
        d.run()
        (letter,) = d.read("dead")
        assert (letter.key, letter.value, letter.timestamp_us) == (b"k", b'"bad"', 77)
        headers = dict(letter.headers)
        assert headers["trace"] == b"t"
        assert headers["headrace.stream"] == b"in"
        assert headers["headrace.application"] == b"letters"
        assert headers["headrace.partition"] == b"1"
        assert headers["headrace.offset"] == b"1"
        assert headers["headrace.operator"]
        if place != "to":
            assert headers["headrace.error-class"] == b"LookupError"
            assert headers["headrace.error-message"] == b"no such thing: bad"
        assert d.counters["dead_letters"] == 1
        assert len(d.read("out")) >= 1, "the others go on"


@pytest.mark.parametrize("place", sorted(PLACES))
def test_without_a_stream_for_them_the_job_stops_and_names_the_record(place: str) -> None:
    with Driver(app_of(PLACES[place], dead=None), partitions=2) as d:
        d.send("in", "k", "good", partition=1)
        d.run()
        before = d.read("out", from_start=True)
        d.send("in", "k", "fine", partition=1)
        d.send("in", "k", "bad", partition=1)
        with pytest.raises(hr.RecordError, match="in, partition 1, offset 2") as raised:
            d.run()
        error = raised.value
        assert (error.stream, error.partition, error.offset) == ("in", 1, 2)
        if place != "to":
            assert (error.error_class, error.error_message) == ("LookupError", "no such thing: bad")
            assert "test_dead_letters.py" in error.user_traceback
            assert "/headrace/worker/" not in error.user_traceback
        assert d.read("out", from_start=True) == before, "nothing of the round is committed"


def test_no_part_of_a_record_that_fails_goes_on() -> None:
    def pieces(record: hr.Record) -> Any:
        for piece in record.value:
            yield record.key, 10 // piece

    with Driver(app_of(lambda s: s.flat_map(pieces, key=hr.String(), value=hr.Long()))) as d:
        for value in ([1, 2], [5, 0], [10]):
            d.send("in", "k", value)
        d.run()
        assert [r.value for r in d.read("out")] == [10, 5, 1]
        assert [r.value for r in d.read("dead")] == [b"[5,0]"]


@pytest.mark.parametrize(
    ("key", "value", "serde"),
    [(b"\xff", b"1", hr.Long()), (b"k", b"123", hr.Long()), (b"k", b"{", hr.Json()), (b"k", b'{"a":"x"}', hr.Json("a int"))],
    ids=["key", "long", "json", "json by its schema"],
)
def test_bytes_that_do_not_decode(key: bytes, value: bytes, serde: Any) -> None:
    with Driver(app_of(lambda s: s.filter(lambda r: True), value=serde)) as d:
        d.send("in", key, value, raw=True)
        d.run()
        assert d.read("out") == []
        (letter,) = d.read("dead")
        assert (letter.key, letter.value) == (key, value)
        assert dict(letter.headers)["headrace.error-class"] == b"SerdeError"


def test_a_result_that_its_serde_does_not_take() -> None:
    with Driver(app_of(lambda s: s.map_values(lambda r: "text" if r.value else 1, value=hr.Long()))) as d:
        for value in (0, 1, 0):
            d.send("in", "k", value)
        d.run()
        assert [r.value for r in d.read("out")] == [1, 1]
        assert [dict(r.headers)["headrace.offset"] for r in d.read("dead")] == [b"1"]


def test_a_bad_timestamp_is_the_records_fault() -> None:
    app = hr.App("times", dead_letter_stream="dead")
    app.stream("in", key=hr.String(), value=hr.Json(), timestamp=lambda r: r.value["t"]).to("out")
    with Driver(app) as d:
        for value in ({"t": 5}, {"t": "soon"}, {}, {"t": 2**70}, {"t": True}):
            d.send("in", "k", value)
        d.run()
        assert [r.timestamp_us for r in d.read("out")] == [5]
        assert len(d.read("dead")) == 4


def test_many_letters_of_one_round_are_read_at_once() -> None:
    with Driver(app_of(PLACES["map_values"]), partitions=3) as d:
        for i in range(3_000):
            d.send("in", f"k{i}", "bad" if i % 3 else i)
        d.run()
        assert len(d.read("out")) == 1_000
        letters = d.read("dead")
    assert len(letters) == 2_000
    assert {letter.value for letter in letters} == {b'"bad"'}
    places = {(dict(r.headers)["headrace.partition"], dict(r.headers)["headrace.offset"]) for r in letters}
    assert len(places) == 2_000


@pytest.mark.parametrize("bytes_max", [100_000, 3_000, 1_500, 900])
def test_a_letter_is_no_larger_than_its_stream_takes_and_has_a_time_that_it_takes(bytes_max: int) -> None:
    outputs = Outputs({"dead": 1})
    reject = Reject(0, 7, "to(out)", "RecordTooLargeError", "much is said of it: " + "x" * 1_200)
    original = (b"key" * 20, bytes(5_000), -5, [{"name": "own", "value": bytes(300)}])
    limits = StreamLimits(bytes_max=bytes_max, time_min_us=0, age_us_max=60)
    program = replace(PROGRAM, limits={"dead": limits})
    dead_letters.write(outputs, program, [reject], [original], [("log", "in", 3)], 1_000)
    ((_, batch, _),) = outputs.batches()
    (row,) = batch.to_pylist()
    headers = {header["name"]: header["value"] for header in row["headers"]}
    size = len(row["key"]) + len(row["value"]) + sum(len(name) + len(value) for name, value in headers.items())
    assert size <= bytes_max
    assert (row["timestamp_us"], headers["headrace.timestamp-us"]) == (1_000, b"-5")
    assert (headers["headrace.stream"], headers["headrace.partition"], headers["headrace.offset"]) == (b"in", b"3", b"7")
    assert headers["headrace.error-class"] == b"RecordTooLargeError"
    if bytes_max < 5_000:
        assert f"value: its first {len(row['value'])} of 5000 bytes" in headers["headrace.cut"].decode()
    else:
        assert (row["value"], headers["own"]) == (bytes(5_000), bytes(300))


@pytest.mark.parametrize(("name", "said"), [("flight", b"flight"), ("f" * 41, None)], ids=["that fits", "that would be cut"])
def test_where_a_stream_takes_small_records_only_a_letter_has_its_applications_name_whole_or_not(
    name: str, said: bytes | None
) -> None:
    outputs = Outputs({"dead": 1})
    reject = Reject(0, 7, "to(out)", "RecordTooLargeError", "much is said of it: " + "x" * 1_200)
    program = replace(PROGRAM, application=name, limits={"dead": StreamLimits(bytes_max=900)})
    dead_letters.write(outputs, program, [reject], [(b"k", b"v", 5, [])], [("log", "in", 3)], 1_000)
    ((_, batch, _),) = outputs.batches()
    headers = {header["name"]: header["value"] for header in batch.to_pylist()[0]["headers"]}
    assert headers.get("headrace.application") == said and headers["headrace.error-class"] == b"RecordTooLargeError"
