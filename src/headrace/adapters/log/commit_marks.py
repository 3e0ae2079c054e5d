"""Owns the marks of commits: empty files in `data/commits`, whose names say which catalog wrote the data files last.

They are names, not contents: a folder that is copied over this one adds its marks to ours, and hides none.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from headrace.adapters.log.durable import make_durable_folder, sync_folder
from headrace.adapters.log.file_names import DATA_FOLDER
from headrace.core.log_files import Mark

MARKS_FOLDER = f"{DATA_FOLDER}/commits"
_NAME = re.compile(r"([0-9a-f]{32})-(\d+)-([0-9a-f]{16})")


def marks_of(root: Path) -> list[Mark]:
    """All marks in the log's folder; usually one."""
    try:
        names = [path.name for path in (root / MARKS_FOLDER).iterdir()]
    except OSError:
        return []
    return [Mark(found[1], int(found[2]), found[3]) for name in names if (found := _NAME.fullmatch(name))]


def put_mark(root: Path, mark: Mark) -> None:
    """Mark a commit that is on disk, in place of those before it. Only beside data files: there is nothing else to guard.

    Raises nothing: the commit counts already, and the next one is marked again.
    """
    folder = root / MARKS_FOLDER
    with suppress(OSError):
        if not folder.parent.is_dir():
            return
        folder.mkdir(exist_ok=True)
        (folder / _name(mark)).touch()
        for other in marks_of(root):
            if other.log == mark.log and other.number < mark.number:
                (folder / _name(other)).unlink(missing_ok=True)


def replace_marks(root: Path, mark: Mark) -> None:
    """Make `mark` the only one."""
    folder = root / MARKS_FOLDER
    make_durable_folder(root, folder)
    (folder / _name(mark)).touch()
    sync_folder(folder)
    for other in marks_of(root):
        if other != mark:
            (folder / _name(other)).unlink(missing_ok=True)


def _name(mark: Mark) -> str:
    return f"{mark.log}-{mark.number:012d}-{mark.token}"
