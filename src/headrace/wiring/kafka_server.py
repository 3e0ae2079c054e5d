"""The joining of the Kafka server with its jars: fetched at first use, from where the configuration says."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.adapters.artifacts import cache, connector, pins
from headrace.adapters.kafka_server.cluster import Cluster
from headrace.adapters.kafka_server.settings import Security
from headrace.config.loading import load_config


class KafkaServer(Cluster):
    """A Kafka server of its own for a test or a trial: `with KafkaServer() as kafka: ... kafka.bootstrap`.

    Real brokers (Apache Kafka 4.1, KRaft) as child processes on loopback ports that are free; they end with this
    process, however it ends. `brokers=3` replicates. `properties` are Kafka's own and win over what is set here.
    `folder` keeps the data. `security="sasl_ssl"` (users with PLAIN and SCRAM) or `"ssl"` (client certificates) secures
    it: `client_settings()` is what librdkafka needs, `tls` has the files.

    `kill()`, `restart()`, `pause()`, `resume()` do that to all brokers, or to the one whose number (from 1) is given.
    Needs Java 17; fetches 41 MB of jars once (see the key `artifact_dir`). `tell` reports it: standard error by default.

    Raises `SetupError` when it does not come up, with the end of its log."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        port: int | None = None,
        folder: Path | str | None = None,
        properties: Mapping[str, Any] | None = None,
        security: Security = "plaintext",
        users: Mapping[str, str] | None = None,
        heap_mb: int = 320,
        tell: cache.Tell | None = None,
    ) -> None:
        def jars() -> tuple[Path, ...]:
            config = load_config(None, os.environ, {})
            spark = {f"spark.{name}": value for name, value in config.spark.items()}
            return cache.jars_of(
                pins.kafka_server(),
                cache.folder_of(config.artifact_dir, os.environ),
                tell or _say,
                settings_file=connector.settings_file_of(spark),
            )

        super().__init__(
            jars,
            brokers=brokers,
            port=port,
            folder=None if folder is None else Path(folder),
            properties=properties,
            security=security,
            users=users,
            heap_mb=heap_mb,
        )


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
