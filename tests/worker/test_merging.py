"""The order in which a task takes the records of several SSPs, and what is left of a round that is cut short."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.serdes.scalars import Bytes
from headrace.worker.merging import FIRST_ROWS, PIECE_S, Merged, next_size
from headrace.worker.rows import Field, Rows
from support.world import caught_up

# (endpoint, is it of a table, ssp, times): two endpoints may read one SSP
BATCHES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.lists(st.integers(0, 6), min_size=1, max_size=8)),
    min_size=1,
    max_size=5,
)


def rows_of(ssp: int, offsets: list[int], times: list[int]) -> Rows:
    values = Field(Bytes(), raw=pa.array([b"v"] * len(times)))
    return Rows(np.full(len(times), ssp, np.int32), np.array(offsets), np.array(times), values, values, None)


@settings(max_examples=300, deadline=None)
@given(drawn=BATCHES, wanted=st.integers(1, 12))
def test_every_piece_is_the_next_part_of_the_order(drawn: list[tuple[int, int, list[int]]], wanted: int) -> None:
    ends: dict[tuple[int, int], int] = {}
    gathered, model = [], []
    times_of: dict[tuple[int, int], int] = {}
    for endpoint, ssp, times in drawn:
        first = ends.get((endpoint, ssp), 0)
        offsets = list(range(first, first + len(times)))
        times = [times_of.setdefault((ssp, offset), time) for offset, time in zip(offsets, times, strict=True)]
        ends[endpoint, ssp] = first + len(times)
        gathered.append((endpoint, endpoint == 0, False, rows_of(ssp, offsets, times)))
        model += [(endpoint, ssp, offset) for offset in offsets]

    def place(one: tuple[int, int, int]) -> tuple[int, int, int, int]:
        endpoint, ssp, offset = one
        highest = max(time for (of, at), time in times_of.items() if of == ssp and at <= offset)
        return highest, 0 if endpoint == 0 else 1, ssp, offset

    merged = Merged(gathered)
    assert len(merged) == len(model)
    taken: list[tuple[int, int, int]] = []
    done = 0
    while done < len(merged):
        stop = merged.stop_from(done + wanted)
        piece: dict[int, tuple[int, int, int]] = {}
        for endpoint, _, rows in merged.piece(done, stop):
            for rank, ssp, offset in zip(rows.rank.tolist(), rows.ssp.tolist(), rows.offset.tolist(), strict=True):
                piece[rank] = endpoint, ssp, offset
        assert sorted(piece) == list(range(done, stop)) and stop >= min(done + wanted, len(merged))
        taken += [piece[rank] for rank in sorted(piece)]
        done = stop
        left = merged.left_from(done)
        for _, ssp, offset in taken:
            assert offset < left.get(ssp, 99), "what is read again next time was not taken"
        for _, ssp, offset in set(model) - set(taken):
            assert offset >= left[ssp], "what was not taken is read again next time"
    assert sorted(taken) == sorted(model)
    assert [place(one) for one in taken] == sorted(map(place, model))


def test_a_round_that_is_cut_short_finds_what_was_written_before(tmp_path: Path) -> None:
    """The table was there before the stream: whatever a round comes to, it has not passed it by."""
    url = f"log:{tmp_path / 'log'}"
    places = {"local_store_dir": str(tmp_path / "stores"), "state_uri": str(tmp_path / "state")}
    app = hr.App("app", system=url, max_round_ms=1, **places)
    orders = app.stream("orders", key=hr.String(), value=hr.Long())
    users = app.table("users", key=hr.String(), value=hr.String())
    orders.left_join(users, lambda order, user: f"{order} {user}", value=hr.String()).to("named", value=hr.String())
    with hr.open_system(url) as log:
        for stream in ("orders", "users"):
            log.create_stream(stream, 2)
        keys = [f"k{number}" for number in range(50)]
        log.produce("users", [(key, f"user {key}") for key in keys], key=hr.String(), value=hr.String())
        log.produce("orders", [(key, n) for n in range(100) for key in keys], key=hr.String(), value=hr.Long())
        job = caught_up(app)
        assert job.status()["sub_topologies"]["source"]["round"] > 1, "it was cut short"
        named = [(record.key, record.value) for record in log.consume("named", key=hr.String(), value=hr.String())]
    assert sorted(named) == sorted((key, f"{n} user {key}") for n in range(100) for key in keys)


@given(st.integers(1, 1_000), st.floats(0.001, 10.0), st.floats(0.05, 1.0))
def test_pieces_of_slow_calls_fill_what_may_run_at_once_and_little_more(concurrency: int, call_s: float, share: float) -> None:
    """Rows of which a `share` makes a call: `concurrency` of them run at once, each as long as `call_s`."""
    size = FIRST_ROWS
    for _ in range(60):
        fills = size * share / concurrency
        seconds = math.ceil(fills) * call_s
        size = next_size(size, seconds, fills)
    assert fills > 0.99
    assert seconds <= max(2 * PIECE_S, 2 * call_s)
