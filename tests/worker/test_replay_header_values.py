"""The header of a replay on records with headers of all kinds, beside a plain model."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.codec.record_batches import HEADERS_TYPE
from headrace.core.rewind.replays import REPLAY_HEADER
from headrace.worker.dead_letters import PREFIX
from headrace.worker.replay_header import found_in, mark_of, marked

MARK = mark_of(7)
OLDER = "headrace-replay"  # what older versions wrote
names = st.sampled_from(["a", "b", REPLAY_HEADER, OLDER, "headrace-replays", ""])
headers = st.fixed_dictionaries({"name": names, "value": st.none() | st.sampled_from([b"", b"3", b"x", b"9" * 5_000])})
rows = st.lists(st.none() | st.lists(headers, max_size=3), max_size=8)


@given(rows, st.integers(0, 3), st.integers(0, 3))
def test_each_record_has_its_own_headers_and_the_mark_once(given: list[list[dict]] | list[None], front: int, back: int) -> None:
    array = pa.array([*[[MARK]] * front, *given, *[None] * back], HEADERS_TYPE).slice(front, len(given))
    expected = [[one for one in row or [] if one["name"] not in (REPLAY_HEADER, OLDER)] + [MARK] for row in given]
    result = marked(array, len(given), 7)
    assert result.type == HEADERS_TYPE
    assert result.to_pylist() == expected
    assert found_in(result) == (7 if given else None)


def test_records_without_any_headers() -> None:
    assert marked(None, 3, 7).to_pylist() == [[MARK]] * 3
    assert marked(None, 0, 7).to_pylist() == []
    assert found_in(None) is None
    assert found_in(pa.nulls(3, HEADERS_TYPE)) is None


@given(rows)
def test_the_highest_number_is_found(given: list[list[dict]] | list[None]) -> None:
    values = [one["value"] for row in given for one in row or [] if one["name"] in (REPLAY_HEADER, OLDER)]
    array = pa.array(given, HEADERS_TYPE)
    assert found_in(array) == max((int(value) for value in values if value == b"3"), default=None)
    assert found_in(pa.chunked_array([array, array])) == found_in(array)


def test_its_name_is_of_the_style_of_all_our_headers() -> None:
    assert REPLAY_HEADER == f"{PREFIX}replay" == "headrace.replay"
