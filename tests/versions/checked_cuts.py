"""What the tests of cuts share: a job over two repartition streams, and a checker that reads what is on record, and the
streams, without anything of what wrote them: its own reading of the JSON, its own idea of what a cut is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import headrace as hr

FIRST, SECOND = "{}-first-repartition", "{}-second-repartition"


def application(name: str, source: str, **settings: Any) -> hr.App:
    """Passes what comes in through two streams, keyed by its first letter and its second, and counts behind them. The two
    sub-topologies before the last have no state. Values are to be different ones."""
    app = hr.App(name, **settings)
    rows = app.stream(source, key=hr.String(), value=hr.String())
    rows = rows.select_key(lambda r: r.value[0], key=hr.String()).repartition(name="first")
    rows = rows.select_key(lambda r: r.value[1], key=hr.String()).repartition(name="second")
    rows.group_by_key().count(store="counts")
    return app


def value_of(number: int) -> str:
    """One that no other record has."""
    return f"{'abcdefgh'[number % 8]}{'stuvwxyz'[number // 8 % 8]}{number}"


@dataclass(frozen=True)
class SeenCut:
    """A cut as it is on record. Positions and ends: stream and partition to offset."""

    sub_topology: str | None
    kept_us: int
    positions: dict[tuple[str, int], int]
    ends: dict[tuple[str, int], int]


def cuts_on_record(system: Any, name: str, of: str | None = "all") -> list[SeenCut]:
    """Of one sub-topology, or of all, oldest first. A cut that names a version which is not there is a KeyError."""
    metadata = system.metadata_store(name)
    cuts = [json.loads(data) for data in metadata.all("state-cuts").values()]
    versions = {key: json.loads(data)["checkpoint"] for key, data in metadata.all("state-versions").items()}
    found = []
    for cut in sorted(cuts, key=lambda cut: cut["kept_us"]):
        keys = [f"{task}/{one['epoch']}-{one['number']}" for task, one in cut["rounds"].items()]
        positions = [item for key in keys for item in versions[key]["positions"].items()]
        read = {(ssp.partition(".")[2].rpartition(".")[0], int(ssp.rpartition(".")[2])): at for ssp, at in positions}
        ends = {(stream, partition): end for (_, stream, partition), end in cut["written"]}
        found.append(SeenCut(cut["sub_topology"], cut["kept_us"], read, ends))
    return [cut for cut in found if of in ("all", cut.sub_topology)]


def named_versions(system: Any, name: str) -> set[str]:
    """The keys of the versions that cuts on record are of."""
    cuts = [json.loads(data) for data in system.metadata_store(name).all("state-cuts").values()]
    return {f"{task}/{one['epoch']}-{one['number']}" for cut in cuts for task, one in cut["rounds"].items()}


class Checker:
    """Remembers all records of the streams, so that it knows those that were purged since."""

    def __init__(self, system: Any) -> None:
        self._system = system
        self._seen: dict[tuple[str, int, int], str] = {}  # stream, partition, offset to the value

    def look(self, *streams: str) -> None:
        for stream in streams:
            for record in self._system.consume(stream, key=hr.String(), value=hr.String()):
                self._seen[stream, record.partition, record.offset] = record.value

    def judge(self, cut: SeenCut) -> None:
        """What was read by the cut, and no other, is written before it, each once; all the rest is written behind it."""
        self.look(*{stream for stream, _ in [*cut.positions, *cut.ends]})
        read, written, later = [], [], []
        for (stream, partition, offset), value in self._seen.items():
            if (stream, partition) in cut.positions and offset < cut.positions[stream, partition]:
                read.append(value)
            if (stream, partition) in cut.ends:
                (written if offset < cut.ends[stream, partition] else later).append(value)
        assert sorted(read) == sorted(written), f"{cut}: what is written before is not what was read"
        assert not set(read) & set(later), f"{cut}: something is written behind it"
