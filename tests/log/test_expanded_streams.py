"""A stream of the embedded log grows while others write: what was begun for the old count is committed all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.adapters.common.lease_holder import this_process
from headrace.adapters.log.chunks import terms_of
from headrace.adapters.log.data_files import ChunkWriter
from headrace.adapters.log.file_names import parts_of_round
from headrace.adapters.log.stream_tables import PARTITIONS_MAX
from headrace.adapters.log.system import LogSystem, open_system
from headrace.codec.record_batches import HEADERS_TYPE, RECORD_SCHEMA
from headrace.core.keys.hashing import partition_of
from headrace.errors import ConfigError, StorageError
from headrace.model.checkpoint import RoundId
from headrace.model.commits import ContainerCommit, RoundCommit

Start = Callable[..., Any]  # see `start` in conftest.py

BETWEEN = 10  # calls of each producer from one expansion to the next
PRODUCER = """
import sys, threading
from headrace.adapters.log.system import open_system
folder, producer = sys.argv[1:]
keys = [f"{producer}-{number}".encode() for number in range(5)]
told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
call, last = 0, None
with open_system(f"log:{folder}") as system:
    while last is None or call <= last:
        system.produce("s", [(key, b"%d" % call) for key in keys])
        print(call, flush=True)
        if told.is_set() and last is None:
            last = call + 3  # by the newest count in any case: it was told behind the last expansion
        call += 1
"""


def round_for(root: Path, round_id: RoundId, partition: int) -> RoundCommit:
    """What a round commits that wrote one record to this partition of `out`."""
    writer = ChunkWriter(root, parts_of_round("app", round_id))
    columns = [pa.nulls(1, pa.binary()), pa.array([b"v"]), pa.array([0]), pa.nulls(1, HEADERS_TYPE)]
    writer.write("out", partition, pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA))
    return RoundCommit(round_id, (ContainerCommit(0, (), terms_of(writer.close())),))


def test_a_round_that_was_planned_for_the_old_count_commits(system: LogSystem) -> None:
    system.create_stream("out", 2)
    store = system.job_store("app")
    epoch = store.acquire(this_process("mine", 0), 0)
    old, new = (round_for(system.root, RoundId(epoch, None, number), partition) for number, partition in ((1, 1), (2, 3)))
    with pytest.raises(StorageError, match="partition 3, which does not exist"):
        store.commit_round(new)
    with open_system(f"log:{system.root}") as other:
        other.expand_stream("out", 4)
    store.commit_round(old)
    store.commit_round(new)
    assert system.end_offsets("out") == {0: 0, 1: 1, 2: 0, 3: 1}


def test_processes_go_on_writing_while_a_stream_grows(system: LogSystem, folder: Path, start: Start) -> None:
    """Each key in its partition by one of the counts, and, from the oldest partition to the youngest, in order."""
    counts = (2, 4, 16)
    system.create_stream("s", counts[0])
    producers = [start(PRODUCER, folder, f"p{number}") for number in range(2)]
    for count in counts[1:]:
        for producer in producers:
            for _ in range(BETWEEN):
                producer.stdout.readline()
        system.expand_stream("s", count)
    calls = [1 + int(producer.communicate("end\n", timeout=60)[0].splitlines()[-1]) for producer in producers]
    assert [producer.returncode for producer in producers] == [0, 0]
    values: dict[bytes, list[int]] = {}
    for record in system.consume("s"):
        key = record.key
        assert record.partition in {partition_of(key, count) for count in counts}
        values.setdefault(key, []).append(int(record.value))
    assert set(values) == {b"p%d-%d" % (producer, number) for producer in range(2) for number in range(5)}
    for producer, count in enumerate(calls):
        assert count > 2 * BETWEEN
        assert all(values[b"p%d-%d" % (producer, number)] == list(range(count)) for number in range(5))
    lasts = {record.key: record.partition for record in system.consume("s") if int(record.value) == len(values[record.key]) - 1}
    assert lasts == {key: partition_of(key, counts[-1]) for key in values}


def test_no_stream_gets_more_partitions_than_one_may_have(system: LogSystem) -> None:
    created = system.create_stream("s", 4)
    with pytest.raises(ConfigError, match="at most 100,000"):
        system.expand_stream("s", PARTITIONS_MAX + 1)
    assert system.describe_stream("s") == created
