"""The picture of a topology: one SVG, no script, no style, no outside resource, for notebooks and pages. Each sub-topology is a
box with its operators in layers, parents above children; a dashed line is a repartition stream. What reads or writes a stream
has its name as `data-stream`. Its parts have classes, by which a page that is dark gives them other colours. Whatever text
comes from a user is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from headrace.core.topology.description import description_of
from headrace.core.topology.description_text import headline_of, operators_of, sentence_of
from headrace.errors import TopologyError
from headrace.model.topology import Topology

# Lengths in pixels of the drawing; it shrinks to the width that it is given.
_WIDTH, _HEIGHT = 244, 46  # of one operator
_GAP_X, _GAP_Y = 22, 30
_PADDING, _TITLE = 18, 34
_BETWEEN = 44  # two sub-topologies
_LETTERS = 33  # that fit into an operator

_Place = tuple[int, int]  # the left upper corner of an operator
# What the legend says of each look of an operator, the colour that fills it, and that of its border and its name (4.5 to 1).
_LOOKS = {
    "source": ("reads", "#e3effd", "#2a64a8"),
    "spark": ("in Spark's engine", "#fff1dc", "#8f5610"),
    "worker": ("in the worker", "#f5f6f8", "#5d6875"),
    "state": ("has state", "#e2f4e6", "#25733d"),
    "sink": ("writes", "#f1e7fb", "#7a4bb0"),
}


def picture_of(topology: Topology) -> str:
    """The topology as HTML: an SVG, or a line of text where there is nothing to draw or it does not fit together."""
    try:
        subs = description_of(topology)["sub_topologies"]
    except TopologyError as error:
        return f"<pre>{escape(str(error))}</pre>"
    name = escape(topology.application)
    if not subs:
        return f"<pre>application {name}: no streams yet</pre>"
    places: dict[str, _Place] = {}
    top, width, frames = _TITLE, 560 - 2 * _PADDING, []
    for sub in subs:
        right, height = _placed(operators_of(sub), top, places)
        title = f"{sub['name']} · {'has state' if sub['has_state'] else 'no state'}"
        frames.append(_rect(_PADDING, top, right, height, 10, _style("frame", "#fbfcfe", "#c9d2de")))
        frames.append(_text(2 * _PADDING, top + 21, title, 'class="soft" fill="#4a5766" font-weight="600"'))
        top += height + _BETWEEN
        width = max(width, right)
    width, height = width + 2 * _PADDING, top - _BETWEEN + _TITLE
    operators = [operator for sub in subs for operator in operators_of(sub)]
    parts = [_text(_PADDING, 21, topology.application, 'class="ink" font-weight="700" font-size="14"'), *frames]
    parts += _lines(operators, places)
    parts += [_operator(operator, *places[operator["name"]]) for operator in operators]
    parts += _legend(height - 14)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="topology of {name}" font-family="system-ui,sans-serif" font-size="12">'
        + _rect(0, 0, width, height, 8, _style("paper", "#ffffff", "none"))
        + "".join(parts)
        + "</svg>"
    )


def _placed(operators: list[dict[str, Any]], top: int, places: dict[str, _Place]) -> tuple[int, int]:
    """Put the operators into `places`, in layers by the longest path from a source, within a layer in the order of their
    parents; how far right and down they reach."""
    layers: dict[str, int] = {}
    for operator in operators:
        layers[operator["name"]] = max((layers[parent] + 1 for parent in operator["parents"]), default=0)
    right, depth = 0, max(layers.values()) + 1
    for layer in range(depth):
        x = 2 * _PADDING
        wanted = {one["name"]: _wanted_x(one["parents"], places) for one in operators if layers[one["name"]] == layer}
        for name in sorted(wanted, key=lambda name: wanted[name]):
            x = max(x, wanted[name])
            places[name] = (x, top + _TITLE + layer * (_HEIGHT + _GAP_Y))
            x += _WIDTH + _GAP_X
        right = max(right, x - _GAP_X)
    return right, _TITLE + depth * (_HEIGHT + _GAP_Y) - _GAP_Y + _PADDING


def _wanted_x(parents: list[str], places: Mapping[str, _Place]) -> int:
    return sum(places[parent][0] for parent in parents) // len(parents) if parents else 0


def _operator(operator: dict[str, Any], x: int, y: int) -> str:
    name, stores = operator["name"], ", ".join(operator.get("stores", ()))
    look = _look(operator)
    _, fill, stroke = _LOOKS[look]
    title = f"{name} ▤ {stores}" if stores and stores != name else f"{name} ▤" if stores else name
    stream = f' data-stream="{escape(operator["stream"])}"' if operator.get("stream") else ""
    return (
        f"<g{stream}><title>{escape(f'{name}: {sentence_of(operator)}')}</title>"
        + _rect(x, y, _WIDTH, _HEIGHT, 7, _style(look, fill, stroke))
        + _text(x + 10, y + 19, _cut(title), f'class="{look}" fill="{stroke}" font-weight="600"')
        + _text(x + 10, y + 36, _cut(headline_of(operator)), 'class="ink" fill="#333c47" font-size="11"')
        + "</g>"
    )


def _look(operator: dict[str, Any]) -> str:
    if operator["kind"] in ("stream", "table", "repartition-source"):
        return "source"
    if operator["kind"] in ("to", "repartition"):
        return "sink"
    if operator.get("stores") or operator.get("timers"):
        return "state"
    return str(operator["engine"])


def _lines(operators: list[dict[str, Any]], places: Mapping[str, _Place]) -> list[str]:
    lines = [_line(places[parent], places[one["name"]], "") for one in operators for parent in one["parents"]]
    readers = [one for one in operators if _look(one) == "source"]
    return lines + [
        _line(places[writer["name"]], places[reader["name"]], ' stroke-dasharray="5 4"')
        for writer in operators
        for reader in readers
        if writer["kind"] == "repartition" and reader["stream"] == writer["stream"]
    ]


def _line(start: _Place, end: _Place, style: str) -> str:
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
    for look, (words, fill, stroke) in _LOOKS.items():
        parts.append(_rect(x, y - 9, 11, 11, 3, _style(look, fill, stroke)))
        parts.append(_text(x + 16, y, words, 'class="soft" fill="#5b6673" font-size="11"'))
        x += 30 + 7 * len(words)
    return parts


def _rect(x: int, y: int, width: int, height: int, radius: int, style: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" {style}/>'


def _style(name: str, fill: str, stroke: str) -> str:
    """Of the class `name`, in these colours where no page gives it others."""
    return f'class="{name}" fill="{fill}" stroke="{stroke}"'


def _text(x: int, y: int, text: str, style: str) -> str:
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'


def _cut(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
