"""A producer in Java and Headrace put the same key into the same partition: `produce`, a sink and a repartition topic."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pyspark

import headrace as hr
from headrace.adapters.artifacts.connector import connector_jars
from headrace.environment import checked_java
from headrace.testing import KafkaServer
from support.world import caught_up

PROGRAM = Path(__file__).with_name("SameKeys.java")
PARTITIONS = 7


def test_the_same_keys_go_to_the_same_partitions(
    kafka_server: KafkaServer, tmp_path: Path, without_server: Callable[[str, str], NoReturn]
) -> None:
    java = checked_java(os.environ).path
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60, check=False).stdout
    if "jdk.compiler" not in modules:
        without_server("Java's compiler", f"{java} runs programs, and cannot read their source")
    url, name = f"kafka://{kafka_server.bootstrap}", f"same-{uuid.uuid4().hex[:8]}"
    jars = [*map(str, connector_jars({}, None, print)), str(Path(pyspark.__file__).parent / "jars" / "*")]
    with hr.open_system(url) as system:
        for stream in ("java", "produced", "sunk"):
            system.create_stream(f"{name}-{stream}", PARTITIONS)
        done = subprocess.run(
            [java, "-cp", ":".join(jars), PROGRAM, kafka_server.bootstrap, f"{name}-java"],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        records = list(system.consume(f"{name}-java"))
        expected = {record.key: record.partition for record in records}
        assert len(expected) > 450
        assert len(set(expected.values())) == PARTITIONS
        system.produce(f"{name}-produced", [(record.key, b"") for record in records])
        app = hr.App(name, url, local_store_dir=str(tmp_path / "stores"))
        rows = app.stream(f"{name}-java", key=hr.Bytes(), value=hr.Bytes())
        again = rows.map_values(lambda record: record.value, value=hr.Bytes())
        again.repartition(hr.Repartitioned(name="again", number_of_partitions=PARTITIONS)).to(f"{name}-sunk")
        caught_up(app)
        for stream in (f"{name}-produced", f"{name}-again-repartition", f"{name}-sunk"):
            assert {record.key: record.partition for record in system.consume(stream)} == expected, stream
