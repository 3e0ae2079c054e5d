"""The jobs that are killed and stopped while nothing else is pending: stateless, windows, repartition, `Processor`."""

from __future__ import annotations

import time
from typing import Any

import headrace as hr
from chaos.closing_job import add_closings
from headrace.core.keys import compaction


def doubled(record: Any) -> dict[str, Any]:
    return {"id": record.value["id"], "n": record.value["n"] * 2}


def is_wanted(record: Any) -> bool:
    return bool(record.value["n"] % 5)


def group_of(record: Any) -> str:
    return str(record.value["g"])


def usual(run: Any, spark: Any = None) -> hr.App:
    """Stateless map, windows per key, and a keyed count behind a repartition stream; many small rounds."""
    app = run.app(spark)
    _add_usual(app, _records(app, run), run.pause_s)
    return app


def folding_in_background(run: Any) -> hr.App:
    """What `usual` does; every fold of state files is made in the background, by a process of its own."""
    compaction.ROUND_BYTES_MAX, compaction.SNAPSHOT_BYTES_MIN = 0, 4_000
    return usual(run)


def everything(run: Any) -> hr.App:
    """What `usual` does, and final results of windows and sessions, and a `Processor` behind a second repartition stream."""
    app = run.app()
    records = _records(app, run)
    _add_usual(app, records, run.pause_s)
    add_closings(app, records)
    return app


def _records(app: hr.App, run: Any) -> Any:
    return app.stream(run.source, key=hr.String(), value=hr.Json("id int, n int, g string"))


def _add_usual(app: hr.App, records: Any, pause_s: float) -> None:
    def slowly_doubled(record: Any) -> dict[str, Any]:
        time.sleep(pause_s)
        return doubled(record)

    records.map_values(slowly_doubled if pause_s else doubled, value=hr.Json()).to(f"{app.name}-mapped")
    windows = records.group_by_key().windowed_by(hr.Tumbling("10 seconds"))
    totals = windows.aggregate(n=hr.count(), total=hr.sum("value.n"), store="windows")
    totals.to_stream().to(f"{app.name}-windows", value=hr.Json())
    groups = records.filter(is_wanted).select_key(group_of, key=hr.String())
    counts = groups.repartition(hr.Repartitioned(name="by-g", number_of_partitions=2)).group_by_key().count(store="counts")
    counts.to_stream().to(f"{app.name}-counts")
