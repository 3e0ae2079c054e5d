"""Final results of windows and sessions, and a `Processor` beside the aggregate that does the same: a part of the job that is
killed at every step. No record is late: the grace is as long as its times go back and forth."""

from __future__ import annotations

from typing import Any

import headrace as hr

GAP_US, WINDOW_US, GRACE_US = 300_000, 2_000_000, 10_000_000  # sessions, windows, and how far back a record's time may go


class Summing(hr.Processor[str, dict, str, dict]):
    """What `aggregate(n=hr.count(), total=hr.sum("value.n"), last=hr.last("value.id"))` gives with every update, at the highest
    time so far."""

    stores = (hr.KeyValueStore("sums", value=hr.Json("n long, total long")), hr.KeyValueStore("sums-time", value=hr.Long()))

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: hr.Record) -> None:
        store = self.context.store("sums")
        before = store.get(default={"n": 0, "total": 0})
        after = {"n": before["n"] + 1, "total": before["total"] + record.value["n"]}
        store.put(after)
        times = self.context.store("sums-time")
        highest_us = max(record.timestamp_us, times.get(default=record.timestamp_us))
        times.put(highest_us)
        self.context.forward(value={**after, "last": record.value["id"]}, timestamp=highest_us)


def group_of(record: Any) -> str:
    return str(record.value["g"])


def add_closings(app: hr.App, records: Any) -> None:
    """All outputs are `NAME-PART`; `closed` and `over` are of the inputs' own keys, the others behind a repartition."""
    grace, gap, size = (f"{length} us" for length in (GRACE_US, GAP_US, WINDOW_US))
    by_key = records.group_by_key()
    by_window = by_key.windowed_by(hr.Tumbling(size, grace=grace))
    windows = by_window.aggregate(n=hr.count(), total=hr.sum("value.n"), store="closing")
    windows.to_stream(emit="closed").to(f"{app.name}-closed", value=hr.Json())
    sessions = by_key.windowed_by(hr.Session(gap, grace=grace)).count(store="sessions")
    sessions.to_stream(emit="closed").to(f"{app.name}-over")
    groups = records.repartition(group_of, hr.Repartitioned(name="all-by-g", key_serde=hr.String(), number_of_partitions=2))
    of_groups = groups.group_by_key().windowed_by(hr.Hopping(size, "1 second", grace=grace)).count(store="hopping")
    of_groups.suppress(hr.until_window_closes(), store="pending").to(f"{app.name}-suppressed")
    own = groups.process(Summing, name="own", value=hr.Json())
    own.to(f"{app.name}-own")
    named = {"n": hr.count(), "total": hr.sum("value.n"), "last": hr.last("value.id")}
    ours = groups.group_by_key().aggregate(store="ours", **named)
    ours.to_stream(emit="each").to(f"{app.name}-ours", value=hr.Json())
