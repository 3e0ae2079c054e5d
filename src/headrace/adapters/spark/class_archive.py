"""The archive of the Java classes that Spark loads at each start. Java maps it instead of reading, checking and linking some
ten thousand classes. It is made once (`headrace class-archive`); one that does not fit the JVM or Spark's jars is not used.

What lies in it is run as it is, so it is taken only where no other user can have written it."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from headrace.environment import cache_folder, checked_folder
from headrace.errors import SetupError

END_S_MAX = 300  # a JVM that writes an archive on a busy machine
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
# The optimizing compiler takes half of the CPU time of a start. What a job runs all the time still comes to it.
LATER_OPTIMIZED = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 -XX:Tier4CompileThreshold=60000 "
    "-XX:Tier4BackEdgeThreshold=160000"
)


def archive_of(java_version: str, environ: Mapping[str, str]) -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    return cache_folder(environ) / "classes" / f"spark-{version('pyspark')}-java-{java_version}.jsa"


def archive_options(java_version: str, environ: Mapping[str, str]) -> str:
    """What a JVM is given to use the archive; empty where there is none that may be used."""
    archive = archive_of(java_version, environ)
    return f"-XX:SharedArchiveFile={archive} {_QUIET}" if _is_only_ours(archive) else ""


def make_archive(java_version: str, environ: Mapping[str, str]) -> Path:
    """Run Spark, and have Java archive what it has loaded. `SetupError` where this Java cannot."""
    archive = archive_of(java_version, environ)
    checked_folder(archive.parent, "the class archive")
    made = archive.with_name(f"{archive.name}.{os.getpid()}")
    try:
        archive.unlink(missing_ok=True)  # Java makes none on top of another
        run_spark({"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={made} {_QUIET}"})
        made.chmod(0o600)
        made.rename(archive)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"the class archive was not made: {error}", "Spark starts without it, in more time") from None
    finally:
        made.unlink(missing_ok=True)
    return archive


def run_spark(settings: Mapping[str, str]) -> None:
    """Start a Spark, have it do a little of all that jobs do, and wait until its JVM has ended."""
    from pyspark import SparkContext
    from pyspark.sql import functions as F

    from headrace.adapters.spark import session

    with tempfile.TemporaryDirectory() as logs:
        spark = session.started({"spark.master": "local[2,4]", **settings}, "class-archive", Path(logs), [])
        rows = spark.range(0, 100, 1, 2).withColumn("text", F.expr("concat('k', id)")).where("id > 10")
        behind = rows.mapInArrow(lambda batches: batches, "id long, text string")
        behind.repartitionById(2, F.col("id").cast("int") % 2).groupBy("text").count().collect()
        spark.sparkContext.parallelize([0], 1).mapPartitions(lambda numbers: numbers).collect()
        jvm: subprocess.Popen[bytes] = SparkContext._gateway.proc
        session.released(spark)
        assert jvm.stdin is not None
        jvm.stdin.close()
        jvm.wait(END_S_MAX)


def _is_only_ours(archive: Path) -> bool:
    """Whether it is there, and neither it nor its folder can be written by another user than this one and root."""
    try:
        found = [path.stat(follow_symlinks=False) for path in (archive, archive.parent)]
    except OSError:
        return False
    return all(one.st_uid in (0, os.geteuid()) and not one.st_mode & (stat.S_IWGRP | stat.S_IWOTH) for one in found)
