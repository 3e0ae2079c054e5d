"""A round's view of its task's state: the overlay, the files it writes, the head it gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_place import FILES, Place, contents_of

from headrace.errors import StateError
from headrace.model.checkpoint import StateFileKind
from headrace.worker.state.task_state import Database, Journal, TaskState
from state.tables import table_in

keys = st.binary(min_size=1, max_size=2)


class DictStore:
    """A store in a dict: the dumb second implementation."""

    identity = "0"

    def __init__(self, entries: dict[bytes, bytes]) -> None:
        self.entries = entries

    def databases(self):
        return ["a"]

    def get(self, db, key):
        return self.entries.get(key)

    def get_many(self, db, keys):
        return {key: self.entries[key] for key in keys if key in self.entries}

    def scan(self, db, low=None, high=None):
        for key in sorted(self.entries):
            if (low is None or key >= low) and (high is None or key < high):
                yield key, self.entries[key]

    def first_keys(self, db, prefix_bytes):
        yield from {key[:prefix_bytes]: key for key in sorted(self.entries, reverse=True)}.values()


step = st.one_of(
    st.tuples(st.just("put"), keys, st.binary(max_size=2)),
    st.tuples(st.just("delete"), keys, st.none()),
    st.tuples(st.just("put_many"), st.lists(keys, max_size=100), st.binary(max_size=2)),
    st.tuples(st.just("scan"), st.none() | keys, st.none() | keys),
    st.tuples(st.just("get_many"), st.lists(keys), st.none()),
)


@given(st.dictionaries(keys, st.binary(max_size=2)), st.lists(step))
def test_a_database_is_a_sorted_dict(entries: dict[bytes, bytes], steps: list[tuple]) -> None:
    expected, database = dict(entries), Database("a", DictStore(entries), Journal())
    for action, first, second in steps:
        if action == "put":
            expected[first] = second
            database.put(first, second)
        elif action == "delete":
            expected.pop(first, None)
            database.delete(first)
        elif action == "put_many":
            values = [second + key for key in first]
            expected |= zip(first, values, strict=True)
            database.put_many(first, values)
        elif action == "scan":
            in_range = [k for k in sorted(expected) if (first or b"") <= k and (second is None or k < second)]
            assert list(database.scan(first, second)) == [(key, expected[key]) for key in in_range]
            first_ones = {key[:1]: key for key in sorted(expected, reverse=True)}
            assert sorted(database.first_keys(1)) == sorted(first_ones.values())
        else:
            assert database.get_many(first) == [expected.get(key) for key in first]
            assert [database.get(key) for key in first] == [expected.get(key) for key in first]
    changed, values = (array.to_pylist() for array in database.stored_changes())
    assert changed == sorted(set(changed))
    assert {key: value for key, value in zip(changed, values, strict=True) if value is not None}.items() <= (
        expected.items()
    )
    assert {**entries, **dict(zip(changed, values, strict=True))} == {
        **dict.fromkeys({*entries, *changed} - set(expected)),
        **expected,
    }


def test_put_many_of_unequal_lengths_is_refused() -> None:
    database = Database("a", DictStore({}), Journal())
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        database.put_many([b"1", b"2"], [b"x"])
    assert not database.changed


Steps = list[tuple[str, bytes, bytes | None]]
writes = st.lists(st.tuples(st.sampled_from(["put", "put_many", "delete"]), keys, st.binary(max_size=1)))


def work(state: TaskState, steps: Steps, expected: dict[bytes, bytes]) -> None:
    for action, key, value in steps:
        database = state.database("a")
        if action == "delete":
            database.delete(key)
            expected.pop(key, None)
        else:
            database.put(key, value) if action == "put" else database.put_many([key, key], [b"", value])
            expected[key] = value
        if key > b"\x80":  # now and then the order of keys is asked for in between
            assert list(database.scan()) == sorted(expected.items())


@given(st.dictionaries(keys, st.binary(max_size=1)), st.lists(st.tuples(writes, st.booleans())))
def test_rolled_back_records_change_nothing(entries: dict[bytes, bytes], records: list[tuple[Steps, bool]]) -> None:
    state, expected = TaskState(DictStore(entries), None), dict(entries)
    for steps, fails in records:
        state.savepoint()
        before = dict(expected)
        work(state, steps, expected)
        if fails:
            state.roll_back()
            expected = before
        assert list(state.database("a").scan()) == sorted(expected.items())
    changed, values = (array.to_pylist() for array in state.database("a").stored_changes())
    assert changed == sorted(set(changed))
    assert entries | dict(zip(changed, values, strict=True)) == (
        dict.fromkeys({*entries, *changed} - set(expected)) | expected
    )


def test_nothing_changed_gives_the_base_and_writes_nothing(place: Place) -> None:
    head = place.round(None, {"a": {b"1": b"x"}})
    for base in (None, head):
        with place.open(base) as store:
            state = TaskState(store, base)
            state.database("a").get(b"1")
            assert not state.changed
            assert state.write(place.files, FILES) is base
    assert place.files.list("app") == [head.files[0].name]


def test_a_head_names_what_it_was_built_on(place: Place) -> None:
    first = place.round(None, {"a": {b"1": b"x", b"2": b"y"}})
    second = place.round(first, {"a": {b"1": None}, "b": {b"1": b"z"}})
    assert (first.version, second.version) == (1, 2)
    assert second.files[0] == first.files[0]
    delta = table_in(place.files, second.files[1])
    assert delta.to_pydict() == {"db": ["a", "b"], "key": [b"1", b"1"], "value": [None, b"z"]}


def test_nothing_is_written_to_the_store_in_a_round(place: Place) -> None:
    head = place.round(None, {"a": {b"1": b"x"}})
    with place.open(head) as store:
        state = TaskState(store, head)
        state.database("a").put(b"1", b"changed")
        state.write(place.files, FILES)
        assert contents_of(store) == {"a": {b"1": b"x"}}
    assert place.read(head) == ({"a": {b"1": b"x"}}, [])


def test_a_snapshot_holds_no_deletions_and_is_the_same_state(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    head = place.round(None, {"a": {b"1": b"x", b"2": b"y"}, "b": {b"1": b"z"}})
    head = place.round(head, {"a": {b"1": None}, "b": {b"1": None}})
    monkeypatch.setattr("headrace.worker.state.folding.fold_start", lambda *given: 0)
    folded = place.round(head, {"c": {b"9": b"w"}})
    snapshot, delta = folded.files
    assert snapshot.kind is StateFileKind.SNAPSHOT
    assert table_in(place.files, snapshot).to_pydict() == {"db": ["a"], "key": [b"2"], "value": [b"y"]}
    assert (snapshot.identity, snapshot.version) == (head.identity, head.version)
    assert delta.version == folded.version == 3
    assert place.read(folded) == ({"a": {b"2": b"y"}, "c": {b"9": b"w"}}, [])  # no rebuild: only the delta was applied


def test_a_fold_of_deltas_keeps_deletions(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    head = place.round(None, {"a": {b"1": b"x", b"2": b"y"}})
    head = place.round(head, {"a": {b"1": b"again"}})
    head = place.round(head, {"a": {b"1": None, b"3": b"z"}})
    monkeypatch.setattr("headrace.worker.state.folding.fold_start", lambda *given: 1)
    folded = place.round(head, {"a": {b"4": b"w"}})
    assert [file.kind for file in folded.files] == [StateFileKind.DELTA] * 3
    assert table_in(place.files, folded.files[1]).to_pydict() == {
        "db": ["a", "a"],
        "key": [b"1", b"3"],
        "value": [None, b"z"],
    }
    assert place.read(folded) == ({"a": {b"2": b"y", b"3": b"z", b"4": b"w"}}, [])


@pytest.mark.parametrize("key", [b"", b"k" * 512])
def test_a_key_that_lmdb_does_not_take_is_refused_before_anything_is_written(place: Place, key: bytes) -> None:
    with place.open(None) as store:
        state = TaskState(store, None)
        state.database("a").put(key, b"x")
        with pytest.raises(StateError, match="expected 1 to 511"):
            state.write(place.files, FILES)


def test_the_longest_key_and_a_large_value_are_kept(place: Place) -> None:
    changes = {"a": {b"k" * 511: b"v" * 3_000_000, b"e": b""}}
    assert place.read(place.round(None, changes))[0] == changes


def test_a_value_that_is_too_large_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.state_files.batches.VALUE_BYTES_MAX", 10)
    with pytest.raises(StateError, match="a value of 11 bytes"):
        place.round(None, {"a": {b"1": b"x" * 11}})


def test_a_store_at_another_state_is_refused(place: Place) -> None:
    head = place.round(None, {"a": {b"1": b"x"}})
    with place.open(None) as store, pytest.raises(StateError, match="was opened for a round on"):
        TaskState(store, head)
