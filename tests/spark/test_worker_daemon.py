"""Python workers are forks of a daemon that has loaded what a container needs; what they draw by chance is their own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


def loaded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import os
    import sys
    import time

    there = "headrace.wiring.worker.engine_rows" in sys.modules
    for _ in batches:
        time.sleep(0.5)  # while the other Spark task begins, in a worker of its own
    from numpy.random import random

    yield pa.RecordBatch.from_pylist([{"pid": os.getpid(), "parent": os.getppid(), "there": there, "drawn": random()}])


def test_rounds_with_and_without_a_dataframe_have_the_same_workers(spark: Any) -> None:
    """A small round is an RDD's job, and Spark gives that one the workers of another daemon where their environments differ."""
    in_frame = spark.range(1).mapInArrow(loaded, "pid long, parent long, there boolean, drawn double").collect()
    in_rdd = spark.sparkContext.parallelize([0], 1).mapPartitions(lambda rows: [os.getppid() for _ in rows]).collect()
    assert set(in_rdd) == {row.parent for row in in_frame}


def test_workers_find_all_loaded_and_draw_different_numbers(spark: Any) -> None:
    rows = spark.range(2, numPartitions=2).mapInArrow(loaded, "pid long, parent long, there boolean, drawn double").collect()
    assert all(row.there for row in rows)
    assert len({row.parent for row in rows}) == 1
    assert len({row.pid for row in rows}) == len({row.drawn for row in rows}) == 2
