"""Positions as a group keeps them, each with a note of the round that committed it; and checkpoints as positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import xxhash
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.adapters.kafka.clients import ANSWER_S, consumer_of, error_text, retried_in_pieces
from headrace.adapters.kafka.deadline import Deadline
from headrace.adapters.kafka.names import coordinator_group, group_of, metadata_topic
from headrace.core.group.grants import Grants, InForce, numbers_in_force
from headrace.errors import NotSupportedError, RoundFailedError, UnavailableError
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel
from headrace.model.streams import SSP

POSITION_METADATA_BYTES_MAX = 4096  # a broker's default offset.metadata.max.bytes
# A group's coordinator is being made (the first group of a new broker), or moves: only of reading is this no doubt.
_MOVING = frozenset(
    {
        KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError._TIMED_OUT,  # of one piece of the wait
    }
)  # fmt: skip


class PositionsUnreadError(RoundFailedError):
    """The positions of a group could not be read in time: no broker answers, or an open transaction holds them back."""


@contextmanager
def waited_for() -> Iterator[None]:
    """For a driver, or a processor of a group, which waits for a broker: `UnavailableError` where positions are unread. To a
    worker that is a round which has failed."""
    try:
        yield
    except PositionsUnreadError as error:
        raise UnavailableError(error.message, error.hint) from None


class PositionNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metadata of a position in the group: which round committed it, under which plan, with which state."""

    r: str  # round id; where tasks of one container are of several rounds, a digest of these
    v: int  # job model version
    h: str = ""  # version and checksum of the state's head; of several tasks a digest
    s: tuple[str, ...] = ()  # ids of startpoints that it spent


_NOTE = msgspec.json.Decoder(PositionNote)
_GRANTS = msgspec.json.Decoder(list[int])


def encode_note(note: PositionNote) -> str:
    text = msgspec.json.encode(note).decode()
    if len(text) > POSITION_METADATA_BYTES_MAX:
        raise RoundFailedError(
            f"the metadata of a position takes {len(text)} bytes, more than the {POSITION_METADATA_BYTES_MAX} that a "
            "broker keeps",
            "delete startpoints that are not needed any more",
        )
    return text


def decode_note(text: str | None) -> PositionNote | None:
    """None for a position that somebody else wrote."""
    try:
        return _NOTE.decode(text or "")
    except msgspec.DecodeError:
        return None


@dataclass(frozen=True, slots=True)
class Position:
    """One position of a group: `group`, topic and partition, the offset, and its note."""

    group: str
    topic: str
    partition: int
    offset: int
    note: PositionNote


def by_group(positions: Iterable[Position]) -> dict[str, list[Position]]:
    found: dict[str, list[Position]] = {}
    for position in positions:
        found.setdefault(position.group, []).append(position)
    return found


def offsets_by_group(positions: Iterable[Position]) -> dict[str, list[TopicPartition]]:
    """Per group what the client writes."""
    return {
        group: [TopicPartition(p.topic, p.partition, p.offset, metadata=encode_note(p.note)) for p in found]
        for group, found in by_group(positions).items()
    }


def committed_positions(
    client: Mapping[str, Any],
    group: str,
    partitions: Sequence[tuple[str, int]],
    deadline: Deadline | None = None,
    within_s: float = ANSWER_S,
) -> dict[tuple[str, int], tuple[int, PositionNote | None]]:
    """(topic, partition) to (offset, note) of the positions that a group has; without those that it has not. Waits while a
    transaction holds them back, `PositionsUnreadError` after `within_s`."""
    found = _committed(client, group, partitions, deadline, within_s)
    return {(one.topic, one.partition): (one.offset, decode_note(one.metadata)) for one in found if one.offset >= 0}


def _committed(
    client: Mapping[str, Any], group: str, partitions: Sequence[tuple[str, int]], deadline: Deadline | None, within_s: float
) -> list[TopicPartition]:
    consumer = consumer_of(client, group)
    wanted = [TopicPartition(topic, partition) for topic, partition in partitions]
    try:
        found: list[TopicPartition] = retried_in_pieces(
            lambda piece_s: consumer.committed(wanted, timeout=piece_s), within_s, deadline or Deadline(), _MOVING
        )
    except KafkaException as error:
        raise PositionsUnreadError(
            f"the positions of group {group!r} cannot be read: {error_text(error)}",
            "is the broker up, and may this user read that group? (a missing right shows as a timeout here)",
        ) from None
    return found


