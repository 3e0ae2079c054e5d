"""When a sub-topology waits for those that read what it writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.rounds.purging import held_back_by


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 20)), st.integers(1, 20))
def test_the_first_stream_with_so_many_unread_records(unread: dict[str, int], max_lag: int) -> None:
    found = held_back_by(unread, max_lag)
    full = sorted(stream for stream, count in unread.items() if not count < max_lag)
    assert found == (full[0] if full else None)
    assert held_back_by(unread, None) is None
