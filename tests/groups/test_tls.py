"""A group whose processors reach ZooKeeper by TLS, and log in there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from groups.group import Group, group_on
from headrace.errors import SetupError
from support.certificates import Secured, certificates

pytestmark = [pytest.mark.chaos, pytest.mark.soak]
SASL = {"sasl.mechanism": "DIGEST-MD5", "sasl.username": "carol", "sasl.password": "tiger-carol"}


@pytest.fixture
def group(
    kafka_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    without_server: Callable[[str, str], NoReturn],
) -> Iterator[Group]:
    secured = Secured(certificates(tmp_path / "tls"), "need")
    for name, value in {**secured.known, **SASL}.items():
        monkeypatch.setenv(f"HEADRACE_ZOOKEEPER__{name.upper().replace('.', '__')}", value)
    try:
        secured.server.start()
    except SetupError as error:
        without_server("ZooKeeper", error.message)
    try:
        with group_on(kafka_server, f"zookeeper://127.0.0.1:{secured.port}/headrace", tmp_path) as made:
            yield made
    finally:
        secured.server.stop()


def test_processors_share_and_take_over_through_tls(group: Group) -> None:
    for id_ in "ab":
        group.start(id_)
    group.await_shares("a", "b")
    group.send(40)
    group.await_all()
    group.kill("a")
    group.await_shares("b")
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 160
    told = "".join(map(group.told, group.runs))
    assert "has joined the group" in told and "tiger" not in told
