"""An application that spark-submit runs on a cluster, in client mode: on the master that it is given, with workers that see
nothing of the driver but what is installed and the folder of the state."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from cluster.conftest import need_machines
from cluster.machines import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
WAIT_S = 200.0
APP = """
import sys

import headrace as hr
from rates import labels  # what it imports is beside this file too

SESSION = {session}
app = hr.App(
    sys.argv[1], sys.argv[2], spark=SESSION, local_store_dir=sys.argv[3], state_uri=sys.argv[4]
)
words = app.stream(f"{{sys.argv[1]}}-words", key=hr.String(), value=hr.Json("n int")).filter("value.n > 2")
labelled = words.map_values(lambda record: labels.label(record.value["n"]), value=hr.String())
by_label = labelled.select_key(lambda record: record.value, key=hr.String()).repartition(hr.Repartitioned(name="by-label"))
counts = by_label.group_by_key().count(store="counts")
counts.to_stream().to(f"{{sys.argv[1]}}-counts", value=hr.Long())

if __name__ == "__main__":
    status = app.run(until="caught-up")
    print("told", app.spark.sparkContext.master, status["rejected_executors"])
"""
SESSIONS = {
    "app.run()": "None",
    "a session": "__import__('pyspark.sql').sql.SparkSession.builder.getOrCreate()",
}


NODES = ("node-2", "node-3")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need_machines()
    with Cluster(tmp_path_factory.mktemp("submitted"), NODES) as cluster:
        yield cluster


@pytest.mark.soak
@pytest.mark.parametrize("kind", SESSIONS)
def test_it_runs_on_the_master_that_was_given(
    kind: str, machines: Cluster, kafka_server: Any
) -> None:
    name, system = f"submitted-{list(SESSIONS).index(kind)}", f"kafka://{kafka_server.bootstrap}"
    app = machines.driver / name
    (app / "rates").mkdir(parents=True)
    (app / "flights.py").write_text(APP.format(session=SESSIONS[kind]))
    (app / "rates" / "__init__.py").write_text("")
    (app / "rates" / "labels.py").write_text("from rates.sizes import SIZES\n\n\ndef label(n):\n    return SIZES[n % 3]\n")
    (app / "rates" / "sizes.py").write_text('SIZES = ("small", "middle", "large")\n')
    values = [n % 10 for n in range(300)]
    with hr.open_system(system) as kafka:
        kafka.create_stream(f"{name}-words", 4)
        kafka.produce(f"{name}-words", [(f"k{n}", {"n": n}) for n in values], key=hr.String(), value=hr.Json())
    scripts, source = sysconfig.get_path("scripts"), Path(hr.__file__).parents[1]
    small = "--driver-memory 512m --executor-memory 512m --conf spark.driver.host=127.0.0.1 --conf spark.ui.enabled=false"
    given = f"--master {machines.master} {small} $(headrace submit-args --kafka)"
    arguments = f"{name} {system} {machines.own / 'stores'} {machines.shared}"
    done = subprocess.run(
        ["/bin/sh", "-c", f"HEADRACE_SPARK__master='local[2]' spark-submit {given} flights.py {arguments}"],
        cwd=app,
        env=os.environ
        | {
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "PYTHONPATH": str(source),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(machines.driver / "tmp"),
            "TMPDIR": str(machines.driver / "tmp"),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={machines.driver / 'tmp'}",
        },
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.endswith(f"told {machines.master} {{}}\n")
    with hr.open_system(system) as kafka:
        found = {one.key: one.value for one in kafka.consume(f"{name}-counts", key=hr.String(), value=hr.Long())}
    assert found == Counter(("small", "middle", "large")[n % 3] for n in values if n > 2)
    with hr.open_system(system) as kafka:
        model = kafka.job_store(name).job_model()  # type: ignore[attr-defined]  # a part of Streams that users have no use for
    assert {one.location_id for sub in model.sub_topologies for one in sub.containers} == set(NODES)
