"""Where Spark tasks prefer to run (design.md 2.6): `result.rdd.zip(placement)` gives each its preferred location."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.adapters.spark.failures import failure_of

LOG = logging.getLogger("headrace.job")


def collected(context: Any, made: Any, locations: Sequence[str | None]) -> list[str]:
    """The first column of the DataFrame `made`, whose partition i prefers to be made at `locations[i]`."""
    if not any(locations):
        return [row[0] for row in made.collect()]
    jvm = context._jvm
    tag = jvm.scala.reflect.ClassTag.Any()
    placed = [jvm.scala.Tuple2(i, _scala(jvm, [location] if location else [])) for i, location in enumerate(locations)]
    placement = context._jsc.sc().makeRDD(_scala(jvm, placed), tag)
    return [pair._1().getString(0) for pair in made._jdf.rdd().zip(placement, tag).collect()]


def run_on_each_machine(session: Any, work: Callable[[], None], group: str, within_s: float) -> None:
    """Run `work` once on each machine with an executor, as far as Spark places it there; after `within_s` it is cancelled."""
    context = session.sparkContext

    def worked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            work()
            yield pa.RecordBatch.from_pydict({"done": [""]})

    def run() -> None:
        context.setJobGroup(group, "headrace: on each machine")
        try:
            known = context._jsc.sc().statusTracker().getExecutorInfos()  # the driver is one of them
            hosts = sorted({one.host() for one in known})
            count = len(hosts)
            if len(known) > 1:
                collected(context, session.range(0, count, 1, count).mapInArrow(worked, "done string"), hosts)
        except Exception as error:
            LOG.warning("work on each machine has failed: %s", failure_of(error).message)

    thread = threading.Thread(target=run, name="headrace-on-each-machine", daemon=True)
    thread.start()
    thread.join(within_s)
    if thread.is_alive():
        context._jsc.sc().cancelJobGroup(group)
        thread.join(within_s)


def _scala(jvm: Any, items: Sequence[Any]) -> Any:
    java = jvm.java.util.ArrayList()
    for item in items:
        java.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(java).toSeq()
