"""A topic that was deleted, and perhaps made anew, under a job's positions and state: an error, between runs and in one."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import IncompatibleChangeError
from headrace.testing.kafka_server import KafkaServer

Make = Callable[[], hr.App]


@pytest.fixture
def url(kafka_server: KafkaServer) -> str:
    return f"kafka://{kafka_server.bootstrap}"


@pytest.fixture
def name() -> str:
    return f"ids-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def made(url: str, name: str, tmp_path: Path) -> Make:
    """The application anew, as each start makes it; its input has three records."""
    with hr.open_system(url) as system:
        system.create_stream(f"{name}-in", 1)
        system.produce(f"{name}-in", [(b"k", b"v")] * 3)

    def make() -> hr.App:
        app = hr.App(name, url, local_store_dir=str(tmp_path / "stores"))
        app.stream(f"{name}-in", key=hr.String()).group_by_key().count(store="n")
        return app

    return make


def started(app: hr.App, until: str | None = "caught-up") -> Any:
    return started(app, until)


def anew(url: str, stream: str, *, create: bool = True, records: int = 0) -> None:
    with hr.open_system(url) as system:
        system.delete_stream(stream)
        if create:
            system.create_stream(stream, 1)
            system.produce(stream, [(b"k", b"other")] * records)


@pytest.mark.parametrize(("create", "words"), [(True, "was deleted and recreated since"), (False, "does not exist")])
def test_between_two_runs(url: str, name: str, made: Make, create: bool, words: str) -> None:
    started(made()).wait(60)
    anew(url, f"{name}-in", create=create, records=9)  # as many as make the stored position look right
    with pytest.raises(hr.HeadraceError, match=rf"stream '{name}-in' {words}"):
        started(made())


def test_while_the_job_runs(url: str, name: str, made: Make) -> None:
    job = started(made(), until=None)
    try:
        anew(url, f"{name}-in", records=9)
        with pytest.raises(IncompatibleChangeError, match=rf"stream '{name}-in' was deleted.* while the application runs"):
            job.wait(60)
    finally:
        job.stop()
