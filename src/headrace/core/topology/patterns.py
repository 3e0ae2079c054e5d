"""Sources that are declared by patterns: one source for each stream that matches, as if each were declared by its name.

A topology is declared before its system is known, with one source for the patterns of a call (`stream` is their text). Before a
job is planned, and as often as it is planned again, that source gives way to those of the streams that are there. They have the
patterns on them still, so that a job that runs knows what else would match; so have the sources that the same call declares by
name, which come together with it in one `Merge`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from headrace.core.topology.sub_topologies import REPARTITION_SUFFIX
from headrace.errors import StreamNotFoundError, TopologyError
from headrace.model.names import few, is_name
from headrace.model.streams import StreamDescription
from headrace.model.topology import Merge, Node, Sink, Source, Topology

_INTERNAL = (REPARTITION_SUFFIX, "-metadata", "-checkpoints")


def has_patterns(topology: Topology) -> bool:
    return any(source.patterns for source in topology.sources)


def text_of_patterns(patterns: Iterable[str]) -> str:
    """What the stream of a source that is open is called: no name of a stream.

    >>> text_of_patterns(["orders-.*"]), text_of_patterns(["a-.*", "b-.*"])
    ('orders-.*', 'a-.*, b-.*')
    """
    return ", ".join(patterns)


def is_open(source: Source) -> bool:
    """Whether it stands for all streams that match. No pattern is a name, so that none of these has it as its own."""
    return bool(source.patterns) and source.stream == text_of_patterns(source.patterns)


def is_read_by(source: Source, stream: str) -> bool:
    return source.stream == stream or (is_open(source) and _is_match(source.patterns, stream))


def matching(patterns: Iterable[str], streams: Iterable[StreamDescription]) -> list[str]:
    """The names of those that match one as a whole, sorted; those that applications keep for themselves never do, nor any that
    is named as these are: whose it is may not be known yet, such as while an application starts.

    >>> streams = [StreamDescription("orders-a", 1, "1"), StreamDescription("orders-a2", 1, "2", internal_of="orders")]
    >>> matching(["orders-.*"], streams), matching(["orders", "o.*"], streams)
    (['orders-a'], ['orders-a'])
    >>> matching([".*"], [StreamDescription("x-metadata", 1, "3")])
    []
    """
    wanted = tuple(patterns)
    users = (one.name for one in streams if one.internal_of is None and not one.name.endswith(_INTERNAL))
    return sorted(name for name in users if _is_match(wanted, name) and is_name(name))


def _is_match(patterns: Iterable[str], stream: str) -> bool:
    return any(re.fullmatch(pattern, stream) for pattern in patterns)


def with_matches(topology: Topology, streams: Iterable[StreamDescription], dead_letter: str | None) -> Topology:
    """The topology as it is for the streams that are there. `StreamNotFoundError` where none matches the patterns of a call
    that has no names either, `TopologyError` where a stream would be read by two calls, or is what the application writes
    (`dead_letter` too)."""
    check_outputs(topology, dead_letter)
    named = {source.stream: source.name for source in topology.sources if not is_open(source)}
    there, together = list(streams), _declared_together(topology)
    instead: dict[str, tuple[str, ...]] = {}
    nodes: list[Node] = []
    for node in topology.nodes:
        if not isinstance(node, Source) or not is_open(node):
            if isinstance(node, Source) and node.name in together:
                node = replace(node, patterns=together[node.name].patterns)
            parents = (name for parent in node.parents for name in instead.get(parent, (parent,)))
            nodes.append(replace(node, parents=tuple(parents)))
            continue
        pattern, siblings = node.stream, {stream for stream, name in named.items() if together.get(name) is node}
        found = [stream for stream in matching(node.patterns, there) if stream not in siblings]
        if not found and not siblings:
            raise StreamNotFoundError(f"no stream matches the pattern {pattern!r} of {node.name!r}", "create one first")
        for stream in found:
            if stream in named:
                raise TopologyError(
                    f"stream {stream!r} matches the pattern {pattern!r} of {node.name!r}, and {named[stream]!r} reads it",
                    "a stream can be read once: leave it out of the pattern",
                )
            named[stream] = node.name
        instead[node.name] = tuple(f"{node.name}-{stream}" for stream in found)
        nodes.extend(replace(node, name=f"{node.name}-{stream}", stream=stream) for stream in found)
    return Topology(topology.application, tuple(nodes))


def _declared_together(topology: Topology) -> dict[str, Source]:
    """The sources that one call declares by name beside patterns, to the open source of these."""
    by_name = {source.name: source for source in topology.sources}
    found: dict[str, Source] = {}
    for node in topology.nodes:
        sources = [by_name[name] for name in node.parents if name in by_name] if isinstance(node, Merge) else []
        for patterned in (source for source in sources if is_open(source)):
            found |= {source.name: patterned for source in sources if source is not patterned}
    return found


def new_matches(topology: Topology, streams: Iterable[StreamDescription]) -> list[str]:
    """Of the streams that are there those that the topology would read by a pattern, and does not yet."""
    patterns = {pattern for source in topology.sources for pattern in source.patterns}
    return sorted(set(matching(patterns, streams)) - set(topology.inputs))


def check_outputs(topology: Topology, dead_letter: str | None = None) -> None:
    """Refuse a pattern that matches what the application itself writes: it would read that as an input, by mistake."""
    written = {node.stream for node in topology.nodes if isinstance(node, Sink) and isinstance(node.stream, str)}
    written |= {dead_letter} if dead_letter is not None else set()
    for source in topology.sources:
        own = [stream for stream in sorted(written) if is_open(source) and _is_match(source.patterns, stream)]
        if own:
            pattern = source.stream
            raise TopologyError(
                f"the application writes to {few(own)}, which the pattern {pattern!r} of {source.name!r} matches",
                "leave it out of the pattern, or write to a stream of another name",
            )
