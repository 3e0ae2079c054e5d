"""The scan: the proof that a store which another process left without a seal is whole: structure first, then every entry.

Costs 2 to 3.5 s per million keys on one core, in three passes. The pages, without LMDB, which may crash on a damaged
tree and says nothing about a damaged free list, after which it would overwrite live pages. The checksum of each entry,
and their sum. A look-up of every key, both ways round: a damaged separator hides keys that a scan still finds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from operator import lt
from pathlib import Path
from typing import Any

from lmdb import verify as structure

from headrace.adapters.lmdb.entries import Meta, unpacked_many
from headrace.adapters.lmdb.environments import DATA_FILE, Environment, damage_named
from headrace.errors import StoreDamagedError

_AT_ONCE = 16_384
_structure_problems: Callable[..., list[str]] = structure.verify


def check_structure(folder: Path) -> None:
    """`StoreDamagedError` unless LMDB's file in `folder` is sound page by page; LMDB is not asked."""
    try:
        problems: list[str] = _structure_problems(str(folder / DATA_FILE), subdir=False)
    except Exception as error:  # it walks arbitrary bytes: whatever it trips over is damage
        raise StoreDamagedError(f"local store {folder}: {type(error).__name__}: {error}") from error
    if problems:
        raise StoreDamagedError(f"local store {folder}: {problems[0]}" + ", …" * (len(problems) > 1))


def check_entries(environment: Environment) -> None:
    """`StoreDamagedError` unless every entry has its checksum, is found under its key, and all sum up as recorded."""
    with damage_named(environment.folder), environment.lmdb.begin() as txn:
        found = Meta()
        for db in environment.databases:
            with txn.cursor(db=environment.handles[db]) as cursor:
                found = _checked_database(db, cursor, found)
        recorded = environment.meta(txn)
    if (found.entries, found.checksums) != (recorded.entries, recorded.checksums):
        raise StoreDamagedError(
            f"local store {environment.folder}: expected {recorded.entries} entries with sum {recorded.checksums:x}, "
            f"found {found.entries} with {found.checksums:x}"
        )


def _checked_database(db: str, cursor: Any, found: Meta) -> Meta:
    last = b""
    is_at_entry = cursor.first()
    while is_at_entry:
        entries = list(islice(cursor.iternext(), _AT_ONCE))
        keys = [key for key, _ in entries]
        unpacked_many(db, entries)
        if not all(map(lt, [last, *keys], keys)):
            raise StoreDamagedError(f"store {db}: keys are out of order")
        if cursor.getmulti(keys) != entries or cursor.getmulti(keys[::-1]) != entries[::-1]:
            raise StoreDamagedError(f"store {db}: keys are not found where they are")
        found = found.changed_by([stored for _, stored in entries], [])
        last = keys[-1]
        is_at_entry = cursor.set_key(last) and cursor.next()
    return found
