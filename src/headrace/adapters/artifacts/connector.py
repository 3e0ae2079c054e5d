"""Whether a Spark session needs our Kafka connector, and under which setting it is given to it.

A user who brings one of their own (`spark.jars`, `spark.jars.packages`, or a jar in PySpark's folder) keeps it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from headrace.adapters.artifacts import cache, pins
from headrace.adapters.artifacts.ivy import pyspark_folder

CONNECTOR = "spark-sql-kafka-0-10"  # the begin of its name, whatever its Scala and version
_SETTINGS = ("spark.jars", "spark.jars.packages")


def own_connector(spark: Mapping[str, str]) -> str | None:
    """Where the user's own connector comes from, for people; None if they bring none. `spark`: full names to values.

    >>> own_connector({"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"})
    'spark.jars.packages'
    """
    for name in _SETTINGS:
        if CONNECTOR in spark.get(name, ""):
            return name
    beside = sorted((pyspark_folder() / "jars").glob(f"{CONNECTOR}*.jar"))
    return str(beside[0]) if beside else None


def connector_jars(spark: Mapping[str, str], artifact_dir: str | None, tell: cache.Tell) -> tuple[Path, ...]:
    """The jars of ours that a session with the settings `spark` needs: none if the user brings their own. What is missing is
    fetched; raises as `cache.jars_of` does."""
    if own_connector(spark) is not None:
        return ()
    folder = cache.folder_of(artifact_dir, os.environ)
    return cache.jars_of(pins.connector(), folder, tell, settings_file=settings_file_of(spark))


def with_connector(spark: Mapping[str, str], artifact_dir: str | None, tell: cache.Tell) -> dict[str, str]:
    """`spark` with our jars added to `spark.jars`, for a session that is yet to be started."""
    jars = connector_jars(spark, artifact_dir, tell)
    named = [name for name in spark.get("spark.jars", "").split(",") if name.strip()]
    return {**spark, "spark.jars": ",".join([*named, *map(str, jars)])} if jars else dict(spark)


def settings_file_of(spark: Mapping[str, str]) -> Path | None:
    """The Ivy settings that Spark itself would use for `spark.jars.packages`."""
    name = spark.get("spark.jars.ivySettings", "")
    return Path(name).expanduser().absolute() if name else None
