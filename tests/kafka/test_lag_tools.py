"""What Kafka's own tools show of a job's lag, which docs/operations.md says where to find."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

import headrace as hr
from headrace import wiring
from headrace.adapters.kafka import positions
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

WAIT_S = 60.0


@pytest.mark.parametrize("factor", [1, 2])
def test_the_groups_of_a_job_show_its_lag(kafka_server: Any, tmp_path: Path, factor: int) -> None:
    """Once all is read no partition has any; then as much as was sent, before a round has read it."""
    name = f"lag-{uuid.uuid4().hex[:6]}"
    keys = {"local_store_dir": f"{tmp_path}/stores", "state_uri": f"{tmp_path}/state", "elasticity_factor": factor}
    app = hr.App(name, system=f"kafka://{kafka_server.bootstrap}", containers=2, **keys)
    rows = app.stream(f"{name}-in", key=hr.String(), value=hr.Long())
    by_letter = rows.select_key(lambda record: record.key[:1], key=hr.String())
    by_letter.repartition(name="by-letter").group_by_key().count(store="n")
    with hr.open_system(f"kafka://{kafka_server.bootstrap}") as system:
        system.create_stream(f"{name}-in", 2)
        sent = [(f"{letter}{number}", number) for number in range(20) for letter in "abc"]
        system.produce(f"{name}-in", sent, hr.String(), hr.Long())
        wiring.start(app, until="caught-up", engine=InlineEngine(run_container)).wait(WAIT_S)
        admin = AdminClient(kafka_server.client_settings())
        assert lags(admin, system, f"{name}.source") == {(f"{name}-in", 0): 0, (f"{name}-in", 1): 0}
        between = lags(admin, system, f"{name}.by-letter")
        assert between and set(between.values()) == {0}, between
        before = system.end_offsets(f"{name}-in")
        system.produce(f"{name}-in", sent, hr.String(), hr.Long())
        grown = {(f"{name}-in", at): end - before[at] for at, end in system.end_offsets(f"{name}-in").items()}
        assert lags(admin, system, f"{name}.source") == grown and sum(grown.values()) >= len(sent)


def test_a_job_whose_groups_had_another_name_continues(
    kafka_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before a dot in the name of a sub-topology was quoted: the checkpoints are the record, a start sets the positions."""
    name = f"job-{uuid.uuid4().hex[:8]}"
    with hr.open_system(f"kafka://{kafka_server.bootstrap}") as system:
        system.create_stream(f"{name}-in", 2)

        def counts_after(sent: int) -> dict[str, int]:
            app = hr.App(name, f"kafka://{kafka_server.bootstrap}", local_store_dir=str(tmp_path), trigger_interval_ms=20)
            rows = app.stream(f"{name}-in", key=hr.String(), value=hr.Long())
            grouped = rows.repartition(hr.Repartitioned(name="by.letter", number_of_partitions=2)).group_by_key()
            grouped.count(store="counts").to_stream().to(f"{name}-out", value=hr.Long())
            system.produce(f"{name}-in", [(letter, 1) for letter in "abc" * sent], hr.String(), hr.Long())
            wiring.start(app, until="caught-up", engine=InlineEngine(run_container)).wait(WAIT_S)
            return {r.key: r.value for r in system.consume(f"{name}-out", key=hr.String(), value=hr.Long())}

        with monkeypatch.context() as before:
            before.setattr(positions, "group_of", lambda application, title, lane=None: f"{application}.{title}")
            assert counts_after(5) == dict.fromkeys("abc", 5)
        assert counts_after(1) == dict.fromkeys("abc", 6)
        between = lags(AdminClient(kafka_server.client_settings()), system, f"{name}.by%2Eletter")
        assert between and set(between.values()) == {0}, between


def lags(admin: Any, system: Any, group: str) -> dict[tuple[str, int], int]:
    """By topic and partition how far the positions of a group, and of those of single lanes, are behind the end; the most."""
    listed = admin.list_consumer_groups().result(WAIT_S).valid
    names = [one.group_id for one in listed if one.group_id == group or one.group_id.startswith(f"{group}/")]
    found: dict[tuple[str, int], int] = {}
    for name in names:
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(WAIT_S)
        for one in answer.topic_partitions:
            lag = system.end_offsets(one.topic)[one.partition] - one.offset
            found[one.topic, one.partition] = max(lag, found.get((one.topic, one.partition), lag))
    return found
