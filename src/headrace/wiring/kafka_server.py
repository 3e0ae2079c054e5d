"""The joining of the Kafka server with its jars: fetched at first use, from where the configuration says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headrace.adapters.artifacts import cache, connector, pins
from headrace.adapters.kafka_server.cluster import Cluster
from headrace.config.loading import load_config


class KafkaServer(Cluster):
    """A Kafka server of its own for a test or a trial: `with KafkaServer() as kafka: ... kafka.bootstrap`.

    Real brokers (Apache Kafka 4.1, KRaft) as child processes on loopback ports that are free; they end with this
    process, however it ends. `brokers=3` replicates. `properties` are Kafka's own and win over what is set here.
    `folder` keeps the data. `security="sasl_ssl"` (users with PLAIN and SCRAM) or `"ssl"` (client certificates) secures
    it: `client_settings()` is what librdkafka needs, `tls` has the files.

    `kill()`, `restart()`, `pause()`, `resume()` do that to all brokers, or to the one whose number (from 1) is given.
    Needs Java 17; fetches 41 MB of jars once (see the key `artifact_dir`). `tell` reports it: standard error by default.
    The variable `KAFKA_OPTS` has options for its JVMs; short tests save time with "-XX:TieredStopAtLevel=1".

    Raises `SetupError` when it does not come up, with the end of its log."""

    def jars(self) -> Sequence[Path]:
        config = load_config(None, os.environ, {})
        settings_file = connector.settings_file_of({f"spark.{name}": value for name, value in config.spark.items()})
        folder = cache.folder_of(config.artifact_dir, os.environ)
        return cache.jars_of(pins.kafka_server(), folder, self.tell, settings_file=settings_file)
