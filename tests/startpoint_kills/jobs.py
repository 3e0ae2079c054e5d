"""Jobs that say of each record where it was, or count them."""

from __future__ import annotations

from typing import Any

import headrace as hr

OFTEN = {"max_records_per_round": 60, "partition_check_interval_s": 0.1}


def place_of(record: Any) -> Any:
    return {"partition": record.partition, "offset": record.offset}


def located(run: Any) -> hr.App:
    app = run.app(**OFTEN)
    records = app.stream(run.source, key=hr.Bytes(), value=hr.Bytes())
    records.map_values(place_of, value=hr.Json()).to(f"{run.name}-passed")
    return app


def counted(run: Any) -> hr.App:
    """Each update of a count of each key."""
    app = run.app(**OFTEN)
    counts = app.stream(run.source, key=hr.Bytes(), value=hr.Bytes()).group_by_key().count(store="n")
    counts.to_stream(emit="each").to(f"{run.name}-passed")
    return app
