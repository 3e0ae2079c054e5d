"""The marks of commits: empty files in `data/commits`, whose names say which catalog wrote the data files last.

They are names, not contents: a folder that is copied over this one adds its marks to ours, and hides none.
A commit that is about to be has a mark that ends in `-begun`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headrace.adapters.log.durable import make_durable_folder, sync_folder
from headrace.adapters.log.file_names import DATA_FOLDER
from headrace.core.log_files import CommitMark
from headrace.errors import StorageError

MARKS_FOLDER = f"{DATA_FOLDER}/commits"
_NAME = re.compile(r"([0-9a-f]{32})-(\d+)-([0-9a-f]{16})(-begun)?")
_LOOKS = 5  # a name that is just being renamed may escape a look


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
            make_durable_folder(root, folder)
        (folder / _name(replace(mark, is_done=False))).touch()
        if is_first:
            sync_folder(folder)
    except OSError as error:
        raise StorageError(
            f"the mark of a commit cannot be put into {folder}: {error.strerror or error}; nothing was committed",
            "check the disk's space and the folder's rights",
        ) from error


def finish_mark(root: Path, mark: CommitMark) -> None:
    """The commit of a mark that was begun is on disk: it is done, in place of those before it.

    Raises nothing: the commit counts already. Where this fails, the mark that is begun stays, and is done when the catalog is
    opened or written next.
    """
    folder = root / MARKS_FOLDER
    with suppress(OSError):
        (folder / _name(replace(mark, is_done=False))).rename(folder / _name(mark))
    _remove(root, lambda other: other.log == mark.log and other.number <= mark.number and other.token != mark.token)


def finish_if_begun(root: Path, mark: CommitMark) -> None:
    """`mark` is the newest commit of the catalog: if who committed it was killed before its mark was done, finish that."""
    if replace(mark, is_done=False) in marks_of(root):
        finish_mark(root, mark)


def withdraw_mark(root: Path, mark: CommitMark) -> None:
    """The commit failed."""
    with suppress(OSError):
        (root / MARKS_FOLDER / _name(replace(mark, is_done=False))).unlink()


def make_marks_folder(root: Path) -> None:
    make_durable_folder(root, root / MARKS_FOLDER)


def replace_marks(root: Path, mark: CommitMark) -> None:
    """Make `mark` the only one."""
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
