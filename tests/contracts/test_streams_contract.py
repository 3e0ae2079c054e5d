"""What every implementation of `headrace.ports.system.Streams` must do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.core.keys.hashing import partition_of
from headrace.core.rounds.stream_limits import RECORD_BYTES_MAX
from headrace.errors import (
    ConfigError,
    InvalidNameError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    SerdeError,
    StreamExistsError,
    StreamNotFoundError,
)
from headrace.record import Record


class Text:
    """A serde of texts that refuses the text `bad`, both ways."""

    form = "text"
    spark_type = "string"

    def encode(self, value: Any) -> bytes:
        if value == "bad":
            raise SerdeError("bad text")
        return str(value).encode()

    def decode(self, data: bytes) -> Any:
        if data == b"bad":
            raise SerdeError("bad bytes")
        return data.decode()

    def encode_many(self, values: Any) -> tuple[Any, list[tuple[int, Exception]]]:
        done, failures = _each(self.encode, values)
        return pa.array(done, pa.binary()), failures

    def decode_many(self, data: Any) -> tuple[Any, list[tuple[int, Exception]]]:
        return _each(self.decode, data.to_pylist())


def _each(function: Any, values: Any) -> tuple[list[Any], list[tuple[int, Exception]]]:
    done, failures = [], []
    for index, value in enumerate(values):
        try:
            done.append(None if value is None else function(value))
        except SerdeError as error:
            done.append(None)
            failures.append((index, error))
    return done, failures


class TestStreams:
    def test_a_created_stream_is_described_and_listed(self, system: Any) -> None:
        created = system.create_stream("flights", 3)
        internal = system.create_stream("by-carrier", 2, internal_of="delays")
        assert (created.name, created.partitions, created.internal_of) == ("flights", 3, None)
        assert system.describe_stream("flights") == created
        assert system.streams() == [internal, created]
        assert internal.internal_of == "delays"

    def test_a_second_of_the_same_name_is_refused(self, system: Any) -> None:
        created = system.create_stream("flights", 3)
        with pytest.raises(StreamExistsError, match=r"'flights'.*3 partitions"):
            system.create_stream("flights", 4)
        assert system.describe_stream("flights") == created

    @pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 201, None])
    def test_bad_names_are_refused(self, system: Any, name: Any) -> None:
        with pytest.raises(InvalidNameError):
            system.create_stream(name, 1)
        assert system.streams() == []

    @pytest.mark.parametrize("partitions", [0, -1, True, "2"])
    def test_bad_counts_are_refused(self, system: Any, partitions: Any) -> None:
        with pytest.raises(ConfigError, match="at least 1"):
            system.create_stream("flights", partitions)

    @pytest.mark.parametrize(
        "use",
        [
            lambda system, name: system.describe_stream(name),
            lambda system, name: system.delete_stream(name),
            lambda system, name: system.produce(name, [(b"k", b"v")]),
            lambda system, name: system.consume(name),
            lambda system, name: system.end_offsets(name),
            lambda system, name: system.beginning_offsets(name),
            lambda system, name: system.offsets_for_time(name, 0),
        ],
    )
    def test_an_unknown_stream_is_named_with_those_like_it(self, system: Any, use: Any) -> None:
        system.create_stream("flights", 1)
        with pytest.raises(StreamNotFoundError, match=r"'flihgts' does not exist\n.*'flights'"):
            use(system, "flihgts")

    def test_a_stream_made_anew_is_empty_and_has_another_id(self, system: Any) -> None:
        first = system.create_stream("flights", 1)
        system.produce("flights", [(b"k", b"v")])
        system.delete_stream("flights")
        assert system.streams() == []
        assert system.create_stream("flights", 1).id != first.id
        assert system.end_offsets("flights") == {0: 0}
        assert list(system.consume("flights")) == []

    def test_what_is_committed_is_not_held_back(self, kind: Any, system: Any) -> None:
        system.create_stream("flights", 2)
        system.produce("flights", [Record(b"k", b"v", partition=1)])
        ends = system.end_offsets("flights")
        assert system.high_watermarks("flights") == ends
        assert (ends[0], ends[1] > 1) == (0, kind.has_holes)
        assert system.held_back_by("flights") == {}


class TestProduceAndConsume:
    def test_records_come_back_whole(self, kind: Any, system: Any) -> None:
        system.create_stream("flights", 2)
        times = [kind.time_us + number * kind.tick_us for number in (0, 1, 12_345)]
        records = [
            Record("a", "1", times[2], (("h", b"x"), ("h", None)), partition=1),
            Record(None, "2", times[0], (), partition=1),
            Record("c", None, times[1], partition=0),
        ]
        assert system.produce("flights", records, key=Text(), value=Text()) == 3
        assert list(system.consume("flights", key=Text(), value=Text())) == [
            Record("c", None, times[1], (), 0, 0, "flights"),
            Record("a", "1", times[2], (("h", b"x"), ("h", None)), 1, 0, "flights"),
            Record(None, "2", times[0], (), 1, 1, "flights"),
        ]

    def test_pairs_get_a_timestamp(self, system: Any) -> None:
        system.create_stream("flights", 1)
        system.produce("flights", iter([(b"k", b"1"), [b"k", b"2"]]))
        first, second = system.consume("flights")
        assert (first.key, first.value, second.value) == (b"k", b"1", b"2")
        assert first.timestamp_us > 1_700_000_000_000_000

    def test_keys_go_where_a_java_producer_would_put_them(self, system: Any) -> None:
        system.create_stream("flights", 7)
        system.produce("flights", [(f"key-{i}".encode(), b"") for i in range(500)])
        found = list(system.consume("flights"))
        assert len(found) == 500
        assert all(record.partition == partition_of(record.key, 7) for record in found)

    def test_null_keys_spread_evenly_even_one_by_one(self, system: Any) -> None:
        system.create_stream("flights", 7)
        system.produce("flights", [(None, b"v")] * 696)
        for _ in range(4):
            system.produce("flights", [(None, b"v")])
        assert Counter(record.partition for record in system.consume("flights")) == dict.fromkeys(range(7), 100)

    def test_order_is_kept_per_partition(self, kind: Any, system: Any) -> None:
        system.create_stream("flights", 3)
        system.produce("flights", [(b"%d" % (i % 11), b"%d" % i) for i in range(1000)])
        system.produce("flights", [(b"%d" % (i % 11), b"%d" % i) for i in range(1000, 1500)])
        for partition in range(3):
            found = list(system.consume("flights", partitions=[partition]))
            offsets = [record.offset for record in found]
            assert offsets == sorted(set(offsets))
            assert kind.has_holes or offsets == list(range(len(found)))
            values = [int(record.value) for record in found]
            assert values == sorted(values)

    def test_nothing_of_a_batch_is_written_if_one_cannot_be_encoded(self, system: Any) -> None:
        system.create_stream("flights", 2)
        with pytest.raises(SerdeError, match="value of record 250 does not encode: bad text"):
            system.produce("flights", [("k", "bad" if i == 250 else "v") for i in range(300)], Text(), Text())
        assert sum(system.end_offsets("flights").values()) == 0

    def test_texts_without_a_serde_are_refused_with_the_way_out(self, system: Any) -> None:
        system.create_stream("flights", 1)
        with pytest.raises(SerdeError, match=r"key of record 1 is str(.|\n)*key=hr.String\(\)"):
            system.produce("flights", [(b"k", b"v"), ("k", b"v")])
        with pytest.raises(SerdeError, match=r"value of record 0 is dict(.|\n)*value=hr.Json\(\)"):
            system.produce("flights", [(b"k", {})])
        assert system.end_offsets("flights") == {0: 0}

    @pytest.mark.parametrize("wrong", ["kv", (b"k",), (b"k", b"v", 1), 7, None])
    def test_what_is_no_record_is_refused(self, system: Any, wrong: Any) -> None:
        system.create_stream("flights", 1)
        with pytest.raises(SerdeError, match=r"record 1: expected a \(key, value\) pair or a Record"):
            system.produce("flights", [(b"k", b"v"), wrong])

    @pytest.mark.parametrize(
        ("record", "error"),
        [
            (Record(b"k", b"v", 1.5), SerdeError),
            (Record(b"k", b"v", 2**63), SerdeError),
            (Record(b"k", b"v", 0, (("h", "text"),)), SerdeError),  # type: ignore[arg-type]
            (Record(b"k", b"v", partition=2), OffsetOutOfRangeError),
            (Record(b"k", b"v", partition=-1), OffsetOutOfRangeError),
        ],
    )
    def test_bad_fields_are_refused(self, system: Any, record: Record, error: type[Exception]) -> None:
        system.create_stream("flights", 2)
        with pytest.raises(error):
            system.produce("flights", [Record(b"k", b"v"), record])
        assert sum(system.end_offsets("flights").values()) == 0

    def test_a_record_above_the_limit_is_refused(self, system: Any) -> None:
        system.create_stream("flights", 1)
        with pytest.raises(RecordTooLargeError, match=f"{RECORD_BYTES_MAX + 1:,} bytes, at most {RECORD_BYTES_MAX:,}"):
            system.produce("flights", [(b"k", b"small"), (b"k", bytes(RECORD_BYTES_MAX))])
        assert system.end_offsets("flights") == {0: 0}

    def test_a_bad_record_is_named_after_those_before_it_came(self, system: Any) -> None:
        system.create_stream("flights", 1)
        system.produce("flights", [(b"k", b"1"), (b"k", b"bad"), (b"k", b"3")])
        found = system.consume("flights", value=Text())
        assert next(found).value == "1"
        with pytest.raises(SerdeError, match="value of offset 1 of 'flights' partition 0"):
            next(found)

    def test_reading_ends_at_the_end_of_the_call(self, system: Any) -> None:
        system.create_stream("flights", 1)
        system.produce("flights", [(b"k", b"1")])
        found = system.consume("flights")
        system.produce("flights", [(b"k", b"2")])
        assert [record.value for record in found] == [b"1"]

    def test_start_is_an_offset_or_one_per_partition(self, system: Any) -> None:
        system.create_stream("flights", 2)
        system.produce("flights", [Record(b"k", b"%d" % i, partition=i % 2) for i in range(10)])
        assert [r.value for r in system.consume("flights", start=4)] == [b"8", b"9"]
        assert [r.value for r in system.consume("flights", start={0: 5, 1: 4})] == [b"9"]
        assert [r.value for r in system.consume("flights", partitions=[1], start={1: 3})] == [b"7", b"9"]
        beyond = max(system.end_offsets("flights").values()) + 1
        for start in (beyond, -1, {0: beyond}, {1: -1}, "earliest", True):
            with pytest.raises(OffsetOutOfRangeError):
                system.consume("flights", start=start)
        with pytest.raises(OffsetOutOfRangeError, match="no partition 2"):
            system.consume("flights", partitions=[2])

    def test_offsets_for_time(self, kind: Any, system: Any) -> None:
        system.create_stream("flights", 3)
        times = [kind.time_us + number * kind.tick_us for number in (10, 30, 20, 40)]
        for time in times:
            system.produce("flights", [Record(b"k", b"v", time, partition=0)])
        system.produce("flights", [Record(b"k", b"v", time, partition=1) for time in times])
        offsets = {partition: [r.offset for r in system.consume("flights", partitions=[partition])] for partition in (0, 1)}
        ends = system.end_offsets("flights")
        for number, index in [(0, 0), (10, 0), (11, 1), (30, 1), (31, 3), (40, 3), (41, 4)]:
            expected = {partition: [*found, ends[partition]][index] for partition, found in offsets.items()}
            asked = kind.time_us + number * kind.tick_us
            assert system.offsets_for_time("flights", asked) == expected | {2: 0}
            if kind.tick_us > 1:  # between two that can be told apart
                assert system.offsets_for_time("flights", asked - 1) == expected | {2: 0}

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        calls=st.lists(
            st.lists(
                st.tuples(st.one_of(st.none(), st.binary(max_size=4)), st.one_of(st.none(), st.binary(max_size=9)))
            ),
            max_size=4,
        ),
        start=st.integers(0, 5),
    )
    def test_any_calls_read_back_in_order(self, kind: Any, system: Any, calls: Any, start: int) -> None:
        name = f"s{len(system.streams())}"
        system.create_stream(name, 2)
        written = {}
        for records in calls:  # each is told by its timestamp
            timed = [Record(*pair, kind.time_us + (len(written) + n) * kind.tick_us) for n, pair in enumerate(records)]
            assert system.produce(name, timed) == len(records)
            written |= {record.timestamp_us: (record.key, record.value) for record in timed}
        found = list(system.consume(name))
        assert {record.timestamp_us: (record.key, record.value) for record in found} == written
        assert len(found) == len(written)
        assert all(record.partition == partition_of(record.key, 2) for record in found if record.key is not None)
        for partition in range(2):
            here = [record for record in found if record.partition == partition]
            assert here == sorted(here, key=lambda record: record.timestamp_us)
            assert kind.has_holes or [record.offset for record in here] == list(range(len(here)))
        starts = {partition: min(start, end) for partition, end in system.end_offsets(name).items()}
        rest = [record for record in found if record.offset >= starts[record.partition]]
        assert list(system.consume(name, start=starts)) == rest
