"""Decides what becomes of the embedded log's files: whether a catalog is the newest one, and what a file is to it.

A catalog numbers its commits and gives each a random token. A *mark* is a commit as the folder of the data files knows it,
outside the catalog. It is put there before the commit, as *begun*, and is *done* after it: no commit is acknowledged without
its mark. So a catalog that knows less than the marks that are done is an older copy. One that knows another token is of another
log, or of a copy that has continued on its own. A mark that is only begun proves nothing: its commit may have been cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from headrace.model.checkpoint import RoundId

PRODUCER_FILE_AGE_S = 3_600


@dataclass(frozen=True, slots=True)
class CommitMark:
    """One commit of a catalog: the log's id, the commit's number, its random token, and whether it is known to be committed."""

    log: str
    number: int
    token: str
    is_done: bool = True


def mismatch(
    log: str | None,
    newest: int,
    marks: Collection[CommitMark],
    token_of: Callable[[int], str | None],
    *,
    lost_marks: bool = False,
) -> str | None:
    """Why a catalog is not the newest one of its folder; None if it is.

    `log` is the catalog's id (None: of a Headrace that gave none), `newest` its newest commit; `token_of` gives the token of a
    commit, or None where the catalog does not know it any more. `lost_marks`: its commits had marks, and there are none.

    >>> marks, tokens = [CommitMark("a", 7, "t7")], {5: "t5", 6: "t6", 7: "t7"}
    >>> mismatch("a", 7, marks, tokens.get), mismatch("a", 9, marks, tokens.get)
    (None, None)
    >>> mismatch("a", 6, marks, tokens.get)
    'it is an older copy: its newest commit is 6, that of the data files is 7'
    >>> mismatch("a", 9, marks, {7: "other"}.get)
    'it is of a copy of this log that has continued on its own: commit 7 is another one there'
    >>> mismatch("a", 2000, marks, {}.get)
    'it is of a copy of this log that has continued on its own: its newest commit is 2000, that of the data files is 7'
    >>> mismatch("b", 9, marks, tokens.get)
    'it is of another log: its id is b, that of the data files is a'
    >>> mismatch("a", 6, [CommitMark("a", 6, "t6"), CommitMark("a", 7, "t7", is_done=False)], tokens.get) is None
    True
    """
    if lost_marks:
        return "it is not known to be the newest one, as the marks of its commits in data/commits are missing"
    if not marks:
        return None
    last = max(marks, key=lambda mark: (mark.is_done, mark.number))
    if log is None:
        return f"it is an older copy, from before commits were numbered: that of the data files is {last.number}"
    others = sorted({mark.log for mark in marks} - {log})
    if others:
        return f"it is of another log: its id is {log}, that of the data files is {others[0]}"
    if not last.is_done:
        return None
    if last.number > newest:
        return f"it is an older copy: its newest commit is {newest}, that of the data files is {last.number}"
    token = token_of(last.number)
    if token is None:  # each commit has a mark: the right catalog is at most one ahead of them
        return (
            "it is of a copy of this log that has continued on its own: "
            f"its newest commit is {newest}, that of the data files is {last.number}"
        )
    if token != last.token:
        return f"it is of a copy of this log that has continued on its own: commit {last.number} is another one there"
    return None


def unknown_of(marks: Collection[CommitMark], log: str | None, token_of: Callable[[int], str | None]) -> list[CommitMark]:
    """The marks that are begun, and whose commits the catalog does not have. A killed process leaves them.

    Either the commit never was, or this catalog is a copy from just before it: what it may have named is not to be deleted.

    >>> begun = CommitMark("a", 7, "t7", is_done=False)
    >>> unknown_of([begun], "a", {7: "t7"}.get), unknown_of([begun], "a", {7: "x"}.get) == [begun]
    ([], True)
    """
    return [mark for mark in marks if not mark.is_done and mark.log == log and token_of(mark.number) != mark.token]


class Fate(StrEnum):
    """What an unreferenced data file is to the catalog."""

    WAITING = "waiting"  # it may be committed yet
    GARBAGE = "garbage"  # it never will be, or all that is in it was purged
    UNKNOWN = "unknown"  # the catalog cannot know: never to be deleted


def fate_of(
    made_by: tuple[str, RoundId] | None,
    epoch: int | None,
    newest_round: int | None,
    age_s: float,
    *,
    is_stranger: bool,
    is_uncertain: bool = False,
) -> Fate:
    """The fate of a data file that no row of the catalog names (protocol.md 16).

    `made_by`: the application and round that wrote it, None for a producer. `epoch`: the application's current one, None if the
    catalog knows no such application. `newest_round`: the newest committed round of the file's epoch and sub-topology.
    `is_stranger`: it was there before the catalog could be compared with the folder. `is_uncertain`: it was there, named by no
    row, after a commit was cut short that may have named it.

    >>> fate_of(None, None, None, 4000.0, is_stranger=False).value, fate_of(None, None, None, 10.0, is_stranger=False).value
    ('garbage', 'waiting')
    >>> [fate_of(("a", RoundId(5, None, 3)), epoch, 2, 0.0, is_stranger=False).value for epoch in (None, 4, 5, 6)]
    ['unknown', 'unknown', 'waiting', 'garbage']
    """
    if is_stranger:
        return Fate.UNKNOWN
    if is_uncertain:
        return Fate.WAITING
    if made_by is None:
        return Fate.GARBAGE if age_s > PRODUCER_FILE_AGE_S else Fate.WAITING
    round_id = made_by[1]
    if epoch is None or round_id.epoch > epoch:  # an epoch is committed before its first file is written
        return Fate.UNKNOWN
    is_finished = newest_round is not None and round_id.number <= newest_round
    return Fate.GARBAGE if round_id.epoch < epoch or is_finished else Fate.WAITING
