"""An input that is deleted and recreated while a round of it runs."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import pytest

import headrace as hr
from headrace.driver import system_wait
from headrace.errors import IncompatibleChangeError
from headrace.testing import KafkaServer
from support.world import started

pytestmark = pytest.mark.timeout(200)


def test_a_run_ends_with_what_became_of_its_input(
    kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The round fails by something else. Positions are lost with the stream, and cannot be set again."""
    monkeypatch.setattr(system_wait, "SYSTEM_WAIT_S", 3.0)
    name, url = f"recreated-{uuid.uuid4().hex[:8]}", f"kafka://{kafka_server.bootstrap}"
    is_at_work, is_recreated = threading.Event(), threading.Event()

    def wait(record: hr.Record) -> bytes:
        is_at_work.set()
        assert is_recreated.wait(60)
        return 1  # type: ignore[return-value]  # its serde refuses it, and the round fails

    with hr.open_system(url) as system:
        for stream, partitions in (("in", 2), ("out", 1)):
            system.create_stream(f"{name}-{stream}", partitions)
        system.produce(f"{name}-in", [(b"%d" % n, b"v") for n in range(10)])
        app = hr.App(name, url, state_uri=str(tmp_path / "state"), local_store_dir=str(tmp_path / "stores"))
        app.stream(f"{name}-in", key=hr.Bytes(), value=hr.Bytes()).map_values(wait, value=hr.Bytes()).to(f"{name}-out")
        job = started(app, "caught-up")
        assert is_at_work.wait(60)
        system.delete_stream(f"{name}-in")
        system.create_stream(f"{name}-in", 1)
    is_recreated.set()
    with pytest.raises(IncompatibleChangeError, match="was deleted and recreated"):
        job.wait(100)
