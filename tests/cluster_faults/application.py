"""The application that runs under faults: a windowed count and a Processor with a store and timers, which says where it works.

What the Processor forwards has who has worked on the record and when, by a clock that all processes of this machine share: so
what is committed says by whom. `LOG` has a line of each record that was worked on, also of those whose work was thrown away.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import headrace as hr
from cluster.application import APPLICATIONS as OTHERS

BUCKET_MS, WINDOW_MS = 5_000, 10_000


class Work(hr.Processor[str, dict, str, dict]):
    """Counts the records of each key, and has a timer for each 5 s in which a key has records."""

    stores: ClassVar = [hr.KeyValueStore("seen", value=hr.Long())]
    log = ""

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        began_s = time.monotonic()
        store = self.context.store("seen")
        count = store.get(default=0) + 1
        store.put(count)
        bucket = record.timestamp_us // 1_000 // BUCKET_MS
        self.context.timer(str(bucket), at=(bucket + 1) * BUCKET_MS * 1_000)
        time.sleep(record.value.get("takes_s", 0.001))
        by = {"task": self.context.task, "pid": os.getpid(), "host": socket.gethostname(), "spark_task": spark_task()}
        done = {"id": record.value["id"], "count": count, "start": began_s, "end": time.monotonic(), **by}
        with Path(self.log).open("a") as file:
            file.write(f"{done['id']} {done['pid']} {done['task']}\n")
        self.context.forward(value=done)

    def on_timer(self, timer: Any) -> None:
        self.context.forward(value={"timer": timer.name})


def spark_task() -> int:
    """The attempt of a Spark task in which this runs, which no other has."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return -1 if context is None else int(context.taskAttemptId())


def worked(name: str, system: str, log: str, **keys: Any) -> hr.App:
    app = hr.App(name, system, **keys)
    orders = app.stream(f"{name}-orders", key=hr.String(), value=hr.Json())
    orders.group_by_key().windowed_by(hr.Tumbling("10 seconds")).count(store="windows").to_stream().to(
        f"{name}-windows", value=hr.Long()
    )
    logged = type("LoggedWork", (Work,), {"log": log})
    orders.process(logged, name="work", value=hr.Json()).to(f"{name}-work")
    return app


def counted(name: str, system: str, **keys: Any) -> hr.App:
    """A durable keyed count, and nothing else."""
    app = hr.App(name, system, **keys)
    orders = app.stream(f"{name}-orders", key=hr.Bytes(), value=hr.Bytes())
    orders.group_by_key().count(store="counts").to_stream().to(f"{name}-counts", value=hr.Long())
    return app


class Disk(hr.LocationIdProvider):
    """A machine is what its disk says, whatever its name is."""

    def get_location_id(self) -> hr.LocationId:
        return hr.LocationId((Path(os.environ["OWN"]) / "disk").read_text())


def seconds_of_round(session: Any, gone: Sequence[str]) -> float:
    """How long Spark takes for one small Spark task on each executor, and one more for each place in `gone`."""
    from headrace.adapters.spark.placement import collected_without_query

    context = session.sparkContext
    listed = context._jsc.sc().statusStore().executorList(True)
    there = [listed.apply(number) for number in range(listed.size())]
    live = [f"executor_{one.hostPort().partition(':')[0]}_{one.id()}" for one in there if one.id() != "driver"]
    preferences = [[one] for one in (*gone, *live)]
    began_s = time.monotonic()
    found = collected_without_query(context, lambda numbers: (str(number) for number in numbers), preferences)
    assert sorted(found) == [str(number) for number in range(len(preferences))]
    return time.monotonic() - began_s


APPLICATIONS: Mapping[str, Any] = {**OTHERS, "worked": worked, "counted": counted}
