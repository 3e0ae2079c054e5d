"""Whose state files are in a folder: applications of one name, each on its own system, may share a `state_uri`; protocol.md 20.

Each has a state with an id of its own, and leaves a note with it in the folder before it writes a file there. What was listed
is one's own only where no other note is.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

UNKNOWN = "unknown"  # the note in place of one who has files there and left none: it ran under an older version


class Ownership(StrEnum):
    """What the files in the folder are to the application that looks."""

    OWN = "own"
    CLAIM = "claim"  # its own, and its note is to be left
    OTHERS = "others"  # another's are, or may be, among them


def ownership(own: str | None, notes: Collection[str], found: Collection[str], named: Collection[str]) -> Ownership:
    """`own`: the id of the application's state, None where it has none yet; `notes`: the ids in the folder; `found`: the state
    files there; `named`: those that its checkpoints name. Files without any note are of an older version's run: its own, if
    its checkpoints name any of them.

    >>> [str(ownership("a", notes, ["1"], [])) for notes in (["a"], ["a", "b"], ["b"], [])]
    ['own', 'others', 'others', 'others']
    >>> [str(ownership(None, [], found, ["1"])) for found in ([], ["1", "2"], ["2"])]
    ['claim', 'claim', 'others']
    """
    if notes:
        return Ownership.OWN if own is not None and set(notes) == {own} else Ownership.OTHERS
    return Ownership.OTHERS if found and not set(named).intersection(found) else Ownership.CLAIM


def missing_notes(own: str, notes: Collection[str], state: Ownership) -> tuple[str, ...]:
    """The notes to be left by an application with this id, in this order: with its own alone it would be the owner of all.

    >>> missing_notes("a", [], Ownership.OTHERS), missing_notes("a", ["b"], Ownership.OTHERS)
    (('unknown', 'a'), ('a',))
    """
    wanted = (own,) if notes or state is not Ownership.OTHERS else (UNKNOWN, own)
    return tuple(one for one in wanted if one not in notes)
