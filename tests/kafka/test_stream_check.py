"""`headrace stream check` on Kafka: the newest committed records of each partition, as a consumer reads them."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.commands import application
from headrace.core.keys.hashing import partition_of
from headrace.testing.kafka_server import KafkaServer


def test_a_key_in_two_partitions_is_found(
    kafka_server: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, url = f"checked-{uuid.uuid4().hex[:8]}", f"kafka://{kafka_server.bootstrap}"

    def check(*options: str) -> tuple[int, dict[str, object]]:
        done = CliRunner().invoke(application, ["stream", "check", name, "--system", url, "--json", *options])
        return done.exit_code, json.loads(done.stdout)

    with hr.open_system(url) as system:
        system.create_stream(name, 3)
        system.produce(name, [hr.Record(f"k{n}", n) for n in range(20)], key=hr.String(), value=hr.Long())
        code, found = check()
        assert (code, found["records"], found["keys_in_two_partitions"]) == (0, 20, [])
        there = partition_of(b"k3", 3)
        other = hr.Record("k3", 1, partition=(there + 1) % 3)
        system.produce(name, [other], key=hr.String(), value=hr.Long())
        pair = sorted((there, (there + 1) % 3))
        code, found = check("--key", "string")
        assert (code, found["keys_in_two_partitions"]) == (1, [{"key": "k3", "partitions": pair}])
        nulls = [hr.Record(None, 1, partition=number) for number in range(3) for _ in range(5)]
        system.produce(name, nulls, key=hr.String(), value=hr.Long())
        assert check("--records", "3")[0] == 0
