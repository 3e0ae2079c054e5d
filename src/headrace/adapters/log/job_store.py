"""The embedded log's store: who drives an application, its plan, its checkpoints, and the commit of a round.

protocol.md 6 (heartbeat), 15 (one transaction checks the epoch and the files, gives offsets, writes checkpoints). Workers
commit nothing here: an attempt is fenced by the epoch that the driver's transaction checks, so lanes need no fence.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from headrace.adapters.common.lease_holder import fenced, held_since_us
from headrace.adapters.log import commits, stream_tables
from headrace.adapters.log import metadata as metadata_tables
from headrace.adapters.log.catalog import Catalog
from headrace.adapters.log.chunks import chunks_from
from headrace.codec.documents import decode, decode_checkpoint, decode_job_model, encode
from headrace.core.group.grants import Grants
from headrace.errors import DEFECT, FencedError, NotSupportedError, StorageError
from headrace.exchange.fault_injection import reached
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.commits import ContainerCommit, DriverLease, RoundCommit
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.ports.coordinator_store import CoordinatorStore
from headrace.ports.metadata_store import Metadata
from headrace.ports.processor_store import ProcessorStore, SystemPayload

_PUT_CHECKPOINT = """
INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
epoch = excluded.epoch, sub_topology = excluded.sub_topology, round = excluded.round, checkpoint = excluded.checkpoint
"""


class LogJobStore(CoordinatorStore, ProcessorStore):
    """An application's plan and its rounds on the embedded log: the driver does both."""

    round_ms_max: int | None = None

    def __init__(self, catalog: Catalog, application: str) -> None:
        self.application = application
        self._catalog = catalog
        self._epoch: int | None = None  # while this store has the application

    # --- who drives -------------------------------------------------------------------------------------------------

    def check_not_leased(self, holder: DriverLease, now_us: int) -> None:
        with self._catalog.read() as db:
            self._checked_free(db, holder, now_us)

    def _checked_free(self, db: Any, holder: DriverLease, now_us: int) -> tuple[int, int]:
        """The epoch that comes next, and since when this run has held the application (now, if it did not). `FencedError` if
        this store had the application, and another driver has come since: it does not come back."""
        if self._epoch is not None:
            self._check_epoch(db, self._epoch)
        row = db.execute(
            "SELECT epoch, holder, held_since_us, heartbeat_us FROM jobs WHERE application = ?", (self.application,)
        ).fetchone()
        if row is None:
            return 1, now_us
        return row[0] + 1, held_since_us(self.application, _holder(row[1], row[3]), row[2], holder, now_us)

    def acquire(self, holder: DriverLease, now_us: int, *, for_group: bool = False) -> int:
        if for_group:
            raise NotSupportedError("the embedded log has no groups: one driver commits each round", "use Kafka")
        reached("start", 1)
        with self._catalog.write() as db:
            reached("start", 2)
            epoch, since_us = self._checked_free(db, holder, now_us)
            reached("start", 3)
            db.execute(
                "INSERT OR REPLACE INTO jobs (application, epoch, holder, held_since_us, heartbeat_us) VALUES (?, ?, ?, ?, ?)",
                (self.application, epoch, msgspec.json.encode(holder).decode(), since_us, now_us),
            )
        self._epoch = int(epoch)
        try:
            reached("start", 4)  # nothing to read back: a transaction of SQLite that has ended is in force
        except BaseException:
            self.release(int(epoch))
            raise
        return int(epoch)

    def numbers_used(self) -> int:
        row = self._one("SELECT epoch FROM jobs WHERE application = ?")
        return 0 if row is None else int(row[0])

    def lanes_used(self) -> Mapping[str, int]:
        return {}

    def fence(self, epoch: int, lanes: Mapping[str, Collection[int]]) -> None:
        reached("start", 5)  # nothing to do: the epoch itself fences every lane

    def heartbeat(self, epoch: int, now_us: int) -> None:
        with self._catalog.write(durable=False) as db:
            self._check_epoch(db, epoch)
            db.execute("UPDATE jobs SET heartbeat_us = ? WHERE application = ?", (now_us, self.application))

    def check_epoch(self, epoch: int) -> None:
        with self._catalog.read() as db:
            self._check_epoch(db, epoch)

    def expedite(self) -> None:
        """Nothing is waited for here but a lock, and that not long."""

    def repairs(self) -> Collection[str]:
        with self._catalog.read() as db:
            return commits.repairs_of(db)

    def release(self, epoch: int) -> None:
        if epoch == self._epoch:
            self._epoch = None
        with self._catalog.write() as db:
            db.execute("UPDATE jobs SET holder = NULL WHERE application = ? AND epoch = ?", (self.application, epoch))

    def step_down(self, epoch: int) -> None:
        if epoch == self._epoch:
            self._epoch = None

    def holder(self) -> DriverLease | None:
        row = self._one("SELECT holder, heartbeat_us FROM jobs WHERE application = ?")
        return None if row is None else _holder(*row)

    def forget(self, epoch: int) -> None:
        """All of it in one transaction."""
        with self._catalog.write() as db:
            self._check_epoch(db, epoch)
            reached("reset", 1)
            for stream in stream_tables.all_streams(db):
                if stream.internal_of == self.application:
                    stream_tables.delete_stream(db, stream.name)
            for table in ("job_models", "checkpoints", "status"):
                db.execute(f"DELETE FROM {table} WHERE application = ?", (self.application,))
            metadata_tables.forget(db, self.application)

    # --- plan and checkpoints ---------------------------------------------------------------------------------------

    def job_model(self) -> JobModel | None:
        row = self._one("SELECT model FROM job_models WHERE application = ? ORDER BY version DESC LIMIT 1")
        return None if row is None else decode_job_model(row[0], f"job model of application {self.application!r}")

    def commit_job_model(
        self,
        epoch: int,
        model: JobModel,
        checkpoints: Sequence[Checkpoint],
        metadata: Metadata | None = None,
        stored: Mapping[TaskName, Checkpoint] | None = None,
        grants: Grants | None = None,
    ) -> None:
        assert grants is None, "the embedded log has no groups"
        assert model.application == self.application, f"a model of {model.application!r}"
        reached("start", 9)
        with self._catalog.write() as db:
            self._check_epoch(db, epoch)
            newest = self._version(db)
            assert newest is None or model.version >= newest, f"version {model.version} after version {newest}"
            db.execute(
                "INSERT OR REPLACE INTO job_models (application, version, model, written_at_us) VALUES (?, ?, ?, ?)",
                (self.application, model.version, encode(model).decode(), time.time_ns() // 1000),
            )
            self._put_checkpoints(db, [one for one in checkpoints if not stored or stored.get(one.task) is not one])
            for namespace, values in (metadata or {}).items():
                metadata_tables.write(db, self.application, namespace, values, ())
            if stored is None or stored.keys() != {task.name for task in model.tasks}:
                self._drop_checkpoints_but(db, {str(task.name) for task in model.tasks})
        reached("start", 10)

    def _drop_checkpoints_but(self, db: sqlite3.Connection, planned: Collection[str]) -> None:
        there = db.execute("SELECT task FROM checkpoints WHERE application = ?", (self.application,)).fetchall()
        gone = [(self.application, task) for (task,) in there if task not in planned]
        db.executemany("DELETE FROM checkpoints WHERE application = ? AND task = ?", gone)

    def checkpoints(self) -> dict[TaskName, Checkpoint]:
        with self._catalog.read() as db:
            return self._checkpoints(db)

    def _checkpoints(self, db: sqlite3.Connection) -> dict[TaskName, Checkpoint]:
        rows = db.execute("SELECT task, checkpoint FROM checkpoints WHERE application = ?", (self.application,)).fetchall()
        where = f"of application {self.application!r}"
        decoded = decode_checkpoint if self._epoch is None else partial(decode, Checkpoint)
        found = [decoded(text, f"checkpoint of task {task!r} {where}") for task, text in rows]
        return {checkpoint.task: checkpoint for checkpoint in sorted(found, key=lambda one: one.task.sort_key)}

    # --- rounds: the driver commits --------------------------------------------------------------------------------------

    def begin(self, epoch: int, model: JobModel, processor_id: str | None = None) -> None:
        """Nothing to keep: a round's transaction looks at the epoch and the job model."""

    def container_terms(self, round_id: RoundId, lane: int) -> SystemPayload:
        """Where the data files are: a container writes one more, and its receipt is the chunks in it."""
        return str(self._catalog.root)

    def recover(self, epoch: int, sub_topology: str | None) -> dict[TaskName, Checkpoint]:
        """There is nothing to fence: attempts commit nothing on their own."""
        with self._catalog.read() as db:
            self._check_epoch(db, epoch)
            found = self._checkpoints(db)
        return {task: checkpoint for task, checkpoint in found.items() if task.sub_topology == sub_topology}

    def commit_round(self, commit: RoundCommit) -> None:
        """Outputs, positions and heads of a round in one transaction (steps 9 to 12 of "Log"). Also `StreamNotFoundError`, if
        an output was deleted."""
        reached("log", 9)
        with self._catalog.write() as db:
            reached("log", 10)
            self._check_epoch(db, commit.round_id.epoch)
            self._check_version(db, commit)
            self._check_bases(db, commit)
            chunks = [chunk for container in commit.containers for chunk in chunks_from(container.receipt)]
            stream_tables.check_files(self._catalog.root, chunks)
            _check_state_files(commit.containers)
            reached("log", 11)
            stream_tables.append_chunks(db, chunks)
            self._put_checkpoints(db, commit.checkpoints)
            reached("log", 12)

    # --- what goes with it ------------------------------------------------------------------------------------------

    def write_metadata(
        self, epoch: int, namespace: str, values: Mapping[str, bytes | None], done: Collection[str] = ()
    ) -> None:
        with self._catalog.write() as db:
            self._check_epoch(db, epoch)
            metadata_tables.write(db, self.application, namespace, values, done)

    def purge(self, epoch: int, stream: str, offsets: Mapping[int, int]) -> None:
        """The data files go when garbage is collected, each when all that is in it is forgotten."""
        with self._catalog.write() as db:
            self._check_epoch(db, epoch)
            stream_tables.purge(db, stream_tables.stream_row(db, stream), offsets)

    def publish_status(self, sub_topology: str | None, status: Mapping[str, Any]) -> None:
        text = msgspec.json.encode(dict(status)).decode()
        with self._catalog.write(durable=False) as db:
            db.execute("INSERT OR REPLACE INTO status VALUES (?, ?, ?)", (self.application, sub_topology or "source", text))

    def publish_processor(self, processor_id: str, status: Mapping[str, Any] | None) -> None:
        raise NotSupportedError("an embedded log has no groups: one driver runs each job", "use Kafka")

    def status(self) -> dict[str, dict[str, Any]]:
        with self._catalog.read() as db:
            rows = db.execute(
                "SELECT sub_topology, status FROM status WHERE application = ? ORDER BY sub_topology", (self.application,)
            ).fetchall()
        return {name: msgspec.json.decode(text) for name, text in rows}

    # --- inside a transaction ---------------------------------------------------------------------------------------

    def _one(self, query: str) -> Any:
        with self._catalog.read() as db:
            return db.execute(query, (self.application,)).fetchone()

    def _check_epoch(self, db: sqlite3.Connection, epoch: int) -> None:
        row = db.execute("SELECT epoch FROM jobs WHERE application = ?", (self.application,)).fetchone()
        current = None if row is None else row[0]
        if current != epoch:
            raise fenced(self.application, epoch, current)

    def _version(self, db: sqlite3.Connection) -> int | None:
        query = "SELECT max(version) FROM job_models WHERE application = ?"
        (version,) = db.execute(query, (self.application,)).fetchone()
        return None if version is None else int(version)

    def _check_version(self, db: sqlite3.Connection, commit: RoundCommit) -> None:
        current = self._version(db)
        for checkpoint in commit.checkpoints:
            if current is not None and checkpoint.job_model_version != current:
                raise FencedError(
                    f"application {self.application!r}: round {commit.round_id} is of job model "
                    f"{checkpoint.job_model_version}, the current one is {current}; nothing was changed"
                )

    def _check_bases(self, db: sqlite3.Connection, commit: RoundCommit) -> None:
        for task, expected in sorted(commit.bases.items()):
            row = db.execute(
                "SELECT epoch, sub_topology, round FROM checkpoints WHERE application = ? AND task = ?",
                (self.application, str(task)),
            ).fetchone()
            found = None if row is None else RoundId(*row)
            if found != expected:
                raise FencedError(
                    f"application {self.application!r}: round {commit.round_id} builds on {expected} of task {task}, "
                    f"its checkpoint is of {found}; nothing was changed"
                )

    def _put_checkpoints(self, db: sqlite3.Connection, checkpoints: Iterable[Checkpoint]) -> None:
        rows = []
        for checkpoint in checkpoints:
            made_by = checkpoint.round_id
            attempt = made_by.epoch, made_by.sub_topology, made_by.number
            rows.append((self.application, str(checkpoint.task), *attempt, encode(checkpoint).decode()))
        db.executemany(_PUT_CHECKPOINT, rows)


def _check_state_files(containers: Iterable[ContainerCommit]) -> None:
    for path in (path for container in containers for path in container.state_files):
        if not os.path.isabs(path):
            raise StorageError(f"state file {path!r}: expected an absolute path; nothing was committed", DEFECT)
        try:
            os.stat(path)
        except OSError as error:
            raise StorageError(
                f"state file {path} is missing: {error.strerror}; nothing was committed",
                "run the round again; a file that existed before must be restored from a copy",
            ) from error


def _holder(text: str | None, heartbeat_us: int) -> DriverLease | None:
    if text is None:
        return None
    try:
        holder = msgspec.json.decode(text, type=DriverLease)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StorageError(
            f"the stored holder of a job cannot be read: {error}",
            "it was damaged, or not written by Headrace: `headrace doctor --system log:DIR` verifies the log",
        ) from error
    return replace(holder, heartbeat_us=heartbeat_us)
