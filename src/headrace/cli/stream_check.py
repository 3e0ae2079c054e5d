"""`headrace stream check`: whether the keys of a stream are where hash(key) mod n puts them, judged by its newest records.

Seed: SEP-5, "the hashed result must be mod by the partitionNum".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from headrace import wiring
from headrace.cli.output import EXIT_ERROR, print_json, say
from headrace.cli.streams import KeyOption, NameArgument
from headrace.cli.targets import JsonOption, SystemOption, looked_up, target_of, whole_number
from headrace.core.topology.patterns import is_read_by
from headrace.errors import StorageError, UnavailableError
from headrace.model.serde import Serde
from headrace.model.streams import StreamDescription
from headrace.serdes.serdes import serde_of_text

EXAMPLES = """\
headrace stream check flights flights.py
headrace stream check flights --key string --system kafka://localhost:9092"""
PAIRS_MAX = 8  # pairs of partitions that are warned of
TEXT_MAX = 60  # characters of a key that a message shows


def check(
    name: NameArgument,
    app: Annotated[str | None, typer.Argument(metavar="APP", help="FILE.py or FILE.py:name.")] = None,
    records: Annotated[
        int, typer.Option("--records", parser=whole_number(1), metavar="N", help="Newest records to read of each partition.")
    ] = 10_000,
    key: KeyOption = "bytes",
    system: SystemOption = None,
    json: JsonOption = False,
) -> None:
    """Check by the newest records that no key is in two partitions that hash(key) mod their number excludes.

    A stream that grew may have a key in partitions that are equal modulo the smallest number it had: of 4 that grew to 8 in
    1 and 5, never in 1 and 2. That number is on record with the applications that have read it. Keys are shown by APP's
    serde, or by --key. Exit code 1: such a key was found.
    """
    target, serde = None if app is None else target_of(app, None, system), serde_of_text(key)
    if target is not None and key == "bytes":
        sources = (source for source in target.app.topology().sources if is_read_by(source, name))
        serde = next((source.key for source in sources if source.key is not None), serde)
    opening = (
        looked_up(system)
        if target is None
        else wiring.open_configured(target.config, create=False, wait_s=wiring.LOOK_UP_WAIT_S)
    )
    with opening as opened:
        stream = opened.describe_stream(name)
        sample = KeySample(_smallest_count(opened, stream))
        beginnings, ends = opened.beginning_offsets(name), opened.end_offsets(name)
        starts = {number: max(beginnings.get(number, 0), end - records) for number, end in ends.items()}
        sample.add((r.key, r.partition) for r in opened.consume(name, None, None, sorted(starts), starts))
    _report(name, sample, serde, json)
    if sample.apart:
        raise typer.Exit(EXIT_ERROR)


@dataclass
class KeySample:
    """Keys, the first partition of each, and those that are also in one where they cannot be; records without a key may be
    anywhere. `count`: the smallest number of partitions that the stream had.

    >>> sample = KeySample(4)
    >>> sample.add([(b"a", 1), (b"a", 5), (b"b", 1), (b"b", 2), (None, 0)])
    >>> sample.records, sample.apart
    (5, {b'b': (1, 2)})
    """

    count: int
    records: int = 0
    first: dict[bytes, int] = field(default_factory=dict)
    apart: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    def add(self, keys: Iterable[tuple[bytes | None, Any]]) -> None:
        """Take records of a stream: the key and the partition of each."""
        for key, partition in keys:
            self.records += 1
            if key is None:
                continue
            there = self.first.setdefault(key, partition)
            if there % self.count != partition % self.count:
                self.apart.setdefault(key, (min(there, partition), max(there, partition)))


def _smallest_count(system: Any, stream: StreamDescription) -> int:
    """Of the numbers of partitions that applications have on record of a stream, and its present one."""
    from headrace.driver.planning.stored_assignment import SystemStreamPartitionAssignmentManager

    counts = [stream.partitions]
    for application in system.applications():
        try:
            stored = SystemStreamPartitionAssignmentManager(system.metadata_store(application))
            record = stored.read_partition_records().get(stream.name)
        except UnavailableError:
            raise
        except StorageError as error:
            say(f"warning: {error.message}: how many partitions it has on record is not known")
            continue
        counts += record.counts if record is not None and record.stream_id == stream.id else ()
    return min(counts)


def _report(name: str, sample: KeySample, serde: Serde, json: bool) -> None:
    warned = set[tuple[int, int]]()
    for key, pair in sample.apart.items():
        if pair not in warned and len(warned) < PAIRS_MAX:
            warned.add(pair)
            say(f"warning: {_warning(name, text_of(serde, key), pair, sample.count)}")
    if warned:
        say(
            f"note: {sample.count} is the smallest number of partitions that is on record. If {name!r} had fewer before an "
            "application first read it, these keys may be right"
        )
    if json:
        found = [{"key": text_of(serde, key), "partitions": list(pair)} for key, pair in sample.apart.items()]
        counts = {"records": sample.records, "keys": len(sample.first), "smallest_partition_count": sample.count}
        print_json({"stream": name, **counts, "keys_in_two_partitions": found})
    else:
        print(f"{name}: {len(sample.first):,} keys in {sample.records:,} records, {len(sample.apart):,} in two partitions")


def _warning(name: str, key: str, pair: tuple[int, int], count: int) -> str:
    return (
        f"stream {name!r}: key {key!r} is in partitions {pair[0]} and {pair[1]}; a producer that goes by "
        f"hash(key) mod the number of partitions ({count}, or a multiple of it) cannot have written it to both. Its records "
        f'have no order, and come to different tasks: declare the stream partitioning="other" where the application reads '
        "it, or let all its producers choose partitions by one hash of the key"
    )


def text_of(serde: Serde, key: bytes) -> str:
    """A key for people: decoded, else as text, else in hexadecimal digits; cut where it is long."""
    value: Any = key
    try:
        value = serde.decode(key)
    except Exception:  # a user's serde may raise anything
        value = key
    if isinstance(value, bytes):
        decoded = value.decode(errors="surrogateescape")
        value = decoded if decoded.isprintable() else f"0x{value.hex()}"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"
