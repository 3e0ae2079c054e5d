"""The jobs that are killed while their input grows, and what they should have made of it.

Each record carries its number among those of its key, so that what is lost, doubled or out of order can be told of every
one of them; what has state says in which task it was. `judge` compares with plain counts, by Kafka's or the log's own files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import headrace as hr
from kafka_expansion.checker import (
    as_written,
    counted,
    counted_by_window,
    counts_are,
    last_values,
    moved_keys,
    number_of_tasks,
    once_and_in_order,
    one_task_per_key,
    partitions_by_belief,
)
from kafka_expansion.producers import Ledger
from support.checker import KillReport, Row, key_of, long_of, state_equals, window_of
from support.log_states import stored_fields, stored_time_us

VALUE = "producer string, seq long, count int, sent_ms long"
WINDOW_MS = 2_000
GROUPS = 7
OFTEN = {"max_records_per_round": 60, "partition_check_interval_s": 0.1}
OUTPUTS = ("passed", "windows", "groups")  # made beforehand: what keys come to in an output that grows has no order
OUTPUT_PARTITIONS = 3


class Seen(hr.Processor[str, Any, str, Any]):
    """Counts a key's records, and passes each on with the count and the task that it was in."""

    stores: ClassVar = [hr.KeyValueStore("seen", value=hr.Long())]

    def process(self, record: Any) -> None:
        seen = self.context.store("seen")
        count = (seen.get() or 0) + 1
        seen.put(count)
        self.context.forward(value={"seq": record.value["seq"], "n": count, "task": str(self.context.task)})


def group_of(record: Any) -> str:
    return f"g{record.value['seq'] % GROUPS}"


def stateful(run: Any) -> hr.App:
    return add_stateful(run.app(**OFTEN), run.source)


def stateless(run: Any) -> hr.App:
    return add_stateless(run.app(**OFTEN), run.source)


def add_stateful(app: hr.App, source: str) -> hr.App:
    """A count by hand, a windowed one, and one behind a repartition stream of two partitions."""
    name = app.name
    records = app.stream(source, key=hr.String(), value=hr.Json(VALUE))
    records.process(Seen, value=hr.Json()).to(f"{name}-passed")
    windows = records.group_by_key().windowed_by(hr.Tumbling(f"{WINDOW_MS} milliseconds"))
    windows.aggregate(n=hr.count(), store="windows").to_stream().to(f"{name}-windows", value=hr.Json())
    groups = records.select_key(group_of, key=hr.String())
    groups = groups.repartition(hr.Repartitioned(name="by-group", number_of_partitions=2))
    groups.group_by_key().count(store="groups").to_stream().to(f"{name}-groups")
    return app


def passed_on(record: Any) -> Any:
    return {"seq": record.value["seq"]}


def add_stateless(app: hr.App, source: str) -> hr.App:
    """Every record as it came: with new partitions it gets new tasks."""
    records = app.stream(source, key=hr.String(), value=hr.Json(VALUE))
    records.map_values(passed_on, value=hr.Json()).to(f"{app.name}-passed")
    return app


BUILDS: Mapping[str, Callable[[hr.App, str], hr.App]] = {"stateful": add_stateful, "stateless": add_stateless}


def judge(
    rows: Callable[[str], list[Row]],
    ledger: Ledger,
    report: KillReport,
    state: Callable[[str], dict[tuple[bytes, bytes], bytes]] | None,
    tasks: int,
) -> None:
    """Judge all that a job wrote by what it read. `state`: of the stateful one, what a store holds; `tasks`: how many."""
    inputs, passed = rows("in"), rows("passed")
    report.checked("input, as the ledger has it", as_written(inputs, ledger))
    report.checked("input, where its producers meant it to be", partitions_by_belief(inputs))
    report.checked("keys with records in several partitions", len(moved_keys(inputs)))
    report.checked("passed on: each once, in order of its key", once_and_in_order(passed, ledger))
    if state is None:
        return
    report.checked("keys in one task", one_task_per_key(passed))
    number_of_tasks(passed, tasks)
    wrong = [(row["key"], value) for row in passed if (value := json.loads(row["value"]))["n"] != value["seq"]]
    assert not wrong, f"{len(wrong)} counts by hand are wrong, the first: {wrong[0]}"
    seen = {key: long_of(held) for (key, _), held in state("seen").items()}
    report.checked("count by hand, its state", state_equals(counted(inputs), seen))
    windows = counted_by_window(inputs, WINDOW_MS)
    found = last_values(rows("windows"), _window, lambda row: json.loads(row["value"])["n"])
    report.checked("windows", counts_are(found, windows))
    held = {
        (key, stored_time_us(start) // 1000): stored_fields(value)[0]
        for (key, start), value in state("windows").items()
    }
    report.checked("windows, their state", state_equals(windows, held))
    groups = Counter(b"g%d" % (json.loads(row["value"])["seq"] % GROUPS) for row in inputs)
    found = last_values(rows("groups"), key_of, lambda row: long_of(row["value"]))
    report.checked("groups, behind a repartition", counts_are(found, groups))


def _window(row: Row) -> tuple[bytes, int]:
    key, start_us = window_of(row["key"])
    return key, start_us // 1000
