"""The JSON forms of what going back across repartition streams goes by: cuts, rewinds, and the flows of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headrace.codec.checkpoint import WIRE, decoded, malformed
from headrace.core.rewind.consistent_cuts import ConsistentCut, SubTopologyEdges
from headrace.core.rewind.rewinds import Rewind
from headrace.model.checkpoint import RoundId
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

_Partition = tuple[str, str, int]  # system, stream, partition: a whole one


class _CutForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    sub_topology: str | None
    kept_us: int
    rounds: dict[str, RoundId]
    written: tuple[tuple[_Partition, int], ...]


class _RewindForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    taken_up_at_us: int
    rounds: dict[str, RoundId]
    gaps: tuple[tuple[_Partition, tuple[int, int]], ...]


class _FlowForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str | None
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    has_state: bool


class _FlowsForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    flows: tuple[_FlowForm, ...]


def encode_cut(cut: ConsistentCut) -> bytes:
    written = tuple((_partition(ssp), cut.written[ssp]) for ssp in sorted(cut.written))
    return msgspec.json.encode(_CutForm(WIRE, cut.sub_topology, cut.kept_us, _by_text(cut.rounds), written))


def decode_cut(data: bytes | str, what: str = "cut") -> ConsistentCut:
    """The cut that `data` stands for; `StorageError` that names it as `what` where it cannot be read."""
    form = decoded(data, _CutForm, what)
    try:
        return ConsistentCut(
            form.sub_topology, form.kept_us, _by_task(form.rounds), {SSP(*place): end for place, end in form.written}
        )
    except ValueError as error:
        raise malformed(what, error) from error


def encode_rewind(rewind: Rewind) -> bytes:
    gaps = tuple((_partition(ssp), rewind.gaps[ssp]) for ssp in sorted(rewind.gaps))
    return msgspec.json.encode(_RewindForm(WIRE, rewind.taken_up_at_us, _by_text(rewind.rounds), gaps))


def decode_rewind(data: bytes | str, what: str = "rewind") -> Rewind:
    """See `decode_cut`."""
    form = decoded(data, _RewindForm, what)
    try:
        return Rewind(form.taken_up_at_us, _by_task(form.rounds), {SSP(*place): span for place, span in form.gaps})
    except ValueError as error:
        raise malformed(what, error) from error


def encode_flows(flows: Iterable[SubTopologyEdges]) -> bytes:
    forms = tuple(_FlowForm(flow.name, flow.reads, flow.writes, flow.has_state) for flow in flows)
    return msgspec.json.encode(_FlowsForm(WIRE, forms))


def decode_flows(data: bytes | str, what: str = "flows of the job") -> tuple[SubTopologyEdges, ...]:
    """See `decode_cut`. They are in the order in which they were given."""
    form = decoded(data, _FlowsForm, what)
    return tuple(SubTopologyEdges(one.name, one.reads, one.writes, one.has_state) for one in form.flows)


def _partition(ssp: SSP) -> _Partition:
    assert ssp.key_bucket is None, f"{ssp}: ranges are written or skipped for whole partitions"
    return ssp.system, ssp.stream, ssp.partition


def _by_text(rounds: Mapping[TaskName, RoundId]) -> dict[str, RoundId]:
    return {str(task): rounds[task] for task in sorted(rounds)}


def _by_task(rounds: Mapping[str, RoundId]) -> dict[TaskName, RoundId]:
    return {TaskName.parse(text): round_id for text, round_id in rounds.items()}
