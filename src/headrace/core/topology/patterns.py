"""Sources that are declared by a pattern: one source for each stream that matches, as if each were declared by its name.

A topology is declared before its system is known, with one source per pattern (`stream` is the pattern's text). Before a job is
planned, and as often as it is planned again, that source gives way to those of the streams that are there. They have the
pattern on them still, so that a job that runs knows what else would match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from headrace.core.topology.sub_topologies import REPARTITION_SUFFIX
from headrace.errors import StreamNotFoundError, TopologyError
from headrace.model.names import few, is_name
from headrace.model.streams import StreamDescription
from headrace.model.topology import Node, Sink, Source, Topology

_INTERNAL = (REPARTITION_SUFFIX, "-metadata", "-checkpoints")


def has_patterns(topology: Topology) -> bool:
    return any(source.pattern is not None for source in topology.sources)


def is_open(source: Source) -> bool:
    """Whether it stands for all streams that match. No pattern is a name, so that none of these has it as its own."""
    return source.pattern is not None and source.stream == source.pattern


def is_read_by(source: Source, stream: str) -> bool:
    return source.stream == stream or (is_open(source) and re.fullmatch(str(source.pattern), stream) is not None)


def matching(pattern: str, streams: Iterable[StreamDescription]) -> list[str]:
    """The names of those that match as a whole, sorted; those that applications keep for themselves never do, nor any that is
    named as these are: whose it is may not be known yet, such as while an application starts.

    >>> streams = [StreamDescription("orders-a", 1, "1"), StreamDescription("orders-a2", 1, "2", internal_of="orders")]
    >>> matching("orders-.*", streams), matching("orders", streams), matching(".*", [StreamDescription("x-metadata", 1, "3")])
    (['orders-a'], [], [])
    """
    wanted = re.compile(pattern)
    users = (one.name for one in streams if one.internal_of is None and not one.name.endswith(_INTERNAL))
    return sorted(name for name in users if wanted.fullmatch(name) and is_name(name))


def with_matches(topology: Topology, streams: Iterable[StreamDescription], dead_letter: str | None) -> Topology:
    """The topology as it is for the streams that are there. `StreamNotFoundError` where none matches a pattern, `TopologyError`
    where a stream would be read twice, or is what the application writes (`dead_letter` too)."""
    check_outputs(topology, dead_letter)
    named = {source.stream: source.name for source in topology.sources if not is_open(source)}
    there = list(streams)
    instead: dict[str, tuple[str, ...]] = {}
    nodes: list[Node] = []
    for node in topology.nodes:
        if not isinstance(node, Source) or node.pattern is None or not is_open(node):
            parents = (name for parent in node.parents for name in instead.get(parent, (parent,)))
            nodes.append(replace(node, parents=tuple(parents)))
            continue
        found = matching(node.pattern, there)
        if not found:
            raise StreamNotFoundError(f"no stream matches the pattern {node.pattern!r} of {node.name!r}", "create one first")
        for stream in found:
            if stream in named:
                raise TopologyError(
                    f"stream {stream!r} matches the pattern {node.pattern!r} of {node.name!r}, and {named[stream]!r} reads it",
                    "a stream can be read once: leave it out of the pattern",
                )
            named[stream] = node.name
        instead[node.name] = tuple(f"{node.name}-{stream}" for stream in found)
        nodes.extend(replace(node, name=f"{node.name}-{stream}", stream=stream) for stream in found)
    return Topology(topology.application, tuple(nodes))


def new_matches(topology: Topology, streams: Iterable[StreamDescription]) -> list[str]:
    """Of the streams that are there those that the topology would read by a pattern, and does not yet."""
    known, patterns = set(topology.inputs), {source.pattern for source in topology.sources if source.pattern is not None}
    listed = list(streams)
    return sorted({name for pattern in patterns for name in matching(pattern, listed)} - known)


def check_outputs(topology: Topology, dead_letter: str | None = None) -> None:
    """Refuse a pattern that matches what the application itself writes: it would read that as an input, by mistake."""
    written = {node.stream for node in topology.nodes if isinstance(node, Sink) and isinstance(node.stream, str)}
    written |= {dead_letter} if dead_letter is not None else set()
    for source in topology.sources:
        own = [stream for stream in sorted(written) if source.pattern is not None and re.fullmatch(source.pattern, stream)]
        if own:
            raise TopologyError(
                f"the application writes to {few(own)}, which the pattern {source.pattern!r} of {source.name!r} matches",
                "leave it out of the pattern, or write to a stream of another name",
            )
