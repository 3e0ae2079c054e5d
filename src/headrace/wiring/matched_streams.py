"""The topology of an application as it is for the streams that match its patterns now."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace.config.loading import Config
from headrace.core.topology.patterns import is_open, with_matches
from headrace.model.topology import Topology

if TYPE_CHECKING:
    from headrace.ports.system import Streams


def as_matched(topology: Topology, config: Config, system: Streams, only: Collection[str] | None = None) -> Topology:
    """`only`: those of these names. `StreamNotFoundError` where a pattern matches nothing."""
    if not any(map(is_open, topology.sources)):
        return topology
    found = [one for one in system.streams() if only is None or one.name in only]
    return with_matches(topology, found, config.dead_letter_stream)
