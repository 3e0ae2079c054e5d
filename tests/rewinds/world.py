"""An application that goes back as a whole, on either system: producers that never rest, rewinds, runs, the verdict."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.model.startpoint import PositionType, StartpointEntry, StartpointStatus, StatePolicy
from headrace.model.streams import SSP
from rewinds.jobs import OUTPUT_PARTITIONS, SETTINGS, SHAPES, STORES
from rewinds.judge import Held, counted, held, last_written, same, stores_of, times_back
from startpoints.world import PassingWorld
from support.checker import Row
from support.children import Children
from support.log_states import state_of
from support.world import Place, waited

PARTITIONS = 2
KEYS, GROUPS, OTHERS = 6, 7, 5
TURN_S = 0.05
EVEN, UNEVEN = (3, 3), (1, 8)  # records for each partition, each turn
EARLIEST, LATEST = PositionType.EARLIEST, PositionType.LATEST
OFFSET, TIME = PositionType.SPECIFIC_OFFSET, PositionType.TIMESTAMP


class RewindWorld(PassingWorld):
    """`shape`: one of `jobs`. `speeds`: how many records come to each partition of the input at each turn."""

    def __init__(
        self, folder: Path, place: Place, children: Children, shape: str = "stateful", speeds: tuple[int, ...] = EVEN
    ) -> None:
        super().__init__(folder, place, children, f"rewinds.jobs:{shape}_run")
        self.shape, self.speeds = shape, speeds
        self._sent = 0
        self._reached: dict[tuple[str, int], int] = {}
        self._sending = threading.Lock()

    def prepare(self, turns: int = 10) -> None:
        """Its streams, with some records."""
        self.system.create_stream(self.input, PARTITIONS)
        for part in STORES:
            self.system.create_stream(f"{self.name}-{part}", OUTPUT_PARTITIONS)
        self.write(turns)

    def job(self, **keys: Any) -> hr.App:
        return SHAPES[self.shape](self.app(**{**SETTINGS, **keys}))

    # --- what is written and asked for ------------------------------------------------------------------------------

    def write(self, turns: int = 1, system: Any = None) -> None:
        records = []
        with self._sending:
            for _ in range(turns):
                for partition, count in enumerate(self.speeds):
                    for _ in range(count):
                        self._sent += 1
                        records.append(self._record(self._sent, partition))
        (system or self.system).produce(self.input, records)

    def _record(self, number: int, partition: int) -> hr.Record:
        value = {"id": number, "group": f"g{number % GROUPS}", "other": f"o{number % OTHERS}"}
        return hr.Record(f"p{partition}k{number % KEYS}".encode(), json.dumps(value).encode(), partition=partition)

    def writing(self) -> AbstractContextManager[None]:
        """While the context lasts, records come all the time."""
        return self.producing(lambda system: self.write(1, system), TURN_S)

    def rewinds_to(
        self, kind: PositionType, *partitions: int, share: float = 0.5, state: StatePolicy = StatePolicy.REWIND,
        stream: str | None = None,
    ) -> list[StartpointEntry]:
        """Startpoints of each of the partitions (none given: all), to a record so far on in what the job has ever read."""
        name, found = stream or self.input, []
        for partition in partitions or self.ends(name):
            position, reached = None, self._reached_now(name, partition)
            if kind in (OFFSET, TIME):
                read = [row for row in self.rows_of(name) if row["partition"] == partition and row["offset"] < reached]
                position = read[int(share * (len(read) - 1))]["offset" if kind is OFFSET else "timestamp_us"]
            found.append(replace(self.entry(kind, partition, position, stream=name), state=state))
        return found

    def _reached_now(self, stream: str, partition: int) -> int:
        """How far the job has come at any time that this was asked: what is further on it would skip."""
        place = str(SSP(self.system.name, stream, partition))
        positions = [one["positions"][place] for one in self.checkpoints().values() if place in one["positions"]]
        self._reached[stream, partition] = max([*positions, self._reached.get((stream, partition), 0)])
        return self._reached[stream, partition]

    def rewind(self, kind: PositionType, *partitions: int, **options: Any) -> list[str]:
        """Ask for them, in one request; their ids."""
        return self.ask(*self.rewinds_to(kind, *partitions, **options))

    def is_done_with(self, ids: list[str]) -> bool:
        """Whether a driver has taken these up, and none is to be spent yet."""
        return all(self.status(id_) not in (None, StartpointStatus.PENDING) for id_ in ids)

    def wait_for(self, job: Any, *ids: str) -> None:
        waited(lambda: self.is_done_with(list(ids)), job)

    # --- the verdict ------------------------------------------------------------------------------------------------

    def state(self) -> Held:
        """What each store holds, by the files that the checkpoints name."""
        checkpoints = self.checkpoints()
        return held(lambda store: state_of(checkpoints, self.folder / "state", store), stores_of(self.shape))

    def out(self, part: str) -> list[Row]:
        return self.rows(part)

    def judge(self) -> int:
        """All that was written counts once, in every store and in what was written last; how many keys were compared."""
        stores = stores_of(self.shape)
        expected = counted(self.rows_of(self.input), stores)
        try:
            compared = same(expected, self.state()) + same(expected, last_written(self.out, stores))
        except AssertionError as error:
            error.add_note(self.history())
            raise
        assert compared, "nothing was compared"
        return compared

    def history(self) -> str:
        """What was asked for, in the order in which it was taken up, and what it came to; and the rewinds on record."""
        found = sorted(self.records().values(), key=lambda record: record.applied_at_us)
        lines = [
            f"{record.applied_at_us}: {record.entry.id} {record.entry.state} {record.entry.startpoint} {record.status}: "
            + ", ".join(f"{one.task} {one.ssp} {one.before}->{one.offset}" for one in record.resolutions)
            for record in found
        ]
        metadata = self.system.metadata_store(self.name)
        return "\n".join([*lines, *(f"rewind {data.decode()}" for data in metadata.all("rewinds").values())])

    def times_back(self) -> dict[str, int]:
        """How often a count went back, per store."""
        return {store: times_back(self.out(store), store) for store in stores_of(self.shape)}

    def assert_went_back(self, before: Mapping[str, int]) -> None:
        """Counts of every store have gone back since they had so often before."""
        after = self.times_back()
        assert all(after[store] > before.get(store, 0) for store in after), (
            f"not all went back: {before or 'never'}, then {after}\n{self.history()}"
        )

    def catch_up(self, **keys: Any) -> None:
        """A run to the end of what there is, and the verdict."""
        self.run(self.job(**keys))
        self.judge()
