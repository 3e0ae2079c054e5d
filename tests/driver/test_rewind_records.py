"""What is on record of going back across repartition streams: read from the namespaces in which it stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.codec.documents import Flows, encode
from headrace.codec.job_records import FLOWS, REWINDS, STATE_CUTS, cuts_of, rewinds_of, stored_flows
from headrace.core.rewind.consistent_cuts import ConsistentCut, SubTopologyEdges
from headrace.core.rewind.rewinds import Rewind
from headrace.errors import StorageError
from headrace.model.checkpoint import RoundId
from headrace.model.commits import DriverLease
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

TASK, PLACE = TaskName.parse("Partition_0"), SSP("log", "a", 0)
ROUNDS = {TASK: RoundId(1, None, 3)}


class Books:
    """An application's metadata: written as the driver does, read as anybody does."""

    def __init__(self, system: Any) -> None:
        self._store = system.job_store("kept")
        self._epoch = self._store.acquire(DriverLease("run-1", "another-host", 17, "1@1", "boot", 0), 0)
        self.metadata = system.metadata_store("kept")

    def write(self, namespace: str, values: dict[str, bytes]) -> None:
        self._store.write_metadata(self._epoch, namespace, values)


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    with hr.open_system(f"log:{tmp_path / 'log'}") as system:
        yield Books(system)


def test_an_application_that_never_ran_has_none(tmp_path: Path) -> None:
    with hr.open_system(f"log:{tmp_path / 'log'}") as system:
        metadata = system.metadata_store("kept")
        assert (cuts_of(metadata), rewinds_of(metadata), stored_flows(metadata)) == ((), (), None)


def test_cuts_come_oldest_first_whatever_their_sub_topology(books: Books) -> None:
    cuts = [
        ConsistentCut(None, 5, ROUNDS, {PLACE: 7}),
        ConsistentCut("a", 40, {}, {}),
        ConsistentCut(None, 300, ROUNDS, {PLACE: 7}),
    ]
    books.write(STATE_CUTS, {cut.key: encode(cut) for cut in reversed(cuts)})
    assert cuts_of(books.metadata) == tuple(cuts)


def test_rewinds_come_in_the_order_in_which_they_were_taken_up(books: Books) -> None:
    rewinds = [Rewind(40, ROUNDS, {PLACE: (7, 9)}), Rewind(300, {}, {})]
    books.write(REWINDS, {one.key: encode(one) for one in reversed(rewinds)})
    assert rewinds_of(books.metadata) == tuple(rewinds)


def test_flows_come_as_they_were_stored(books: Books) -> None:
    flows = (SubTopologyEdges("z", ("in",), ("a", "b"), False), SubTopologyEdges("a", ("a", "b"), (), True))
    books.write(FLOWS, {FLOWS: encode(Flows(flows))})
    assert stored_flows(books.metadata) == flows


def test_what_cannot_be_read_is_named(books: Books) -> None:
    for namespace in (STATE_CUTS, REWINDS, FLOWS):
        books.write(namespace, {FLOWS: b"{"})
    with pytest.raises(StorageError, match="stored cut 'flows': cannot be read"):
        cuts_of(books.metadata)
    with pytest.raises(StorageError, match="stored rewind 'flows': cannot be read"):
        rewinds_of(books.metadata)
    with pytest.raises(StorageError, match="stored flows of the job: cannot be read"):
        stored_flows(books.metadata)
