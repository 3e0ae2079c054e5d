"""Spark itself reads the shared broker with the pinned jars: in a process of its own, as jars count only at its start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.testing import KafkaServer
from kafka.clients import make_topic, write

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = """
import sys
from pathlib import Path
from headrace.adapters.artifacts.connector import with_connector
from headrace.adapters.spark import session

said = []
spark = session.started(with_connector({"spark.master": "local[1]"}, None, said.append), "reads", Path("logs"), [])
rows = spark.read.format("kafka").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", sys.argv[2])
loaded = rows.load()
print(*sorted(bytes(row.value).decode() for row in loaded.collect()))
# By its older way each record would become a row of Java objects on the way to Spark's.
print("BatchScan" in loaded._jdf.queryExecution().executedPlan().toString())
spark.stop()
"""


@pytest.mark.spark
def test_spark_reads_a_topic_with_the_pinned_jars(kafka_server: KafkaServer, tmp_path: Path) -> None:
    topic = make_topic(kafka_server.client_settings(), partitions=2)
    write(kafka_server.client_settings(), topic, b"a", b"b", b"c")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kafka_server.bootstrap, topic],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.stdout.split() == ["a", "b", "c", "True"], done.stderr
