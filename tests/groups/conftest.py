"""The group of a test: as large, and on such hosts, as its mark says: `group(partitions=..., hosts=..., own=...)`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.conftest import need_machines
from groups.group import PARTITIONS, Group, group_on
from groups.hosts import hosts_of


@pytest.fixture
def group(request: pytest.FixtureRequest, kafka_server: Any, real_zookeeper: Any, tmp_path: Path) -> Iterator[Group]:
    """`hosts`, `own`: see `groups.hosts`; without, all processors are on this one. A parameter of the test is of partitions."""
    mark = request.node.get_closest_marker("group")
    asked = mark.kwargs if mark is not None else {}
    partitions = getattr(request, "param", asked.get("partitions", PARTITIONS))
    hosts, own = asked.get("hosts", ()), asked.get("own", ("stores",))
    if hosts:
        need_machines()
    coordinator = f"zookeeper://{real_zookeeper.server.address}/headrace"
    with group_on(kafka_server, coordinator, tmp_path, partitions=partitions) as made, hosts_of(made, hosts, own):
        yield made
