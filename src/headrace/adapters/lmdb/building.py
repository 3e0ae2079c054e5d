"""How a store is made of the files of a head: batch by batch, so that one whose maker was killed is made on from there.

Each batch is a transaction, which also says how far the store is. The status names the folder, and the boot of the machine:
after a power cut nothing of it counts. What a killed process has left is scanned before it is used."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from headrace.adapters.lmdb import environments
from headrace.adapters.lmdb.entries import Build
from headrace.adapters.lmdb.environments import DATA_FILE, Environment
from headrace.adapters.lmdb.scanning import check_entries, check_structure
from headrace.adapters.lmdb.store_status import StoreStatus, read_status, write_status
from headrace.core.keys.heads import chain_of, in_order_of_loading
from headrace.errors import StoreDamagedError
from headrace.model.checkpoint import Head
from headrace.state_files.files import StateFiles

_log = logging.getLogger("headrace.state_files")


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """How far a store is: of the bytes of its state files, and how many of these were read since it was begun or resumed.
    `entries`: that have come, some of them twice where files have the same keys."""

    done_bytes: int
    read_bytes: int
    entries: int


Progress = Callable[[BuildProgress], None]


def no_progress(progress: BuildProgress) -> None:
    """Where it is not of interest."""


class StoreBuild:
    """One store that is made in the folder `place`, which this process owns, of the files of `head`."""

    def __init__(self, place: Path, head: Head | None, files: StateFiles, boot_id: str, progress: Progress) -> None:
        self._place, self._files, self._boot_id, self._progress = place, files, boot_id, progress
        self._order = in_order_of_loading(head)
        self._chain = chain_of(self._order)
        self.read_bytes = 0

    def begun(self, run_id: str) -> Environment:
        """An empty environment in a folder of its own, or what an earlier try has made of the same files. All others are
        removed."""
        environment = self._resumed(run_id)
        kept = None if environment is None else environment.folder
        for folder in self._place.iterdir():
            if folder.is_dir() and folder != kept:
                environments.remove(folder)
        if environment is not None:
            return environment
        generation = uuid.uuid4().hex[:8]
        now_us = time.time_ns() // 1000
        write_status(self._place, StoreStatus(generation, self._boot_id, run_id, building=True, used_us=now_us))
        return environments.take(self._place / generation)

    def _resumed(self, run_id: str) -> Environment | None:
        """What was being made here of the same files, if it is whole."""
        status = read_status(self._place)
        if status is None or not status.building or status.boot_id != self._boot_id or status.verifying is not None:
            return None
        folder = self._place / status.generation
        if not (folder / DATA_FILE).exists():
            return None
        # Should LMDB fault on what it maps, this process ends; the next one reads here that it did so, and begins again.
        write_status(self._place, replace(status, verifying=os.getpid()))
        try:
            check_structure(folder)
            environment = environments.take(folder)
            check_entries(environment)
            build = _build_of(environment)
        except StoreDamagedError as error:
            _log.info("local store %s: what was made of it is not used: %s", folder, error.message)
            return None
        if build is None or self._index_of(build) is None:
            environments.give_back(environment)
            return None
        write_status(self._place, replace(status, run_id=run_id, used_us=time.time_ns() // 1000))
        return environment

    def load(self, environment: Environment) -> int:
        """Read what is missing; how many entries that was."""
        build = _build_of(environment)
        start = 0 if build is None else self._index_of(build)
        assert start is not None, "it was made of other files"
        done_bytes, entries = sum(file.counted_bytes for file in self._order[:start]), 0
        if build is not None:
            _log.info("local store %s: resumed with file %d, batch %d", environment.folder, start + 1, build.batches + 1)
        for index, file in enumerate(self._order[start:], start):
            first = build.batches if build is not None and index == start else 0
            is_read = not self._files.remembers(file)
            past = 0
            for number, count, batch in self._files.numbered_batches(file, first):
                environment.load(batch, Build(self._chain[index], self._chain[index + 1], number + 1))
                past, before = file.counted_bytes * (number + 1) // count, past or file.counted_bytes * first // count
                self.read_bytes += (past - before) * is_read
                entries += batch.num_rows
                self._progress(BuildProgress(done_bytes + past, self.read_bytes, entries))
            done_bytes += file.counted_bytes
            _log.info("local store %s: %d entries read, file %d", environment.folder, entries, index + 1)
        return entries

    def _index_of(self, build: Build) -> int | None:
        """The file that is read next, if what is there was made of the first files of these."""
        if build.files not in self._chain[:-1]:
            return None
        index = self._chain.index(build.files)
        return index if self._chain[index + 1] == build.reading else None


def _build_of(environment: Environment) -> Build | None:
    with environment.lmdb.begin() as txn:
        return environment.meta(txn).build
