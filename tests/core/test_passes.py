"""When a job that reads what it writes has caught up: beside a model of streams as plain lists."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.rounds.passes import Pass, own_unread, pass_after
from headrace.errors import WaitTimeoutError

STREAMS = st.sampled_from(["a", "b", "c"])
COUNTS = st.dictionaries(STREAMS, st.integers(0, 5))


@given(COUNTS, COUNTS, st.booleans())
def test_only_own_records_that_are_unread_lead_to_another_pass(
    written: dict[str, int], unread: dict[str, int], is_exact: bool
) -> None:
    done = Pass(3, written, is_exact)
    following = pass_after(done, unread, 10)
    due = any(unread.get(stream, 0) and (written.get(stream, 0) or not is_exact) for stream in "abc")
    assert following == (Pass(4) if due else None)
    assert all(0 < count <= unread[stream] for stream, count in own_unread(done, unread).items())


@given(st.lists(st.tuples(STREAMS, st.integers(0, 4)), max_size=4), st.dictionaries(STREAMS, st.sampled_from(["a", "b", "c"])))
def test_passes_end_where_a_plain_loop_does(first: list[tuple[str, int]], targets: dict[str, str]) -> None:
    """Each record `n` of a stream becomes `n - 1` in the stream that `targets` says, and 0 becomes nothing."""
    expected, left = Counter[tuple[str, int]](), list(first)
    while left:
        stream, n = left.pop()
        expected[stream, n] += 1
        if n and stream in targets:
            left.append((targets[stream], n - 1))

    streams: dict[str, list[int]] = {name: [n for stream, n in first if stream == name] for name in "abc"}
    positions, found = dict.fromkeys("abc", 0), Counter[tuple[str, int]]()
    current: Pass | None = Pass()
    while current is not None:
        ends, written = {name: len(mine) for name, mine in streams.items()}, Counter[str]()
        for name, end in ends.items():
            for n in streams[name][positions[name] : end]:
                found[name, n] += 1
                if n and name in targets:
                    streams[targets[name]].append(n - 1)
                    written[targets[name]] += 1
            positions[name] = end
        unread = {name: len(streams[name]) - positions[name] for name in "abc"}
        current = pass_after(Pass(current.number, written), unread, 6)  # no record goes around more than 4 times
    assert found == expected


def test_the_bound_says_what_is_still_to_come() -> None:
    done = Pass(7, {"edges": 1200, "out": 9})
    with pytest.raises(WaitTimeoutError, match=r"after 7 passes: .* wrote 1,200 to 'edges', which") as raised:
        pass_after(done, {"edges": 1201, "out": 0}, 7)
    assert "caught_up_passes_max" in str(raised.value.hint)
    assert pass_after(done, {"edges": 1201}, 8) == Pass(8)
