"""A job that reads streams by a pattern, while others create streams: on either system."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import headrace as hr
from support.world import caught_up, started, waited

TEXT, NUMBER = hr.String(), hr.Long()


def send(url: str, stream: str, value: int, partitions: int = 2) -> None:
    with hr.open_system(url) as system:
        if stream not in [one.name for one in system.streams()]:
            system.create_stream(stream, partitions)
        system.produce(stream, [(f"k{n}", value) for n in range(6)], TEXT, NUMBER)


def joins_while_it_runs(url: str, folder: Path, name: str, *, is_listed: bool = False) -> None:
    """A stream that matches is created while a job with state runs: it joins; one that does not fit is not read. `is_listed`:
    the pattern is in a list, with the name of a stream that matches it."""
    pattern, out = re.compile(f"{name}-[a-z]+"), f"{name}-0-out"
    app = hr.App(name, url, state_uri=f"{folder}/state", local_store_dir=f"{folder}/stores", partition_check_interval_s=0.2)
    orders = app.stream([f"{name}-a", pattern] if is_listed else pattern, key=TEXT, value=NUMBER, name="orders")
    orders.map_values(lambda r: f"{r.stream} {r.value}", value=TEXT).to(out)
    orders.group_by_key().count(store="n")
    send(url, f"{name}-a", 1)
    job = started(app)

    def counts() -> Counter[str]:
        with hr.open_system(url) as system:
            return Counter(r.value for r in system.consume(out, TEXT, TEXT))

    try:
        waited(lambda: counts() == {f"{name}-a 1": 6}, job)
        send(url, f"{name}-b", 2)
        waited(lambda: counts() == {f"{name}-a 1": 6, f"{name}-b 2": 6}, job)
        assert job.plan.model.partition_counts[f"{name}-b"] == 2
        (joined,) = job.plan.changes.values()
        assert (joined.what, joined.after) == (f"stream {name}-b", "2 partitions, read by a pattern")
        epoch = job.plan.epoch
        send(url, f"{name}-c", 3, partitions=3)  # with state, a key would be in two tasks: it cannot be read
        send(url, f"{name}-a", 4)
        waited(lambda: counts()[f"{name}-a 4"] == 6, job)
        waited(lambda: job.plan.epoch > epoch, job)
        assert f"{name}-c" not in job.plan.model.partition_counts and len(list(job.plan.model.tasks)) == 2
    finally:
        job.stop()
    with pytest.raises(hr.HeadraceError, match=f"{name}-c"):
        started(app)
    with hr.open_system(url) as system:
        system.delete_stream(f"{name}-c")
        system.delete_stream(f"{name}-b")  # one that was read before
    send(url, f"{name}-d", 5)
    job = caught_up(app)
    assert sorted(job.plan.topology.inputs) == [f"{name}-a", f"{name}-d"]
    assert [hr.state(app)["n"].get(f"k{n}") for n in range(6)] == [4] * 6
