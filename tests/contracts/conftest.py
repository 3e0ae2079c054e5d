"""The contract suites run against every implementation of a port: add one to `KINDS` and all of them hold it.

Where systems differ in what a port leaves open, a `Kind` says how; the suites promise nothing that depends on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from headrace.adapters.kafka.container_transaction import Lane, LaneTransaction, Verdict
from headrace.adapters.kafka.names import checkpoint_topic
from headrace.adapters.kafka.positions import container_positions
from headrace.adapters.kafka.system import open_system as open_kafka
from headrace.adapters.log.system import open_system
from headrace.codec.documents import encode
from headrace.errors import FencedError, HeadraceError, RoundFailedError
from headrace.model.checkpoint import Checkpoint
from headrace.model.commits import RoundCommit
from headrace.model.tasks import TaskName

Bases = Mapping[TaskName, Checkpoint]


@dataclass(frozen=True)
class Kind:
    """One system. `commit`: commit a round that builds on these checkpoints, as driver and containers do together;
    `refused` is what it raises where the round does not fit any more. `has_holes`: offsets that no record has.
    `time_us` and `tick_us`: timestamps that are kept whole are `time_us` plus a multiple of `tick_us`."""

    opened: Callable[[pytest.FixtureRequest, Path], AbstractContextManager[Any]]
    commit: Callable[[Any, RoundCommit, Bases], None]
    refused: type[HeadraceError]
    has_holes: bool
    time_us: int
    tick_us: int


@contextmanager
def _log(request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
    with open_system(f"log:{folder / 'log'}") as opened:
        yield opened


def _commit_on_log(store: Any, commit: RoundCommit, bases: Bases) -> None:
    """The driver does it all."""
    store.commit_round(replace(commit, bases={task: base.round_id for task, base in bases.items()}))


@contextmanager
def _kafka(request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
    """The session's one broker, with no topics left from the test before."""
    broker = request.getfixturevalue("kafka_server")
    with open_kafka(f"kafka://{broker.bootstrap}") as opened:
        _delete_all_topics(broker)
        yield opened


def _delete_all_topics(broker: Any) -> None:
    admin = AdminClient(broker.client_settings())
    names = [name for name in admin.list_topics(timeout=10).topics if not name.startswith("__")]
    for future in (admin.delete_topics(names, operation_timeout=20) if names else {}).values():
        future.result()
    deadline_s = time.monotonic() + 30
    while names and any(name in admin.list_topics(timeout=10).topics for name in names):
        assert time.monotonic() < deadline_s, f"{names} are still there"
        time.sleep(0.01)


def _commit_on_kafka(store: Any, commit: RoundCommit, bases: Bases) -> None:
    """Each container commits for itself, as its worker does; then the driver hears of it."""
    answers = []
    for container in commit.containers:
        terms = store.container_terms(commit.round_id, container.lane)
        lane = Lane(
            store.application,
            commit.round_id.sub_topology or "source",
            container.lane,
            commit.round_id.epoch,
            str(commit.round_id),
            terms["client"],
            terms["timeout_ms"],
            terms["producer_of"],
        )
        shared = {tuple(place) for place in terms["shared"]}
        made = container.checkpoints
        transaction = LaneTransaction(lane)
        place = store.application, commit.round_id.sub_topology or "source", container.lane
        base = container_positions(*place, [bases[checkpoint.task] for checkpoint in made], shared)
        assert transaction.check(base) is Verdict.WORK
        transaction.begin()
        transaction.commit(
            container_positions(*place, made, shared),
            [(str(checkpoint.task).encode(), encode(checkpoint)) for checkpoint in made],
            checkpoint_topic(store.application),
        )
        answers.append(replace(container, receipt=f"process of lane {container.lane}"))
    store.commit_round(replace(commit, containers=tuple(answers)))


_YESTERDAY_US = (time.time_ns() // 1_000_000_000 - 86_400) * 1_000_000  # a broker takes none of the future, and drops old ones
KINDS: dict[str, Kind] = {
    "kafka": Kind(_kafka, _commit_on_kafka, RoundFailedError, has_holes=True, time_us=_YESTERDAY_US, tick_us=1000),
    "log": Kind(_log, _commit_on_log, FencedError, has_holes=False, time_us=-7, tick_us=1),
}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def system(kind: Kind, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with kind.opened(request, tmp_path) as opened:
        yield opened


@pytest.fixture
def metadata_store(system: Any) -> Any:
    return system.metadata_store("delays")


@pytest.fixture
def job_store(system: Any) -> Any:
    return system.job_store("delays")


@pytest.fixture
def processor_store(system: Any) -> Any:
    return system.processor_store("delays")


@pytest.fixture
def flights(system: Any) -> None:
    """What the models of `contracts.plans` read: some systems keep positions of streams that exist only."""
    system.create_stream("flights", 3)
