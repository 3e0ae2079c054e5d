"""The description of a topology in words: as text for people, and as a Mermaid diagram."""

from __future__ import annotations

from typing import Any, cast

from headrace.core.topology.description import description_of
from headrace.core.topology.description_types import SubTopologyDescription
from headrace.core.topology.partition_counts import Stated
from headrace.model.topology import Topology

_NOT_BY_KEY = "not partitioned by key"
_JOINS = ("join", "left_join", "outer_join")


def text_of(topology: Topology) -> str:
    """The topology for people to read, ending in a newline."""
    described = description_of(topology)
    lines = [f"application {described['application']}"]
    for sub in described["sub_topologies"]:
        lines += ["", *_sub_topology_lines(sub)]
    return "\n".join(lines) + "\n"


def mermaid_of(topology: Topology) -> str:
    """The topology as a Mermaid flowchart: one box per sub-topology, streams between them."""
    ids: dict[str, str] = {}
    lines = ["flowchart TD"]
    edges: list[str] = []
    streams: dict[str, str] = {}
    labels: dict[str, str] = {}

    def stream_id(name: str) -> str:
        return streams.setdefault(name, f"s{len(streams)}")

    for number, sub in enumerate(description_of(topology)["sub_topologies"]):
        lines.append(f'    subgraph t{number}["{_escaped(sub["name"])}"]')
        for operator in operators_of(sub):
            own = ids.setdefault(operator["name"], f"o{len(ids)}")
            opening, closing = ("[(", ")]") if operator.get("stores") else ("[", "]")
            more = f"<br/>store {', '.join(operator['stores'])}" if operator.get("stores") else ""
            more += f"<br/>{_NOT_BY_KEY}" if "partitioning" in operator else ""
            lines.append(f'        {own}{opening}"{_escaped(headline_of(operator))}{more}"{closing}')
            edges += [f"    {ids[parent]} --> {own}" for parent in operator["parents"]]
            if operator["kind"] in ("stream", "table", "repartition-source"):
                edges.append(f"    {stream_id(operator['stream'])} --> {own}")
            elif operator["kind"] in ("to", "repartition"):
                edges.append(f"    {own} --> {stream_id(operator['stream'])}")
            if operator["kind"] == "repartition":
                labels[operator["stream"]] = _stream_label(operator)
        lines.append("    end")
    lines += [f'    {own}(["{labels.get(name) or _escaped(name)}"])' for name, own in streams.items()]
    return "\n".join(lines + edges) + "\n"


def _stream_label(operator: dict[str, Any]) -> str:
    """Of a repartition stream, for its box: its name, then a line for the partitions and one for the serdes."""
    partitions = ", ".join([_partitions_text(operator), *_partitioner_parts(operator)])
    serdes = ", ".join(f"{part} {operator[part]}" for part in ("key", "value") if operator[part] is not None)
    return "<br/>".join(_escaped(line) for line in (operator["stream"], partitions, serdes))


def operators_of(sub: SubTopologyDescription) -> list[dict[str, Any]]:
    """The operators, to be read by keys that are not literals."""
    return cast(list[dict[str, Any]], sub["operators"])


def _sub_topology_lines(sub: SubTopologyDescription) -> list[str]:
    state = "has state" if sub["has_state"] else "no state"
    after = f", after {', '.join(sub['upstream'])}" if sub["upstream"] else ""
    operators = operators_of(sub)
    width = max(len(operator["name"]) for operator in operators)
    lines = [f"sub-topology {sub['name']} ({state}{after})", f"  reads  {', '.join(sub['reads'])}"]
    lines += [f"  writes {', '.join(sub['writes'])}"] if sub["writes"] else []
    for operator in operators:
        arrow = f"  <- {', '.join(operator['parents'])}" if operator["parents"] else ""
        lines.append(f"  {operator['name']:<{width}}  {sentence_of(operator)}{arrow}")
    return lines + [
        f"  store {store['name']}: {store['kind']}, kept {store['kept']}, {store['form']}" for store in sub["stores"]
    ]


