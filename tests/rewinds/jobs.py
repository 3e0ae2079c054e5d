"""The jobs that go back as a whole: two repartition streams in a row, each with a store behind it.

    NAME-in -> count per key -> by group -> count and sum of ids per group -> by other -> the same per other

With the shape "stateless" there is no count per key: the sub-topology that reads the input has no state of its own. What a
record is worth is its id, and no two have the same: `judge` compares with plain sums over what the input holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import headrace as hr

VALUE = "id long, group string, other string"
STORES = ("keys", "groups", "others")  # NAME-keys and so on are their outputs
OUTPUT_PARTITIONS = 2
# Versions every fifth of a second: a test goes back to what was some moments ago. What is behind a repartition stream may have
# none left that is old enough for the newest cut before it: then an older one is taken, at last the very beginning.
SETTINGS: Mapping[str, Any] = {
    "keep_state_versions": 20,
    "keep_state_versions_s": 0,
    "state_version_interval_s": 0.2,
    "max_records_per_round": 60,
    "trigger_interval_ms": 20,
    "containers": 2,
}
OFTEN = {**SETTINGS, "partition_check_interval_s": 0.1}
TIDY_S = 0.1  # from one time that a job tidies up to the next


def group_of(record: Any) -> str:
    return str(record.value["group"])


def other_of(record: Any) -> str:
    return str(record.value["other"])


def stateful(app: hr.App) -> hr.App:
    records = _records(app)
    records.group_by_key().count(store="keys").to_stream().to(f"{app.name}-keys")
    return _behind(app, records)


def stateless(app: hr.App) -> hr.App:
    return _behind(app, _records(app))


def stateful_run(run: Any) -> hr.App:
    """The shape "stateful" in a process of its own."""
    return stateful(run.app(**OFTEN))


def stateless_run(run: Any) -> hr.App:
    return stateless(run.app(**OFTEN))


def _records(app: hr.App) -> Any:
    return app.stream(f"{app.name}-in", key=hr.String(), value=hr.Json(VALUE))


def _behind(app: hr.App, records: Any) -> hr.App:
    groups = records.select_key(group_of, key=hr.String())
    groups = groups.repartition(hr.Repartitioned(name="by-group", number_of_partitions=2))
    _summed(groups, "groups").to(f"{app.name}-groups", value=hr.Json())
    others = groups.select_key(other_of, key=hr.String())
    others = others.repartition(hr.Repartitioned(name="by-other", number_of_partitions=3))
    _summed(others, "others").to(f"{app.name}-others", value=hr.Json())
    return app


def _summed(records: Any, store: str) -> Any:
    return records.group_by_key().aggregate(n=hr.count(), ids=hr.sum("value.id"), store=store).to_stream()


SHAPES: Mapping[str, Callable[[hr.App], hr.App]] = {"stateful": stateful, "stateless": stateless}
