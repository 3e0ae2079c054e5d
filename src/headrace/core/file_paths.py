"""Which texts of ours may leave this machine: those that name no file. A path can have any form (with spaces, relative, of
another system), so it is not looked for: a text in which a separator of folders is left is not given at all."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

NOT_SHOWN = "not shown here, as it names files: see the log"
_SEPARATOR = re.compile(r"[/\\]|%2f|%5c", re.IGNORECASE)
_QUOTED = re.compile(r"'[^'\n]*[/\\][^'\n]*'|\"[^\"\n]*[/\\][^\"\n]*\"")
# An address of a server, and words that have a separator; not inside of a path.
_NOT_INSIDE = r"(?<![\w./\\~-])"
_NO_FILES = re.compile(
    _NOT_INSIDE + r"(?:(?:kafka|zookeeper|https?)://[\w.:,@\[\]-]+|records/s\b|Input/output error\b)(?![/\\])"
)
_PARTITION = re.compile(_NOT_INSIDE + r"([\w.-]+)/\d+(?![\w/\\-]|\.\w)")


def without_paths(text: str, streams: Collection[str] = ()) -> str:
    """The text; what it quotes is left out where that may be a path, and `NOT_SHOWN` is given where more of it may be one.
    `streams`: names whose partitions, such as `in/0`, are none.

    >>> without_paths("cannot write '/var/lib/my data/a.arrow': the disk is full")
    "cannot write '…': the disk is full"
    >>> without_paths("there is no log in my data/log")
    'not shown here, as it names files: see the log'
    >>> without_paths("in/0 of kafka://host:9092 is behind", ["in"])
    'in/0 of kafka://host:9092 is behind'
    """
    if _SEPARATOR.search(text) is None:
        return text
    found = _QUOTED.sub(lambda quoted: f"{quoted[0][0]}…{quoted[0][0]}", text)
    rest = _PARTITION.sub(lambda ssp: "" if ssp[1] in streams else ssp[0], _NO_FILES.sub("", found))
    return found if _SEPARATOR.search(rest) is None else NOT_SHOWN


def document_without_paths(value: Any, streams: Collection[str] = ()) -> Any:
    """A document of ours, with every text in it so. Not for what users have written: keys, values and headers stay as they are.

    >>> document_without_paths({"why": ["cannot read /var/a"], "reads": ["in/0"], "lag": 1}, ["in"])
    {'why': ['not shown here, as it names files: see the log'], 'reads': ['in/0'], 'lag': 1}
    """
    if isinstance(value, str):
        return without_paths(value, streams)
    if isinstance(value, Mapping):
        return {without_paths(key, streams): document_without_paths(one, streams) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [document_without_paths(one, streams) for one in value]
    return value
