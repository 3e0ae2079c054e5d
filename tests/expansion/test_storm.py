"""On Spark and Kafka: a topic of 4, then 8, then 32 partitions under load, and drivers that are killed as it grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from expansion.storm import storm
from headrace.testing.kafka_server import KafkaServer

pytestmark = [pytest.mark.chaos, pytest.mark.spark]
SEED = 20281


@pytest.mark.soak
@pytest.mark.timeout(600)  # a minute where nothing else runs
def test_jobs_on_spark_go_on_as_their_topic_grows_under_load_and_their_driver_is_killed(
    tmp_path: Path, kafka_server: KafkaServer
) -> None:
    report = storm(tmp_path, SEED, kafka_server, counts=(4, 8, 32), kills_per_growth=1, stale_s=20.0)
    print(report)
    report.verify(landed_min=2)
