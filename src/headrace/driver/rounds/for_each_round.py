"""The driver's side of `for_each_round`: it calls the users' functions with the rows of a round, before its containers run.

Which id and which rows is decided in `core.rounds.for_each_round`. They are stored first, then the functions are called: a
function that is given an id again, after a failure or in another process, is given the same rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from traceback import walk_tb
from typing import TYPE_CHECKING

import msgspec

from headrace.codec.documents import decode, encode
from headrace.codec.job_records import HANDOVERS
from headrace.core.rounds.for_each_round import Handover, HandoverRound, next_handover
from headrace.core.rounds.offset_ranges import OffsetRange, spark_tasks_of
from headrace.core.topology.program import Program
from headrace.core.topology.sub_topologies import SubTopology
from headrace.driver.planning.job_plan import Backend
from headrace.driver.rounds.task_positions import TaskPositions
from headrace.errors import PACKAGE_FOLDER, RoundFailedError, UnavailableError
from headrace.exchange.engine import ENGINE_LOST, ContainerWork, InputSlice
from headrace.exchange.messages import ContainerPlan, InputRange, encoded
from headrace.exchange.texts import message_of
from headrace.model.checkpoint import RoundId
from headrace.model.streams import SSP
from headrace.model.topology import ForEachRound, Source
from headrace.ports.metadata_store import MetadataStore

if TYPE_CHECKING:
    from headrace.driver.rounds.planned_round import PlannedRound

_NOT_OF_USERS = (PACKAGE_FOLDER, str(PurePath(os.__file__).parent))  # ours, and Python's library


class Handovers:
    """The functions of a sub-topology's `for_each_round`s, and what they were given last. They share an id."""

    def __init__(self, sub: SubTopology, program: Program, backend: Backend, epoch: int) -> None:
        self._sub, self._program = sub, program
        self._system, self._store, self._engine, self._epoch = backend.system, backend.store, backend.engine, epoch
        self._stored: Handover | None = None
        self._is_read = False

    def next(
        self,
        round_id: RoundId,
        task_positions: TaskPositions,
        ranges: Sequence[OffsetRange],
        resumes: Mapping[SSP, int],
        ends: Mapping[SSP, int],
    ) -> HandoverRound | None:
        """What a round hands over that would read `ranges`; `resumes`: positions that lie behind what is lost."""
        if not self._is_read:
            self._stored = stored_handover(self._system.metadata_store(self._program.application), self._sub)
            self._is_read = True
        committed = {checkpoint.round_id for checkpoint in task_positions.checkpoints.values()}
        planned = [piece for piece in ranges if piece.records]
        return next_handover(self._stored, round_id, planned, {**task_positions.positions(), **resumes}, ends, committed)

    def invalidate(self) -> None:
        """A round has failed, perhaps while it was recorded: the next plan reads what is stored."""
        self._is_read = False

    def hand_over(self, planned: PlannedRound) -> None:
        """Store what the round hands over, then call every function that has rows in it; raises what makes the round fail."""
        if planned.handover is None:
            return
        handover = planned.handover.handover
        if handover != self._stored:
            try:
                self._store.write_metadata(self._epoch, HANDOVERS, {self._sub.title: encode(handover)})
            except UnavailableError as error:  # it may be there or not: the round fails, and who tries again waits and reads
                raise RoundFailedError(f"the id of for_each_round could not be stored: {error.message}", error.hint) from error
            self._stored = handover
        nodes = [] if handover.is_done else self._nodes_reading({piece.ssp.stream for piece in handover.ranges})
        if not nodes:
            return
        title, endpoints = self._sub.title, [number for number, _ in nodes]
        frames = self._engine.frames(title, str(planned.id), planned.handed, self._program, endpoints)
        for (_, node), frame in zip(nodes, frames, strict=True):
            self._call(node, frame, handover.id)

    def _nodes_reading(self, streams: set[str]) -> list[tuple[int, ForEachRound]]:
        """The operators whose rows come from one of `streams`, each with the number of the endpoint that gives them."""
        found = []
        for number, endpoint in enumerate(self._program.endpoints):
            source = self._program.node(endpoint.source)
            if isinstance(source, Source) and source.stream in streams:
                children = map(self._program.node, endpoint.children)
                found += [(number, child) for child in children if isinstance(child, ForEachRound)]
        return found

    def _call(self, node: ForEachRound, frame: object, number: int) -> None:
        try:
            node.function(frame, number)
        except (Exception, SystemExit) as error:  # the user's function: anything may come
            failure = self._engine.failure_in(error)
            if failure is not None and (failure.cancelled or failure.error_class == ENGINE_LOST):
                raise failure from None
            said = f"{type(error).__name__}: {message_of(error)}" if failure is None else failure.message
            raised = RoundFailedError(
                f"for_each_round {node.name!r}, id {number}: {node.label} raised at {_user_line(error)}: {said}",
                "nothing of the round is committed; it is tried again with the same id and the same records",
            )
            # Of an error of Spark its line is enough: what hangs on it are Java's stacks.
            raise raised from error if failure is None else None


def stored_handover(store: MetadataStore, sub: SubTopology) -> Handover | None:
    """What the functions of a sub-topology were handed last; None where none is on record."""
    data = store.get(HANDOVERS, sub.title)
    return None if data is None else decode(Handover, data, f"id of for_each_round, {sub.title}")


def handed_works(
    plan: ContainerPlan, pieces: Sequence[OffsetRange], ranges: Sequence[InputRange], slots: int
) -> tuple[tuple[ContainerWork, ...], ...]:
    """Work that reads `pieces`, which are `ranges` in a plan: each once and whole, whichever tasks have it, and never
    cut short. A DataFrame that lacks rows would pass for the whole round.

    `plan` must be without signals, so that nothing stops the reading; and its known failures must be all of them: a Spark
    task of the user's may read several groups.
    """
    works = []
    for piece, given in zip(pieces, ranges, strict=True):
        inputs = InputSlice(given.ssp, piece.ssp.stream, piece.ssp.partition, piece.start, piece.end)
        payload = encoded(msgspec.structs.replace(plan, ranges=[given]))
        works.append(ContainerWork(plan.lane, payload, None, piece.records, (inputs,), by_engine=given.terms is None))
    groups = spark_tasks_of([(number, piece.records) for number, piece in enumerate(pieces)], slots)
    return tuple(tuple(works[number] for number in group) for group in groups)


def _user_line(error: BaseException) -> str:
    """The last line of the user's own code that led to `error`, as `file:line`."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    own = [(file, line) for file, line in frames if not file.startswith(_NOT_OF_USERS) and "-packages" not in file]
    return f"{PurePath(own[-1][0]).name}:{own[-1][1]}" if own else "a place unknown"
