"""Where it is on record what going back across repartition streams goes by, and reading it; commands do so too."""

from __future__ import annotations

from headrace.codec.rewind import decode_cut, decode_flows, decode_rewind
from headrace.core.rewind.consistent_cuts import ConsistentCut, SubTopologyEdges
from headrace.core.rewind.rewinds import Rewind
from headrace.ports import MetadataStore

STATE_CUTS = "state-cuts"  # namespace: a cut's key to the cut; the driver's thread that keeps versions writes it
REWINDS = "rewinds"  # namespace: a rewind's key to the rewind; written with the job model
FLOWS = "flows"  # namespace, and its only key: the job's flows; written with the job model


def cuts_of(metadata: MetadataStore) -> tuple[ConsistentCut, ...]:
    """The cuts on record, of all sub-topologies, oldest first; also such whose versions are deleted, until the driver drops
    them."""
    cuts = (decode_cut(data, f"cut {key!r}") for key, data in metadata.all(STATE_CUTS).items())
    return tuple(sorted(cuts, key=lambda cut: (cut.kept_us, cut.key)))


def rewinds_of(metadata: MetadataStore) -> tuple[Rewind, ...]:
    """The rewinds on record, in the order in which they were applied."""
    rewinds = (decode_rewind(data, f"rewind {key!r}") for key, data in metadata.all(REWINDS).items())
    return tuple(sorted(rewinds, key=lambda rewind: rewind.taken_up_at_us))


def stored_flows(metadata: MetadataStore) -> tuple[SubTopologyEdges, ...] | None:
    """The flows of the job as it last ran, for callers without a topology; None where none are on record."""
    data = metadata.get(FLOWS, FLOWS)
    return None if data is None else decode_flows(data, "flows of the job")
