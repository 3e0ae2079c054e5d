"""What the reader of a Column prefix reports to the container that takes its rows, as bytes: on their way through Spark.

A filter may drop every row, so a report cannot be in one. Reader and container are two Python processes; where they are of
one Spark task, the report is a file in the folder that Spark gives its executor, and removes with it. Where rows are
routed to other Spark tasks, which may run on other machines, it goes with them, in a row of its own behind the expressions."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from headrace.codec.record_batches import HEADERS_TYPE

REPORT = -2  # the endpoint of a row that is a report, which is the value of its only header; its SSP says where it goes


def leave_report(report: bytes) -> None:
    """For `take_reports` in this attempt of this Spark task; another attempt has reports of its own."""
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{_attempt()}-{uuid.uuid4().hex}"
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(report)
    temporary.rename(path)


def take_reports() -> list[bytes]:
    """What the readers of this Spark task have left; to be called once all their rows have come. It is removed."""
    found = []
    for path in sorted(_folder().glob(f"{_attempt()}-*")):
        found.append(path.read_bytes())
        path.unlink()
    return found


def with_reports(part: Any, takers: Sequence[Sequence[int]]) -> Any:
    """A DataFrame of rows that are to be routed, and behind the rows of each reader its reports, for each Spark task that takes
    of them: `takers`, by the reader's number."""
    nullable = StructType([StructField(one.name, one.dataType, True) for one in part.schema])
    schema = to_arrow_schema(nullable, timezone="UTC")

    def rows_and_reports(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = schema  # where no row has come
        for batch in batches:
            found = batch.schema
            yield batch
        for report in take_reports():
            for taker in takers[_number() % len(takers)]:
                yield _row_of(report, taker, found)

    return part.mapInArrow(rows_and_reports, nullable)


def _row_of(report: bytes, taker: int, schema: pa.Schema) -> pa.RecordBatch:
    given = {
        "endpoint": pa.array([REPORT], pa.int32()),
        "ssp": pa.array([taker], pa.int32()),
        "offset": pa.array([0], pa.int64()),
        "headers": pa.array([[{"name": "report", "value": report}]], HEADERS_TYPE),
    }
    columns = [given[one.name].cast(one.type) if one.name in given else pa.nulls(1, one.type) for one in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def without_reports(batches: Iterable[pa.RecordBatch], reports: list[bytes]) -> Iterator[pa.RecordBatch]:
    """The rows without those that are reports, which go to `reports`."""
    for batch in batches:
        endpoints = batch.column("endpoint").to_numpy()
        is_report = endpoints == REPORT
        if not is_report.any():
            yield batch
            continue
        for headers in batch.filter(pa.array(is_report)).column("headers").to_pylist():
            reports.append(headers[0]["value"])
        rows = batch.filter(pa.array(~is_report))
        if rows.num_rows:
            yield rows


def _folder() -> Path:
    return Path(os.environ["SPARK_LOCAL_DIRS"].partition(",")[0]) / "headrace"


def _number() -> int:
    """Of this Spark partition; those of several DataFrames in one Spark stage are counted on."""
    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


def _attempt() -> int:
    context = TaskContext.get()
    assert context is not None
    return int(context.taskAttemptId())
