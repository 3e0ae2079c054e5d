"""`headrace stream`: JSON lines in and out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.log.system import LogSystem
from headrace.errors import UnavailableError

Run = Callable[..., Any]
UNLED = [f"unled-{number}" for number in range(5)]


def lines_of(result: Any) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def streams(fresh: Run) -> Run:
    assert fresh("stream", "create", "s", "--partitions", "3").exit_code == 0
    return fresh


def test_create_list_describe_delete(fresh: Run) -> None:
    assert fresh("stream", "create", "flights", "-p", "2").stdout == "created stream flights with 2 partitions\n"
    listed = json.loads(fresh("stream", "list", "--json").stdout)
    assert listed == [{"name": "flights", "partitions": 2, "records": 0, "internal_of": None}]
    assert "flights" in fresh("stream", "list").stdout
    assert fresh("stream", "describe", "flights").stdout.startswith("flights: 2 partitions\n")
    unasked = fresh("stream", "delete", "flights")
    assert unasked.exit_code == 2
    assert unasked.stderr == (
        "error: standard input is no terminal to ask whether flights is to be deleted; nothing was changed\nhint: add --yes\n"
    )
    assert fresh("stream", "delete", "flights", "--yes").exit_code == 0
    assert json.loads(fresh("stream", "list", "--json").stdout) == []


def test_a_stream_of_which_nothing_is_known_is_listed_without_its_records(
    fresh: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("deleted", "mine", *UNLED):
        assert fresh("stream", "create", name).exit_code == 0
    ends, asked = LogSystem.end_offsets, []

    def without(system: LogSystem, stream: str) -> dict[int, int]:
        asked.append(stream)
        if stream == "deleted":
            system.delete_stream(stream)
        if stream in UNLED:
            raise UnavailableError(f"cannot read the offsets of topic {stream!r}: no leader")
        return ends(system, stream)

    monkeypatch.setattr(LogSystem, "end_offsets", without)
    found = fresh("stream", "list", "--json")
    assert found.exit_code == 0, found.output
    listed = {one["name"]: one["records"] for one in json.loads(found.stdout)}
    assert listed == {"deleted": None, "mine": 0} | dict.fromkeys(UNLED)
    assert "'deleted' was deleted meanwhile" in found.stderr and "topic 'unled-0': no leader" in found.stderr
    assert asked == ["deleted", "mine", *UNLED[:3]], "each takes as long as a broker is waited for"
    row = next(line for line in fresh("stream", "list").stdout.splitlines() if line.startswith("unled-0"))
    assert row.split() == ["unled-0", "1", "-", "-"]


def test_what_is_produced_is_consumed(streams: Run) -> None:
    sent = {
        "key": "a",
        "value": {"n": 1, "text": "ü"},
        "timestamp": "2013-01-01T00:00:00Z",
        "headers": {"h": "x", "none": None, "raw": {"base64": "/w=="}},
        "partition": 2,
    }
    done = streams("stream", "produce", "s", "--key", "string", "--value", "json", stdin=f"\n{json.dumps(sent)}\n")
    assert (done.exit_code, done.stderr) == (0, "wrote 1 record to s\n")
    assert lines_of(streams("stream", "consume", "s", "--key", "string", "--value", "json")) == [sent | {"offset": 0}]


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        ("bytes", "text"),
        ("bytes", {"base64": "/w=="}),
        ("string", "ü"),
        ("long", -(2**40)),
        ("double", 1.5),
        ("double", 2),
        ("short", 3),
        ("float", 0.5),
        ("boolean", True),
        ("uuid", "6f1d9a52-0c5b-4f0e-9d3e-2f8f4a1c7b60"),
        ("timestamp", "2013-01-01T00:00:00Z"),
        ("decimal(38,2)", "123456789012345678901234567890.10"),
        ("messagepack", {"a": [1, None]}),
        ("windowed:decimal(5,2)", {"key": "0.10", "start": "2013-01-01T00:00:00Z", "end": "2013-01-01T01:00:00Z"}),
        ("json", {"a": [1, None, {"b": "c"}]}),
        ("json:a int, t timestamp", {"a": 1, "t": "2013-01-01T00:00:00Z"}),
        ("windowed:string", {"key": "UA", "start": "2013-01-01T00:00:00Z", "end": "2013-01-01T01:00:00Z"}),
        ("string", None),
    ],
)
def test_every_serde_goes_there_and_back(streams: Run, serde: str, value: Any) -> None:
    line = json.dumps({"key": value, "value": value})
    assert streams("stream", "produce", "s", "--key", serde, "--value", serde, stdin=line).exit_code == 0
    (record,) = lines_of(streams("stream", "consume", "s", "--key", serde, "--value", serde))
    assert (record["key"], record["value"]) == (value, value)


def test_a_double_named_header_stays_double(streams: Run) -> None:
    line = json.dumps({"key": "a", "headers": [["h", "1"], ["h", "2"]]})
    streams("stream", "produce", "s", stdin=line)
    assert lines_of(streams("stream", "consume", "s"))[0]["headers"] == [["h", "1"], ["h", "2"]]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{nope", "it is no JSON"),
        ("[1]", "expected an object, found a list"),
        ('{"key": "a", "valeu": 1}', "there is no field 'valeu' in a record"),
        ('{"key": 3, "value": {}}', "key: string: expected str"),
        ('{"key": "a", "timestamp": "yesterday"}', "expected a time in ISO 8601"),
        ('{"key": "a", "headers": 3}', "headers: expected an object"),
        ('{"key": "a", "partition": "x"}', "partition: expected a whole number"),
    ],
)
def test_a_bad_line_is_named_and_nothing_of_its_batch_is_written(streams: Run, line: str, reason: str) -> None:
    good = '{"key": "a", "value": {}}'
    result = streams("stream", "produce", "s", "--key", "string", "--value", "json", stdin=f"{good}\n{line}\n{good}\n")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: line 2: ")
    assert reason in result.stderr
    assert "Traceback" not in result.stderr
    assert lines_of(streams("stream", "consume", "s")) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"key": "\xff"}', "it is no UTF-8: byte 9 is 0xff"),
        (b"\x00\x01", "it is no JSON"),
        (b'{"key": "a\x00"}', "it is no JSON"),
        (b'{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "it is nested too deeply"),
        (b'\xef\xbb\xbf{"key": "a"}', "it is no JSON"),  # only a file may begin with a byte order mark
        (b'{"key": "a"}{"key": "b"}', "trailing characters"),
        (b'{"headers": [[0, null]]}', "headers: expected a text as name, found 0"),
        (b'{"headers": {"h": {"b": 1}}}', "header 'h': expected a text"),
        (b'{"headers": {"h": {"base64": "\xc3\xa9"}}}', "header 'h': base64"),
    ],
)
def test_a_line_of_any_bytes_is_named(streams: Run, line: bytes, reason: str) -> None:
    result = streams("stream", "produce", "s", "--value", "json", stdin=b'{"key": "a"}\n' + line + b"\n")
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stderr.startswith("error: line 2: ")
    assert reason in result.stderr
    assert "; nothing was written\n" in result.stderr
    assert lines_of(streams("stream", "consume", "s")) == []


def test_a_byte_order_mark_and_other_line_ends_do_no_harm(streams: Run) -> None:
    data = b'\xef\xbb\xbf{"key": "a"}\r\n\r\n{"key": "b"}\r\n' + b'{"value": "%s"}' % (b"x" * 2_000_000)
    assert streams("stream", "produce", "s", stdin=data).stderr == "wrote 3 records to s\n"
    found = lines_of(streams("stream", "consume", "s"))
    assert {record["key"] for record in found} == {"a", "b", None}
    assert max(len(record["value"] or "") for record in found) == 2_000_000


def test_a_value_too_deep_to_print_names_its_record(streams: Run) -> None:
    line = b'{"value": ' + b"[" * 900 + b"]" * 900 + b', "partition": 1}'
    assert streams("stream", "produce", "s", "--value", "json", stdin=line).exit_code == 0
    result = streams("stream", "consume", "s", "--value", "json")
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stderr.startswith("error: offset 0 of 's' partition 1: it is nested too deeply to be printed as JSON\n")


@pytest.mark.parametrize("time", [2**63 - 1, -(2**62), 0])
def test_any_time_that_is_printed_can_be_produced(streams: Run, time: int) -> None:
    streams("stream", "produce", "s", stdin=f'{{"key": "a", "timestamp": {time}}}')
    streams("stream", "produce", "s", stdin=streams("stream", "consume", "s").stdout)
    first, second = lines_of(streams("stream", "consume", "s"))
    assert first["timestamp"] == second["timestamp"]
    assert second["offset"] == 1


def test_batches_before_the_bad_line_stay(streams: Run) -> None:
    lines = "\n".join(['{"key": "a"}'] * 4 + ["{nope"])
    result = streams("stream", "produce", "s", "--batch", "2", stdin=lines)
    assert "line 5" in result.stderr
    assert "4 records of the batches before were written" in result.stderr
    assert len(lines_of(streams("stream", "consume", "s"))) == 4


def test_a_partition_that_is_not_there_writes_nothing(streams: Run) -> None:
    result = streams("stream", "produce", "s", stdin='{"key": "a"}\n{"key": "a", "partition": 9}\n')
    assert result.exit_code == 1
    assert result.stderr.startswith("error: line 2: partition: expected a whole number from 0 to 2, found 9; nothing was")
    assert lines_of(streams("stream", "consume", "s")) == []


@pytest.fixture
def numbered(streams: Run) -> Run:
    """Ten records in each partition, one hour apart."""
    with hr.open_system("log:./data") as system:
        for partition in range(3):
            records = [hr.Record(b"k", b"%d" % n, n * 3_600_000_000, partition=partition) for n in range(10)]
            system.produce("s", records)
    return streams


def values(numbered: Run, *options: str) -> list[tuple[int, str]]:
    return [(r["partition"], r["value"]) for r in lines_of(numbered("stream", "consume", "s", *options))]


def test_consume_takes_partitions_starts_and_limits(numbered: Run) -> None:
    assert values(numbered, "--partition", "1", "--start", "8") == [(1, "8"), (1, "9")]
    assert values(numbered, "--limit", "2") == [(0, "0"), (0, "1")]
    assert values(numbered, "-p", "2", "-p", "0", "--start", "9") == [(0, "9"), (2, "9")]
    assert values(numbered, "--start", "latest") == []
    assert values(numbered, "--start", "1970-01-01T09:00:00Z") == [(0, "9"), (1, "9"), (2, "9")]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            ("--start", "11"),
            (
                "--start 11: partition 0 of stream 's' holds 0 to 9, and its next record gets offset 10\n"
                "hint: name an offset from 0 to 10 there"
            ),
        ),
        (("--partition", "7"), "stream 's' has no partition 7\nhint: it has 3 partitions, 0 to 2\n"),
        (("--partition", "7", "--start", "latest"), "stream 's' has no partition 7\n"),
        (("--start", "soon"), "--start 'soon': expected an offset, earliest, latest or a time\n"),
        (("--start", "2013-01-01T00:00:00"), "expected a time with its zone, found one without"),
        (("--key", "text"), "serde 'text': expected one of"),
        (("--value", "long"), "the value of offset 0 of 's' partition 0 does not decode"),
    ],
)
def test_consume_refuses_what_is_not_there(numbered: Run, options: tuple[str, ...], reason: str) -> None:
    result = numbered("stream", "consume", "s", *options)
    assert result.exit_code == 1
    assert reason in result.stderr


def test_keys_of_windows_are_recognised(streams: Run) -> None:
    key = hr.WindowedKey("UA", "2013-01-01T00:00:00Z", "2013-01-01T01:00:00Z")
    with hr.open_system("log:./data") as system:
        system.produce("s", [(key, "x"), (None, "y")], key=hr.Windowed(hr.String()), value=hr.String())
    hint = "hint: these look like the keys of windows: read them with --key windowed:SERDE, such as windowed:string\n"
    assert streams("stream", "consume", "s").stderr == hint
    wrong = streams("stream", "consume", "s", "--key", "long")
    assert wrong.exit_code == 1
    assert "read it as bytes, without --key; the keys of windows are read with --key windowed:SERDE" in wrong.stderr
    right = streams("stream", "consume", "s", "--key", "windowed:string")
    assert (right.exit_code, right.stderr) == (0, "")


def test_follow_gives_what_comes_later(numbered: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause between two looks is where somebody else produces."""
    from headrace.cli import streams as module

    def produce_meanwhile(seconds: float) -> None:
        with hr.open_system("log:./data") as system:
            system.produce("s", [hr.Record(b"k", b"new", 0, partition=1)])

    monkeypatch.setattr(module.time, "sleep", produce_meanwhile)
    assert values(numbered, "--follow", "--start", "latest", "--limit", "2") == [(1, "new"), (1, "new")]


