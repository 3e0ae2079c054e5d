"""The application of `test_closings.py`, run by `child.py`: final results of windows and sessions, and a `Processor` beside
the aggregate that does the same. No record is late: the grace is as long as its times go back and forth."""

from __future__ import annotations

from typing import Any

import headrace as hr

GAP_US, WINDOW_US, GRACE_US = 300_000, 2_000_000, 10_000_000  # sessions, windows, and how far back a record's time may go
VALUE = "id int, n int, g string"


class Summing(hr.Processor[str, dict, str, dict]):
    """What `aggregate(n=hr.count(), total=hr.sum("value.n"), last=hr.last("value.id"))` gives with every update."""

    stores = (hr.KeyValueStore("sums", value=hr.Json("n long, total long")),)

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: hr.Record) -> None:
        store = self.context.store("sums")
        before = store.get(default={"n": 0, "total": 0})
        after = {"n": before["n"] + 1, "total": before["total"] + record.value["n"]}
        store.put(after)
        self.context.forward(value={**after, "last": record.value["id"]})


def group_of(record: Any) -> str:
    return str(record.value["g"])


def closings(run: Any) -> hr.App:
    """All outputs are `PART-NAME`; `closed` and `over` are of the inputs' own keys, the others behind a repartition."""
    keys = {"max_records_per_round": 40, "trigger_interval_ms": 5, "containers": 2, **(run.keys or {})}
    app = hr.App(run.name, f"log:{run.log}", local_store_dir=run.stores, **keys)
    records = app.stream("in", key=hr.String(), value=hr.Json(VALUE))
    grace, gap, size = (f"{length} us" for length in (GRACE_US, GAP_US, WINDOW_US))
    by_key = records.group_by_key()
    by_window = by_key.windowed_by(hr.Tumbling(size, grace=grace))
    windows = by_window.aggregate(n=hr.count(), total=hr.sum("value.n"), store="windows")
    windows.to_stream(emit="closed").to(f"closed-{run.name}", value=hr.Json())
    sessions = by_key.windowed_by(hr.Session(gap, grace=grace)).count(store="sessions")
    sessions.to_stream(emit="closed").to(f"over-{run.name}")
    groups = records.repartition(group_of, hr.Repartitioned(name="by-g", key_serde=hr.String(), number_of_partitions=2))
    of_groups = groups.group_by_key().windowed_by(hr.Hopping(size, "1 second", grace=grace)).count(store="hopping")
    of_groups.suppress(hr.until_window_closes(), store="pending").to(f"suppressed-{run.name}")
    own = groups.process(Summing, name="own", value=hr.Json())
    own.to(f"own-{run.name}")
    named = {"n": hr.count(), "total": hr.sum("value.n"), "last": hr.last("value.id")}
    ours = groups.group_by_key().aggregate(store="ours", **named)
    ours.to_stream(emit="each").to(f"ours-{run.name}", value=hr.Json())
    return app