def sentence_of(operator: dict[str, Any]) -> str:
    """All that is to be said about an operator, in one line."""
    kind = operator["kind"]
    parts = [headline_of(operator)]
    if kind != "repartition-source":  # its serdes are shown at the operator that writes the stream
        parts += [f"{part} {operator[part]}" for part in ("key", "value") if operator.get(part) is not None]
    if "start" in operator:
        parts += _source_parts(operator)
    elif kind == "repartition":
        parts += [_partitions_text(operator), *_partitioner_parts(operator)]
        parts += ["added automatically"] if operator["generated"] else []
    elif kind == "to":
        parts += _partitioner_parts(operator)
    elif kind == "process":
        parts += ["has timers"] if operator["timers"] else []
    elif kind == "drop_duplicates":
        parts += [f"by {operator.get('by', 'the key')}", f"within {operator['within']}"]
    elif kind in _JOINS:
        parts += _join_parts(operator)
    if "emit" in operator:
        parts.append("every update")
    if "windows" in operator:
        parts.append(_windows_text(operator["windows"]))
    if operator["engine"] == "spark":
        parts.append("in Spark")
    return ", ".join(parts)


def headline_of(operator: dict[str, Any]) -> str:
    """An operator's kind, and the one thing that says most about it."""
    kind = operator["kind"]
    match kind:
        case "stream" | "table" | "to":
            return f"{kind} {operator['stream']}"
        case "repartition-source":
            return f"repartition {operator['stream']}"
        case "repartition":
            return f"write to {operator['stream']}"
        case "process":
            return f"process {operator['processor']}"
        case "split":
            return f"split {' | '.join(operator['predicates'])}"
        case "split-output":
            return f"output {operator['output'] + 1}"
        case "suppress" if "limit" in operator:
            return f"at most one update of a key in {operator['limit']}"
        case "suppress":
            return "the last value of each window, when it closes"
        case "table-store" if "history" in operator:
            return f"keep the values per key, with a history of {operator['history']}"
        case "table-store":
            return "keep the last value per key"
    if "aggregates" in operator:
        return "aggregate " + ", ".join(f"{name}={what}" for name, what in operator["aggregates"].items())
    return f"{kind} {operator['function']}" if operator.get("function") else str(kind)


def _source_parts(operator: dict[str, Any]) -> list[str]:
    parts = [f"from {operator['start']}"]
    if operator.get("broadcast"):
        parts.append("all of it in every task")
    if operator["reset_offset"]:
        parts.append("at every start")
    if "timestamp" in operator:
        unit = f" in {operator['timestamp_unit']}" if "timestamp_unit" in operator else ""
        parts.append(f"timestamp {operator['timestamp']}{unit}")
    if "partitioning" in operator:
        parts.append(_NOT_BY_KEY)
    return parts


def _partitions_text(operator: dict[str, Any]) -> str:
    count, are, of = operator["partitions"], operator["partitions_are"], ", ".join(operator.get("partitions_of", ()))
    if count is None:
        return f"as many partitions as the largest of {of}" if of else "as many partitions as its sources"
    text = f"{count} partition{'s' * (count != 1)}"
    if are == Stated.HINT or operator.get("partitions_if_new"):
        text += " if it is new"
    return f"{text}, as {of} has, which it is {are} with" if of else text


def _partitioner_parts(operator: dict[str, Any]) -> list[str]:
    return [] if operator["partitioner"] is None else [f"partitioner {operator['partitioner']}"]


def _join_parts(operator: dict[str, Any]) -> list[str]:
    if operator["sides"] == "foreign-key":
        return ["table with table, by the foreign key"]
    left, right = operator["sides"].split("-")
    parts = [f"{left} with {'global table' if right == 'global' else right}"]
    if "key_of" in operator:
        parts.append(f"by {operator['key_of']}")
    if "within" in operator:
        parts.append(f"within {operator['within']}, open for {operator['kept']} more")
    if "before" in operator:
        lengths = f"from {operator['before']} before to {operator['after']} after it"
        parts.append(f"{lengths}, open for {operator['kept']} more")
    if "grace" in operator:
        parts.append(f"as of its time, {operator['grace']} past that")
    return parts


def _windows_text(windows: dict[str, Any]) -> str:
    late = "nothing is late while kept" if windows["grace"] is None else f"grace {windows['grace']}"
    if "gap" in windows:
        return f"sessions with gaps of up to {windows['gap']}, {late}, kept {windows['kept']} past the gap after them"
    if "length" in windows:
        return f"sliding windows of {windows['length']}, {late}, kept {windows['kept']} past their end"
    if "start" in windows:
        return f"one window from {windows['start']} on, kept for ever"
    hop = "" if windows["advance"] == windows["size"] else f" every {windows['advance']}"
    return f"windows of {windows['size']}{hop}, {late}, kept {windows['kept']} past their end"


def _escaped(text: str) -> str:
    """For a quoted Mermaid label, whose entities are written with # instead of &."""
    return text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;").replace("\n", " ")
