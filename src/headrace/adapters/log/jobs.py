"""Owns the embedded log's `JobStore`: who drives an application, its plan, its checkpoints, and the commit of a round.

protocol.md 6 (heartbeat), 15 (one transaction checks the epoch and the files, gives offsets, writes checkpoints).
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from headrace.adapters.log import stream_tables
from headrace.adapters.log.catalog import Catalog
from headrace.adapters.log.processes import is_known_dead
from headrace.errors import FencedError, JobHeldError, StorageError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.ports import Holder, RoundCommit
from headrace.wire import decode_checkpoint, decode_job_model, encode_checkpoint, encode_job_model

HEARTBEAT_STALE_US = 10_000_000  # a holder that was silent for longer may be taken over; it beats every 2 s
Reached = Callable[[str, int], None]
_PUT_CHECKPOINT = """
INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
epoch = excluded.epoch, sub_topology = excluded.sub_topology, round = excluded.round, checkpoint = excluded.checkpoint
"""


def no_steps(protocol: str, step: int) -> None:
    """What `reached` is where no test kills at numbered steps."""


class LogJobStore:
    """See `headrace.ports.JobStore`. `reached` is told the numbered steps of protocol.md as they come."""

    def __init__(self, catalog: Catalog, application: str, reached: Reached = no_steps) -> None:
        self.application = application
        self._catalog = catalog
        self._reached = reached

    # --- who drives -------------------------------------------------------------------------------------------------

    def acquire(self, holder: Holder, now_us: int) -> int:
        """Take the application and give the new epoch. The same run may take it again: that is how it recovers.

        `JobHeldError` while another run holds it: its process is not known to be gone, and it was heard of lately.
        """
        self._reached("start", 1)
        with self._catalog.write() as db:
            self._reached("start", 2)
            row = db.execute(
                "SELECT epoch, holder, held_since_us, heartbeat_us FROM jobs WHERE application = ?", (self.application,)
            ).fetchone()
            epoch, since_us = 1, now_us
            if row is not None:
                epoch = row[0] + 1
                current = _holder(row[1], row[3])
                if current is not None and current.run_id == holder.run_id:
                    since_us = row[2]
                elif current is not None and now_us - row[3] <= HEARTBEAT_STALE_US and not is_known_dead(current):
                    raise _held(self.application, current, row[2], now_us)
            self._reached("start", 3)
            db.execute(
                "INSERT OR REPLACE INTO jobs (application, epoch, holder, held_since_us, heartbeat_us) "
                "VALUES (?, ?, ?, ?, ?)",
                (self.application, epoch, msgspec.json.encode(holder).decode(), since_us, now_us),
            )
        return int(epoch)

    def heartbeat(self, epoch: int, now_us: int) -> None:
        with self._catalog.write(durable=False) as db:
            self._check_epoch(db, epoch)
            db.execute("UPDATE jobs SET heartbeat_us = ? WHERE application = ?", (now_us, self.application))

    @contextmanager
    def holding(self, epoch: int) -> Iterator[None]:
        """While the context lasts nobody else can take the application, nor commit; `FencedError` if somebody has."""
        with self._catalog.write(durable=False) as db:
            self._check_epoch(db, epoch)
            yield

    def release(self, epoch: int) -> None:
        with self._catalog.write() as db:
            db.execute("UPDATE jobs SET holder = NULL WHERE application = ? AND epoch = ?", (self.application, epoch))

    def holder(self) -> Holder | None:
        """Who holds the application; None if nobody ever did, or the last driver ended cleanly."""
        row = self._one("SELECT holder, heartbeat_us FROM jobs WHERE application = ?")
        return None if row is None else _holder(*row)

    # --- plan and checkpoints ---------------------------------------------------------------------------------------

    def job_model(self) -> JobModel | None:
        row = self._one("SELECT model FROM job_models WHERE application = ? ORDER BY version DESC LIMIT 1")
        return None if row is None else decode_job_model(row[0], f"job model of application {self.application!r}")

    def commit_job_model(self, epoch: int, model: JobModel, checkpoints: Sequence[Checkpoint]) -> None:
        """Make `model` current and write `checkpoints`, in one transaction.

        Checkpoints of tasks that `model` does not have are forgotten: those of the current plan alone count.
        """
        assert model.application == self.application, f"a model of {model.application!r}"
        self._reached("start", 9)
        with self._catalog.write() as db:
            self._check_epoch(db, epoch)
            (newest,) = db.execute(
                "SELECT max(version) FROM job_models WHERE application = ?", (self.application,)
            ).fetchone()
            assert newest is None or model.version >= newest, f"version {model.version} after version {newest}"
            db.execute(
                "INSERT OR REPLACE INTO job_models (application, version, model, written_at_us) VALUES (?, ?, ?, ?)",
                (self.application, model.version, encode_job_model(model).decode(), time.time_ns() // 1000),
            )
            self._put_checkpoints(db, checkpoints)
            planned = {str(task.name) for task in model.tasks}
            stored = db.execute("SELECT task FROM checkpoints WHERE application = ?", (self.application,)).fetchall()
            db.executemany(
                "DELETE FROM checkpoints WHERE application = ? AND task = ?",
                [(self.application, task) for (task,) in stored if task not in planned],
            )

    def checkpoints(self) -> dict[TaskName, Checkpoint]:
        with self._catalog.read() as db:
            rows = db.execute(
                "SELECT task, checkpoint FROM checkpoints WHERE application = ?", (self.application,)
            ).fetchall()
        where = f"of application {self.application!r}"
        found = [decode_checkpoint(text, f"checkpoint of task {task!r} {where}") for task, text in rows]
        return {checkpoint.task: checkpoint for checkpoint in sorted(found, key=lambda checkpoint: checkpoint.task)}

    def spent_startpoints(self) -> frozenset[str]:
        """The ids of all startpoints that a commit of this application ever spent (protocol.md 25)."""
        with self._catalog.read() as db:
            rows = db.execute("SELECT id FROM spent_startpoints WHERE application = ?", (self.application,)).fetchall()
        return frozenset(row[0] for row in rows)

    # --- the commit of a round --------------------------------------------------------------------------------------

    def commit_round(self, commit: RoundCommit) -> None:
        """Outputs, positions and heads of a round in one transaction (steps 9 to 12 of "Log").

        `FencedError` if the epoch, the job model or a base is not the current one; `StorageError` if a file that it
        names is missing or too short; `StreamNotFoundError` if an output is gone. Then nothing has changed.
        """
        self._reached("log", 9)
        with self._catalog.write() as db:
            self._reached("log", 10)
            self._check_epoch(db, commit.round_id.epoch)
            self._check_version(db, commit)
            self._check_bases(db, commit)
            stream_tables.check_files(self._catalog.root, commit.chunks)
            _check_state_files(commit.state_files)
            self._reached("log", 11)
            stream_tables.append_chunks(db, commit.chunks)
            self._put_checkpoints(db, commit.checkpoints)
            spent = {*commit.spent_startpoints, *(id_ for one in commit.checkpoints for id_ in one.spent_startpoints)}
            db.executemany(
                "INSERT OR IGNORE INTO spent_startpoints VALUES (?, ?)",
                [(self.application, id_) for id_ in sorted(spent)],
            )
            self._reached("log", 12)

    # --- status -----------------------------------------------------------------------------------------------------

    def publish_status(self, sub_topology: str | None, status: Mapping[str, Any]) -> None:
        """Replace what `status` gives for a sub-topology. Not tied to an epoch: it is for eyes, never for decisions."""
        text = msgspec.json.encode(dict(status)).decode()
        with self._catalog.write(durable=False) as db:
            db.execute(
                "INSERT OR REPLACE INTO status VALUES (?, ?, ?)", (self.application, sub_topology or "source", text)
            )

    def status(self) -> dict[str, dict[str, Any]]:
        """What was last published, by sub-topology; the source sub-topology is `source`."""
        with self._catalog.read() as db:
            rows = db.execute(
                "SELECT sub_topology, status FROM status WHERE application = ? ORDER BY sub_topology",
                (self.application,),
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
            raise FencedError(
                f"application {self.application!r}: this driver's epoch is {epoch}, the current one is {current}; "
                "nothing was changed",
                "another driver took over; look at `headrace status`",
            )

    def _check_version(self, db: sqlite3.Connection, commit: RoundCommit) -> None:
        (current,) = db.execute(
            "SELECT max(version) FROM job_models WHERE application = ?", (self.application,)
        ).fetchone()
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
        rows = [
            (
                self.application,
                str(checkpoint.task),
                checkpoint.round_id.epoch,
                checkpoint.round_id.sub_topology,
                checkpoint.round_id.number,
                encode_checkpoint(checkpoint).decode(),
            )
            for checkpoint in checkpoints
        ]
        db.executemany(_PUT_CHECKPOINT, rows)


def _check_state_files(paths: Sequence[str]) -> None:
    for path in paths:
        if not os.path.isabs(path):
            raise StorageError(f"state file {path!r}: expected an absolute path; nothing was committed")
        try:
            os.stat(path)
        except OSError as error:
            raise StorageError(
                f"state file {path} is missing: {error.strerror}; nothing was committed", "run the round again"
            ) from error


def _holder(text: str | None, heartbeat_us: int) -> Holder | None:
    if text is None:
        return None
    try:
        holder = msgspec.json.decode(text, type=Holder)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StorageError(f"the stored holder of a job cannot be read: {error}") from error
    return replace(holder, heartbeat_us=heartbeat_us)


def _held(application: str, holder: Holder, since_us: int, now_us: int) -> JobHeldError:
    silent_s = max(0, now_us - holder.heartbeat_us) / 1_000_000
    since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=since_us)
    return JobHeldError(
        f"application {application!r} is run by process {holder.pid} on host {holder.host} "
        f"since {since:%Y-%m-%d %H:%M:%S} UTC; last heard of {silent_s:.1f} s ago",
        f"stop that one first; if it is dead, this works once it was silent for {HEARTBEAT_STALE_US // 1_000_000} s",
    )
