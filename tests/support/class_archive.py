"""Archives of the Java classes that Spark and a Kafka broker load at each start, for the tests: Java maps an archive instead of
reading, checking and linking some ten thousand classes, which is a good third of what a start costs. One that does not fit is
not used.

    python tests/support/class_archive.py      makes those that are not there: a minute
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

from headrace.adapters.spark.class_archive import run_spark
from headrace.errors import HeadraceError

SPARK = Path(sys.prefix) / f"spark-{version('pyspark')}.jsa"  # they go with the environment that has these versions
KAFKA = Path(sys.prefix) / f"kafka-{version('headrace')}.jsa"
QUICK = "-XX:TieredStopAtLevel=1"  # see `tests/conftest.py`
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def options(archive: Path) -> str:
    """What a JVM is given: its archive, where there is one."""
    return f"{QUICK} -XX:SharedArchiveFile={archive} {_QUIET}" if archive.exists() else QUICK


def run_kafka() -> None:
    """A broker that is stopped in order, and writes a topic before."""
    import headrace as hr
    from headrace.testing import KafkaServer

    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaServer(folder=folder) as server,
        hr.open_system(f"kafka://{server.bootstrap}") as system,
    ):
        system.create_stream("some", 1)
        system.produce("some", [hr.Record(b"key", b"value", 1_700_000_000_000_000)])
        assert len(list(system.consume("some"))) == 1


def make(archive: Path, variable: str, run: Callable[[], None]) -> None:
    """Have Java archive what it has loaded in `run`."""
    made = archive.with_name(f"{archive.name}.{os.getpid()}")
    os.environ[variable] = f"{QUICK} -XX:ArchiveClassesAtExit={made} {_QUIET}"
    run()
    made.rename(archive)


if __name__ == "__main__":
    for archive, variable, run in ((SPARK, "SPARK_SUBMIT_OPTS", partial(run_spark, {})), (KAFKA, "KAFKA_OPTS", run_kafka)):
        if not archive.exists():
            print(f"making {archive.name}, once, so that tests start sooner", flush=True)
            try:
                make(archive, variable, run)
            except (HeadraceError, OSError, subprocess.TimeoutExpired) as error:  # not every Java can do this
                print(f"there is no archive, and tests take longer: {error}")
