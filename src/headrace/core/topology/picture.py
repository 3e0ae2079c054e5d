"""The picture of a topology: one SVG, no script, no outside resource, for notebooks and pages.

Each sub-topology is a box with its operators in layers, parents above children; a dashed line is a repartition stream.
Whatever text comes from a user is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from headrace.core.topology.description import headline_of, sentence_of
from headrace.core.topology.engine_prefix import runs_in_jvm
from headrace.core.topology.sub_topologies import SubTopology, has_state, is_stateful, stores_of, sub_topologies_of
from headrace.errors import TopologyError
from headrace.model.topology import Node, Repartition, Sink, Source, Topology

# Lengths in pixels of the drawing; it shrinks to the width that it is given.
_WIDTH, _HEIGHT = 244, 46  # of one operator
_GAP_X, _GAP_Y = 22, 30
_PADDING, _TITLE = 18, 34
_BETWEEN = 44  # two sub-topologies
_LETTERS = 33  # that fit into an operator

_COLOURS = {
    "source": ("#e3effd", "#2f6fb8"),
    "spark": ("#fff1dc", "#c77d1e"),
    "state": ("#e2f4e6", "#2f8a4c"),
    "sink": ("#f1e7fb", "#7a4bb0"),
    "worker": ("#f5f6f8", "#7b8694"),
}
_LEGEND = (
    ("source", "reads"),
    ("spark", "in Spark's engine"),
    ("worker", "in the worker"),
    ("state", "has state"),
    ("sink", "writes"),
)


@dataclass(frozen=True, slots=True)
class _Box:
    """Where one sub-topology is drawn: the left upper corner of each operator, and its own size."""

    sub: SubTopology
    top: int
    width: int
    height: int
    places: Mapping[str, tuple[int, int]]


def picture_of(topology: Topology) -> str:
    """The topology as HTML: an SVG, or a line of text where there is nothing to draw or it does not fit together."""
    try:
        subs = sub_topologies_of(topology)
    except TopologyError as error:
        return f"<pre>{escape(str(error))}</pre>"
    if not subs:
        return f"<pre>application {escape(topology.application)}: no streams yet</pre>"
    boxes: list[_Box] = []
    top = _TITLE
    for sub in subs:
        boxes.append(_box(sub, top))
        top += boxes[-1].height + _BETWEEN
    width = max(2 * _PADDING + max(box.width for box in boxes), 560)
    height = top - _BETWEEN + _TITLE
    places = {name: place for box in boxes for name, place in box.places.items()}
    parts = [_text(_PADDING, 21, topology.application, 'font-weight="700" font-size="14"')]
    parts += [_frame(box) for box in boxes]
    parts += _lines(topology, places)
    parts += [_operator(topology, node, places[node.name]) for box in boxes for node in box.sub.nodes]
    parts += _legend(height - 14)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="topology of {escape(topology.application)}" '
        f'style="width:100%;max-width:{width}px;height:auto;background:#ffffff;border-radius:8px;'
        'font-family:system-ui,sans-serif;font-size:12px">' + "".join(parts) + "</svg>"
    )


def _box(sub: SubTopology, top: int) -> _Box:
    """Layers by the longest path from a source; within a layer in the order of the parents."""
    layer: dict[str, int] = {}
    for node in sub.nodes:
        layer[node.name] = max((layer[parent] + 1 for parent in node.parents), default=0)
    places: dict[str, tuple[int, int]] = {}
    right = 0
    for depth in range(max(layer.values()) + 1):
        nodes = [node for node in sub.nodes if layer[node.name] == depth]
        wanted = {node.name: _wanted_x(node, places) for node in nodes}
        x = 2 * _PADDING
        for node in sorted(nodes, key=lambda node: wanted[node.name]):
            x = max(x, wanted[node.name])
            places[node.name] = (x, top + _TITLE + depth * (_HEIGHT + _GAP_Y))
            x += _WIDTH + _GAP_X
        right = max(right, x - _GAP_X)
    height = _TITLE + (max(layer.values()) + 1) * (_HEIGHT + _GAP_Y) - _GAP_Y + _PADDING
    return _Box(sub, top, right, height, places)


def _wanted_x(node: Node, places: Mapping[str, tuple[int, int]]) -> int:
    return sum(places[parent][0] for parent in node.parents) // len(node.parents) if node.parents else 0


def _frame(box: _Box) -> str:
    title = f"{box.sub.title} · {'has state' if has_state(box.sub) else 'no state'}"
    return (
        f'<rect x="{_PADDING}" y="{box.top}" width="{box.width}" height="{box.height}" rx="10" '
        'fill="#fbfcfe" stroke="#c9d2de"/>'
        + _text(2 * _PADDING, box.top + 21, title, 'fill="#4a5766" font-weight="600"')
    )


def _operator(topology: Topology, node: Node, place: tuple[int, int]) -> str:
    x, y = place
    fill, stroke = _COLOURS[_look(node)]
    stores = ", ".join(store.name for store in stores_of(node))
    name = f"{node.name} ▤ {stores}" if stores and stores != node.name else f"{node.name} ▤" if stores else node.name
    return (
        f"<g><title>{escape(f'{node.name}: {sentence_of(topology, node)}')}</title>"
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="7" fill="{fill}" stroke="{stroke}"/>'
        + _text(x + 10, y + 19, _cut(name), f'fill="{stroke}" font-weight="600"')
        + _text(x + 10, y + 36, _cut(headline_of(topology, node)), 'fill="#333c47" font-size="11"')
        + "</g>"
    )


def _look(node: Node) -> str:
    if isinstance(node, Source):
        return "source"
    if isinstance(node, Sink | Repartition):
        return "sink"
    if is_stateful(node):
        return "state"
    return "spark" if runs_in_jvm(node) else "worker"


def _lines(topology: Topology, places: Mapping[str, tuple[int, int]]) -> list[str]:
    lines = [_line(places[parent], places[node.name], "") for node in topology.nodes for parent in node.parents]
    writers = [node for node in topology.nodes if isinstance(node, Repartition)]
    lines += [
        _line(places[writer.name], places[source.name], ' stroke-dasharray="5 4"')
        for writer in writers
        for source in topology.sources
        if source.stream == writer.stream
    ]
    return lines


def _line(start: tuple[int, int], end: tuple[int, int], style: str) -> str:
    x1, y1, x2, y2 = start[0] + _WIDTH // 2, start[1] + _HEIGHT, end[0] + _WIDTH // 2, end[1]
    bend = max((y2 - y1) // 2, 12)
    return (
        f'<path d="M{x1} {y1} C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}" fill="none" '
        f'stroke="#8a97a6" stroke-width="1.5"{style}/>'
        f'<path d="M{x2 - 4} {y2 - 6} L{x2} {y2} L{x2 + 4} {y2 - 6}" fill="none" stroke="#8a97a6" stroke-width="1.5"/>'
    )


def _legend(y: int) -> list[str]:
    parts: list[str] = []
    x = _PADDING
    for look, words in _LEGEND:
        fill, stroke = _COLOURS[look]
        parts.append(f'<rect x="{x}" y="{y - 9}" width="11" height="11" rx="3" fill="{fill}" stroke="{stroke}"/>')
        parts.append(_text(x + 16, y, words, 'fill="#5b6673" font-size="11"'))
        x += 30 + 7 * len(words)
    return parts


def _text(x: int, y: int, text: str, style: str) -> str:
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'


def _cut(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