@pytest.mark.parametrize("name", ["a/b", "..", "", "x" * 300])
def test_bad_names_are_refused(streams: Run, name: str) -> None:
    result = streams("stream", "create", name)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: stream name")


def test_unknown_streams_name_those_that_look_alike(streams: Run) -> None:
    streams("stream", "create", "flights")
    assert "did you mean 'flights'?" in streams("stream", "consume", "flight").stderr
    assert "does not exist" in streams("stream", "produce", "flight", stdin="").stderr


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("stream", "create", "x", "--partitions", "four"), "'--partitions' / '-p': expected a whole number, found 'four'"),
        (("stream", "expand", "s", "-p", "1.5"), "'--partitions' / '-p': expected a whole number, found '1.5'"),
        (("stream", "consume", "s", "--limit", "x"), "'--limit' / '-n': expected a whole number, at least 0, found 'x'"),
        (("stream", "consume", "s", "--limit", "-1"), "'--limit' / '-n': expected a whole number, at least 0, found -1"),
        (("stream", "consume", "s", "-p", "1", "-p", "x"), "'-p': expected a whole number, at least 0, found 'x'"),
        (("stream", "produce", "s", "--batch", "0"), "expected a whole number, at least 1, at most 100,000, found 0"),
        (("kafka", "start", "--port", "x"), "expected a whole number, at least 1, at most 65,535, found 'x'"),
        (("startpoint", "set", "s", "--offset", "x"), "'--offset': expected a whole number, found 'x'"),
        (("demo", "--partitions", "0"), "expected a whole number, at least 1, at most 1,024, found 0"),
    ],
)
def test_a_number_that_is_none_is_named_with_what_was_expected(streams: Run, command: tuple[str, ...], text: str) -> None:
    done = streams(*command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert text in done.stderr


@pytest.mark.parametrize("command", [("run",), ("stream", "consume"), ("checkpoint", "import"), ("state", "get"), ("demo",)])
def test_usage_lines_show_what_to_give_as_it_is_written(streams: Run, command: tuple[str, ...]) -> None:
    usage = streams(*command, "--help").stdout.splitlines()[0]
    assert f" {' '.join(command)} [OPTIONS]" in usage
    assert not set(usage) & set("{}")
