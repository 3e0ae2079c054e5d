"""One JVM that runs one Spark after the other, each of which reads Kafka: a test suite, a notebook that starts again."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import headrace as hr
from headrace.testing import KafkaServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
SOURCE = str(Path(hr.__file__).parents[1])
JOB = f"""
import sys
from pathlib import Path
import headrace as hr
from headrace.adapters.spark import session

folder, url = Path(sys.argv[1]), sys.argv[2]
for number in range(3):
    spark = session.started({{"spark.master": "local[2]"}}, "tests", folder, [{SOURCE!r}])
    app = hr.App(
        f"spark-{{number}}", system=url, spark=spark, local_store_dir=str(folder / "stores"), state_uri=str(folder / "state")
    )
    # an expression: so that Spark reads, not the worker by itself
    app.stream("numbers", key=hr.String(), value=hr.String()).filter("value <> '3'").to(f"numbers-{{number}}")
    app.run(until="caught-up")
    spark.stop()
"""


@pytest.mark.soak
def test_each_spark_of_a_jvm_reads_kafka(kafka_server: KafkaServer, tmp_path: Path) -> None:
    url = f"kafka://{kafka_server.bootstrap}"
    with hr.open_system(url) as system:
        system.create_stream("numbers", 2)
        system.produce("numbers", [(f"k{i}", str(i)) for i in range(10)], key=hr.String(), value=hr.String())
        script = tmp_path / "job.py"
        script.write_text(textwrap.dedent(JOB))
        run = subprocess.run(
            [sys.executable, str(script), str(tmp_path), url], capture_output=True, text=True, timeout=200, check=False
        )
        assert run.returncode == 0, run.stderr[-4000:]
        for number in range(3):
            found = system.consume(f"numbers-{number}", key=hr.String(), value=hr.String())
            assert sorted(record.value for record in found) == sorted(str(i) for i in range(10) if i != 3)
