"""An archive of the Java classes that Spark loads at each start, for the tests: Java maps it instead of reading, checking and
linking some ten thousand classes, which is a good third of what a start costs. An archive that does not fit is not used.

    python tests/support/class_archive.py      makes it, unless it is there: half a minute
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from headrace.errors import HeadraceError

ARCHIVE = Path(sys.prefix) / f"spark-{version('pyspark')}.jsa"  # it goes with the environment that has this Spark
QUICK = "-XX:TieredStopAtLevel=1"  # see `tests/conftest.py`
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_END_S = 300


def options() -> str:
    """What a JVM of Spark's is given: the archive, where there is one."""
    return f"{QUICK} -XX:SharedArchiveFile={ARCHIVE} {_QUIET}" if ARCHIVE.exists() else QUICK


def make() -> None:
    """Run Spark as tests do, and have Java archive what it has loaded."""
    from pyspark import SparkContext
    from pyspark.sql import functions as F

    from headrace.adapters.spark import session

    made = ARCHIVE.with_name(f"{ARCHIVE.name}.{os.getpid()}")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK} -XX:ArchiveClassesAtExit={made} {_QUIET}"
    with tempfile.TemporaryDirectory() as folder:
        spark = session.started({"spark.master": "local[2,4]"}, "class-archive", Path(folder), [])
        rows = spark.range(0, 100, 1, 2).withColumn("text", F.expr("concat('k', id)")).where("id > 10")
        behind = rows.mapInArrow(lambda batches: batches, "id long, text string")
        behind.repartitionById(2, F.col("id").cast("int") % 2).groupBy("text").count().collect()
        spark.sparkContext.parallelize([0], 1).mapPartitions(lambda numbers: numbers).collect()
        jvm: subprocess.Popen[bytes] = SparkContext._gateway.proc
        session.released(spark)
        assert jvm.stdin is not None
        jvm.stdin.close()
        jvm.wait(_END_S)
    made.rename(ARCHIVE)


if __name__ == "__main__" and not ARCHIVE.exists():
    print("archiving the classes that Spark loads, once, so that it starts sooner in tests", flush=True)
    try:
        make()
    except (HeadraceError, OSError, subprocess.TimeoutExpired) as error:  # not every Java can do this
        print(f"there is no archive, and tests take longer: {error}")
