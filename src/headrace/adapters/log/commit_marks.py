"""The marks of commits: empty files in `data/commits`, whose names say which catalog wrote the data files last.

A catalog numbers its commits and gives each a random token. A *mark* is a commit as the folder of the data files knows it,
outside the catalog. It is put there before the commit, as *begun* (its name ends so), and is *done* after it: no commit is
acknowledged without its mark. So a catalog that knows less than the marks that are done is an older copy. One that knows
another token is of another log, or of a copy that has continued on its own. A mark that is only begun proves nothing: its
commit may have been cut short. Marks are names, not contents: a folder that is copied over this one hides none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.adapters.log.file_names import DATA_FOLDER
from headrace.errors import StorageError
from headrace.state_files.durable import make_durable_folder, sync_folder

MARKS_FOLDER = f"{DATA_FOLDER}/commits"
_NAME = re.compile(r"([0-9a-f]{32})-(\d+)-([0-9a-f]{16})(-begun)?")
_LOOKS = 5  # a name that is just being renamed may escape a look


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


def marks_of(root: Path) -> list[CommitMark]:
    """All marks in the log's folder; usually one."""
    for _ in range(_LOOKS):
        try:
            names = os.listdir(root / MARKS_FOLDER)
        except OSError:
            return []
        found = [match for name in names if (match := _NAME.fullmatch(name))]
        if found:
            return [CommitMark(match[1], int(match[2]), match[3], is_done=match[4] is None) for match in found]
    return []


def begin_mark(root: Path, mark: CommitMark, *, is_first: bool) -> None:
    """Put the mark of a commit that is about to be; `StorageError` if that fails: then the commit must not be."""
    folder = root / MARKS_FOLDER
    try:
        if is_first:
            make_durable_folder(folder, root)
        (folder / _name(replace(mark, is_done=False))).touch()
        if is_first:
            sync_folder(folder)
    except OSError as error:
        raise StorageError(
            f"the mark of a commit cannot be put into {folder}: {error.strerror or error}; nothing was committed",
            "check the disk's space and the folder's rights",
        ) from error


def finish_mark(root: Path, mark: CommitMark) -> None:
    """The commit of a mark that was begun is on disk: it is done, in place of those before it. Raises nothing: the commit
    counts already. Where this fails, the mark that is begun stays, and is done when the catalog is opened or written next."""
    folder = root / MARKS_FOLDER
    with suppress(OSError):
        (folder / _name(replace(mark, is_done=False))).rename(folder / _name(mark))
    _remove(root, lambda other: other.log == mark.log and other.number <= mark.number and other.token != mark.token)


def finish_if_begun(root: Path, mark: CommitMark) -> None:
    """`mark` is the newest commit of the catalog: if who committed it was killed before its mark was done, finish that."""
    if replace(mark, is_done=False) in marks_of(root):
        finish_mark(root, mark)


def withdraw_mark(root: Path, mark: CommitMark) -> None:
    with suppress(OSError):
        (root / MARKS_FOLDER / _name(replace(mark, is_done=False))).unlink()


def make_marks_folder(root: Path) -> None:
    make_durable_folder(root / MARKS_FOLDER, root)


def replace_marks(root: Path, mark: CommitMark) -> None:
    make_marks_folder(root)
    (root / MARKS_FOLDER / _name(mark)).touch()
    sync_folder(root / MARKS_FOLDER)
    _remove(root, lambda other: other != mark)


def _remove(root: Path, chosen: Callable[[CommitMark], bool]) -> None:
    for other in marks_of(root):
        if chosen(other):
            with suppress(OSError):
                (root / MARKS_FOLDER / _name(other)).unlink()


def _name(mark: CommitMark) -> str:
    return f"{mark.log}-{mark.number:012d}-{mark.token}{'' if mark.is_done else '-begun'}"
