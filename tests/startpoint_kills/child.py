"""A job that says of each record where it was, or counts them, in a process of its own that tests kill and stop:
`python child.py serve`.

It runs as the jobs of `expansion/child.py` do, with steps of a protocol `settle` beside those of protocol.md: 1 before it is
stored that startpoints are applied which a commit has spent, 2 right after.
"""

from __future__ import annotations

from typing import Any

import headrace as hr
from chaos.forking import serve
from expansion.child import RUN_S_MAX, Run, finish, keys_of, prepare
from headrace.driver.planning.startpoint_log import StartpointRecords
from headrace.exchange.fault_injection import reached


def place_of(record: Any) -> Any:
    return {"partition": record.partition, "offset": record.offset}


def located(run: Run) -> hr.App:
    app = hr.App(run.name, run.url, **keys_of(run))
    records = app.stream(f"{run.name}-in", key=hr.Bytes(), value=hr.Bytes())
    records.map_values(place_of, value=hr.Json()).to(f"{run.name}-passed")
    return app


def counted(run: Run) -> hr.App:
    """Each update of a count of each key."""
    app = hr.App(run.name, run.url, **keys_of(run))
    counts = app.stream(f"{run.name}-in", key=hr.Bytes(), value=hr.Bytes()).group_by_key().count(store="n")
    counts.to_stream(emit="each").to(f"{run.name}-passed")
    return app


BUILDS = {"located": located, "counted": counted}


def with_settling_steps(run: Run) -> None:
    prepare(run)
    settle = StartpointRecords.settle

    def stepwise(records: StartpointRecords, *arguments: Any) -> tuple[str, ...]:
        if records._spent:
            reached("settle", 1)
        stored = settle(records, *arguments)
        if stored:
            reached("settle", 2)
        return stored

    StartpointRecords.settle = stepwise  # type: ignore[method-assign]


if __name__ == "__main__":
    serve(Run, with_settling_steps, lambda run: finish(run, BUILDS[run.build]), RUN_S_MAX + 10)
