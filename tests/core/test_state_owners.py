"""Whose state files are in a folder, by the notes there: a table, and what holds for applications that come in any order."""

from __future__ import annotations

from itertools import permutations

import pytest

from headrace.core.state_owners import UNKNOWN, Ownership, missing_notes, ownership

OWN, CLAIM, OTHERS = Ownership.OWN, Ownership.CLAIM, Ownership.OTHERS
TABLE = [
    # own id, notes, files, named, what it is, notes to be left
    (None, [], [], [], CLAIM, ("a",)),  # a first start
    (None, [], ["1", "2"], ["2"], CLAIM, ("a",)),  # it ran under an older version
    (None, [], ["1"], [], OTHERS, (UNKNOWN, "a")),  # another one did
    (None, [], ["1"], ["2"], OTHERS, (UNKNOWN, "a")),
    (None, ["b"], [], [], OTHERS, ("a",)),
    (None, ["b"], ["1"], ["1"], OTHERS, ("a",)),  # both ran under an older version, the other has come first
    (None, [UNKNOWN, "b"], ["1"], ["1"], OTHERS, ("a",)),
    ("a", ["a"], [], [], OWN, ()),
    ("a", ["a"], ["1"], [], OWN, ()),
    ("a", ["a", "b"], ["1"], ["1"], OTHERS, ()),
    ("a", ["a", UNKNOWN], ["1"], ["1"], OTHERS, ()),
    ("a", ["b"], ["1"], ["1"], OTHERS, ("a",)),
    ("a", [], [], [], CLAIM, ("a",)),  # `state_uri` was set to another folder, or a start has ended before its note was left
    ("a", [], ["1"], ["1"], CLAIM, ("a",)),  # its files were copied there
    ("a", [], ["1"], [], OTHERS, (UNKNOWN, "a")),
]


@pytest.mark.parametrize(("own", "notes", "found", "named", "state", "missing"), TABLE)
def test_ownership(
    own: str | None, notes: list[str], found: list[str], named: list[str], state: Ownership, missing: tuple[str, ...]
) -> None:
    assert ownership(own, notes, found, named) is state
    assert missing_notes("a", notes, state) == missing


@pytest.mark.parametrize("order", list(permutations(["old", "b", "c"])))
def test_none_is_alone_among_files_of_others(order: tuple[str, ...]) -> None:
    """`old` has left a file without a note under an older version; each writes one of its own after it has left its note, and
    a start may end after any of the notes."""
    for stops_after in (0, 1, 2):
        notes, files = set[str](), {"of old"}
        for name in (*order, *order):
            own = name if name in notes else None
            named = {f"of {name}"} & files
            state = ownership(own, notes, files, named)
            assert state is OTHERS or files == named, (order, name, notes)
            left = missing_notes(name, notes, state)[: stops_after or None]
            notes.update(left)
            state = ownership(name, notes, files, named)
            assert state is OTHERS or files == named, (order, name, notes)
            if name in notes:
                files.add(f"of {name}")
