"""Keys of any length, stored under a digest where they are long: each finds its own values only (protocol.md 21)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from state_place import FILES, Place

from headrace.adapters.lmdb import close_idle
from headrace.client.state_reader import entries_of
from headrace.core.keys import compaction as folding
from headrace.core.keys import key_layout
from headrace.core.keys.key_layout import KEY_BYTES_MAX, split_state_key, state_key
from headrace.errors import StateError
from headrace.model.checkpoint import Head
from headrace.worker.state.task_state import Database, TaskState

Entries = dict[tuple[bytes, bytes], bytes]  # (key, sub-key) to value: the dumb second implementation
LONG = KEY_BYTES_MAX + 1
POOL = [b"", b"a", b"k" * KEY_BYTES_MAX, b"k" * LONG, b"k" * (LONG + 1), b"m" * LONG, b"\xff" * 2_000, b"\0" * 1_999]

keys = st.sampled_from(POOL) | st.binary(max_size=2_000)
subs = st.sampled_from([b"", b"1", b"2", b"\xff" * 64, b"\0" * 8])
values = st.none() | st.binary(max_size=3)
writes = st.tuples(st.sampled_from(["put", "put_many"]), keys, subs, values)
rounds = st.lists(st.lists(writes, max_size=8), min_size=1, max_size=4)


def colliding_hash(key: bytes) -> bytes:
    return b"\0" * 8


def colliding_digest(key: bytes) -> bytes:
    return bytes([len(key) % 2]) * key_layout.DIGEST_BYTES


@contextmanager
def layout(colliding: bool) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folding, "SNAPSHOT_BYTES_MIN", 2_000)  # so that short lives see snapshots
        if colliding:
            patch.setattr(key_layout, "reversed_hash", colliding_hash)
            patch.setattr(key_layout, "key_digest", colliding_digest)
        yield


def rival(key: bytes, held: set[bytes]) -> bytes | None:
    """Of the keys in `held` one that has the digest of `key`, and is another key."""
    if len(key) < LONG:
        return None
    return next((k for k in held if k != key and len(k) >= LONG and colliding_digest(k) == colliding_digest(key)), None)


def write(database: Database, action: str, key: bytes, sub: bytes, value: bytes | None) -> None:
    if value is None:
        database.delete(state_key(key, sub))
    elif action == "put":
        database.put(state_key(key, sub), value)
    else:
        database.put_many([state_key(key, sub)], [value])


def check_reads(database: Database, expected: Entries, asked: set[bytes]) -> None:
    assert {split_state_key(layout): value for layout, value in database.scan()} == expected
    for key in asked:
        mine = {sub: value for (other, sub), value in expected.items() if other == key}
        under = [b"", b"1", b"2", b"3"]
        assert database.get_many([state_key(key, sub) for sub in under]) == [mine.get(sub) for sub in under]
        assert [database.get(state_key(key, sub)) for sub in under] == [mine.get(sub) for sub in under]
        ranged = database.scan(state_key(key, b"1"), state_key(key, b"3"))
        assert [(split_state_key(layout), value) for layout, value in ranged] == [
            ((key, sub), value) for sub, value in sorted(mine.items()) if b"1" <= sub < b"3"
        ]


@pytest.mark.parametrize("colliding", [False, True])
@given(lives=rounds)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_store_is_a_dict_by_key_and_sub_key(colliding: bool, lives: list[list[tuple]]) -> None:
    root, refused = Path(tempfile.mkdtemp()), 0
    place, head, expected = Place(root), None, {}
    try:
        with layout(colliding):
            for steps in lives:
                head, expected, more = one_round(place, head, expected, steps, colliding)
                refused += more
                check_from_outside(place, head, expected)
            close_idle()
            shutil.rmtree(place.local)
            place.forget_written()
            with place.open(head) as store:  # restored from the files
                check_reads(TaskState(store, head).database("a"), expected, {key for key, _ in expected} | set(POOL))
    finally:
        close_idle()
        shutil.rmtree(root)
    assert colliding or not refused


def one_round(
    place: Place, head: Head | None, before: Entries, steps: list[tuple], colliding: bool
) -> tuple[Head | None, Entries, int]:
    expected, refused = dict(before), 0
    held = {key for key, _ in before}  # keys of the store, and those written since
    with place.open(head) as store:
        state = TaskState(store, head)
        database = state.database("a")
        for action, key, sub, value in steps:
            if value is None:
                expected.pop((key, sub), None)
                write(database, action, key, sub, value)
            elif colliding and rival(key, held) is not None:
                refused += 1
                with pytest.raises(StateError, match="have one digest"):
                    write(database, action, key, sub, value)
            else:
                write(database, action, key, sub, value)
                expected[key, sub] = value
                held.add(key)
            check_reads(database, expected, {key, POOL[4]})
        return state.write(place.files, FILES), expected, refused


def check_from_outside(place: Place, head: Head | None, expected: Entries) -> None:
    found = list(entries_of([head], place.files, "a"))
    assert {split_state_key(layout): value for layout, value in found} == expected
    assert len(found) == len(expected)


def test_two_keys_with_one_digest_do_not_share_state(place: Place) -> None:
    with layout(colliding=True):
        ours, theirs = state_key(b"k" * LONG), state_key(b"m" * LONG)
        head = place.round(None, {"a": {ours: b"ours"}})
        with place.open(head) as store:
            database = TaskState(store, head).database("a")
            assert database.get(theirs) is None
            assert database.get_many([theirs, ours, b"short"]) == [None, b"ours", None]
            database.delete(theirs)
            assert database.get(ours) == b"ours" and not database.changed
            with pytest.raises(StateError, match=r"store a: the keys b'kkk.* \(438 bytes\) and b'mmm.* have one digest"):
                database.put(theirs, b"theirs")
        head = place.round(head, {"a": {ours: None}})
        assert place.read(place.round(head, {"a": {theirs: b"theirs"}}))[0] != {}  # the digest is free again


def test_a_record_that_is_rolled_back_leaves_a_long_key_as_it_was(place: Place) -> None:
    long = state_key(b"k" * 1_000, b"sub")
    head = place.round(None, {"a": {long: b"old"}})
    with place.open(head) as store:
        state = TaskState(store, head)
        state.savepoint()
        state.database("a").put(long, b"new")
        assert state.database("a").get(long) == b"new"
        state.roll_back()
        assert state.database("a").get(long) == b"old"
        assert not state.changed