def encode_grants(grants: Grants | None) -> str:
    """The metadata of the epoch's position: the numbers of the grants in force; empty where there is one driver.
    `NotSupportedError` where a broker would not keep them."""
    text = "" if grants is None else msgspec.json.encode(sorted(numbers_in_force(grants))).decode()
    if len(text) > POSITION_METADATA_BYTES_MAX:
        raise NotSupportedError(
            f"a group of {len(grants or ()):,} processors: their grants take {len(text):,} bytes, and a broker keeps "
            f"{POSITION_METADATA_BYTES_MAX:,}",
            "run fewer processors, each with more slots",
        )
    return text


def committed_in_force(client: Mapping[str, Any], application: str, deadline: Deadline | None = None) -> InForce:
    """Who may commit, as the position of the coordinator's group says, which workers read; epoch 0 where there is none."""
    group, place = coordinator_group(application), (metadata_topic(application), 0)
    for one in _committed(client, group, [place], deadline, ANSWER_S):
        if one.offset >= 0:
            text = one.metadata or ""
            return InForce(one.offset, frozenset(_GRANTS.decode(text)) if text.startswith("[") else None)
    return InForce(0)


def shared_ssps(model: JobModel, sub_topology: str | None) -> set[tuple[str, int]]:
    """(stream, partition) of what several containers of a sub-topology read: each has a position of its own there."""
    containers = model.sub_topology(sub_topology).containers
    readers = Counter(ssp for container in containers for ssp in {ssp for task in container.tasks for ssp in task.partitions})
    return {(ssp.stream, ssp.partition) for ssp, count in readers.items() if count > 1}


def positions_of(application: str, model: JobModel, checkpoints: Iterable[Checkpoint]) -> list[Position]:
    """Checkpoints as positions of the application's groups."""
    by_task = {checkpoint.task: checkpoint for checkpoint in checkpoints}
    found: list[Position] = []
    for sub in model.sub_topologies:
        shared = shared_ssps(model, sub.name)
        for container in sub.containers:
            mine = [by_task[task.name] for task in container.tasks if task.name in by_task]
            found += container_positions(application, sub.title, container.lane, mine, shared)
    return found


def container_positions(
    application: str, title: str, lane: int, checkpoints: Iterable[Checkpoint], shared: Collection[tuple[str, int]]
) -> list[Position]:
    """The checkpoints of one container's tasks as positions of its groups (protocol.md 10). Those tasks commit together, and
    have one position in each partition: the lowest of theirs. So groups and positions do not multiply with the tasks."""
    readers: dict[SSP, list[Checkpoint]] = {}
    for checkpoint in checkpoints:
        for ssp in checkpoint.positions:
            readers.setdefault(ssp, []).append(checkpoint)
    return [
        Position(
            group_of(application, title, lane if (ssp.stream, ssp.partition) in shared else None),
            ssp.stream,
            ssp.partition,
            min(one.positions[ssp] for one in readers[ssp]),
            _note_of(readers[ssp], ssp),
        )
        for ssp in sorted(readers)
    ]


def _note_of(readers: Sequence[Checkpoint], ssp: SSP) -> PositionNote:
    """Of several tasks their round, where it is one, else a digest; and a digest of their states."""
    rounds = sorted({str(one.round_id) for one in readers})
    spent = {one.spent_startpoints[ssp] for one in readers if ssp in one.spent_startpoints}
    return PositionNote(
        rounds[0] if len(rounds) == 1 else _digest_of(f"{one.task} {one.round_id}" for one in readers),
        readers[0].job_model_version,
        _state_of(readers[0]) if len(readers) == 1 else _digest_of(map(_state_of, readers)),
        tuple(sorted(spent)),
    )


def _digest_of(texts: Iterable[str]) -> str:
    return xxhash.xxh3_64_hexdigest("+".join(sorted(texts)).encode())


def _state_of(checkpoint: Checkpoint) -> str:
    head = checkpoint.head
    return "" if head is None else f"{head.version}-{head.files[-1].checksum}"


def committable(system: Any, model: JobModel, positions: Sequence[Position]) -> list[Position]:
    """Without those of partitions that a stream has lost which was recreated while the job runs: no broker takes them. What
    reads that stream has stopped; the checkpoints keep what it had read."""
    topics = {one.topic for one in positions}
    counts = system.partition_counts(topics) if topics else {}
    short = {one.topic for one in positions if one.partition >= counts.get(one.topic, one.partition + 1)}
    recreated = {topic for topic in short if system.describe_stream(topic).id != model.stream_ids.get(topic)}
    return [one for one in positions if one.topic not in recreated or one.partition < counts[one.topic]]
