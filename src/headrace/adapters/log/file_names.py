"""The names of data files: they show who wrote a file, so that uncommitted files can be recognised and collected.

Of a round: `data/jobs/<application>/<epoch>/<sub-topology>/<round>-<unique>.arrow`; of a producer: `data/produced/...`.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.model.checkpoint import RoundId
from headrace.model.names import checked_name

DATA_FOLDER = "data"
QUARANTINE = "quarantine"  # what repairs move goes to quarantine/<when>
PRODUCER_PARTS = ("produced", "batch")
_DATA_FILE = re.compile(r".+-[0-9a-f]{32}\.arrow")
_ROUND_FILE = re.compile(rf"{DATA_FOLDER}/jobs/([^/]+)/(\d+)/([^/]+)/(\d+)-[0-9a-f]{{32}}\.arrow")


def parts_of_round(application: str, round_id: RoundId) -> tuple[str, ...]:
    """The `name_parts` of what a round's container writes."""
    return ("jobs", application, str(round_id.epoch), round_id.sub_topology or "source", str(round_id.number))


def new_file_name(parts: Sequence[str]) -> str:
    """A name that no other file has: folders from all parts but the last, which begins the file's own name."""
    *folders, last = [checked_name("data file", part) for part in parts]
    return "/".join([DATA_FOLDER, *folders, f"{last}-{uuid.uuid4().hex}.arrow"])


def data_files_of(root: Path) -> Iterator[str]:
    """The names of all data files in the log's folder `root`, relative to it; of nothing else that may be there."""
    for top in ("jobs", PRODUCER_PARTS[0]):
        for folder, folders, files in os.walk(root / DATA_FOLDER / top):
            folders.sort()
            relative = os.path.relpath(folder, root)
            yield from (f"{relative}/{file}" for file in sorted(files) if _DATA_FILE.fullmatch(file))


def round_of(file_name: str) -> tuple[str, RoundId] | None:
    """The application and round that wrote the file; None for a producer's, or one of another form."""
    found = _ROUND_FILE.fullmatch(file_name)
    if found is None:
        return None
    sub_topology = None if found[3] == "source" else found[3]
    return found[1], RoundId(int(found[2]), sub_topology, int(found[4]))
