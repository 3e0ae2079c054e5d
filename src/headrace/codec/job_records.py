"""Where a job's records are, namespace by namespace, and reading them: the driver and commands do so.

Requests are left by commands, and may come from anybody: one that cannot be read must not end a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from headrace.codec.documents import Flows, Operators, decode, encode
from headrace.core.elasticity.scales import ScaleRequests
from headrace.core.group.state import ModelOrigin
from headrace.core.job_plan.startpoint_requests import StartpointRequests
from headrace.core.rewind.consistent_cuts import ConsistentCut, SubTopologyEdges
from headrace.core.rewind.rewinds import Rewind
from headrace.core.topology.operator_changes import RunOperator
from headrace.errors import StorageError
from headrace.model.change import Change
from headrace.model.scale import ScaleRequest, StoredScales
from headrace.model.startpoint import StartpointRecord, StartpointRequest
from headrace.ports.metadata_store import Metadata, MetadataStore

# Written with the job model, but for the cuts, which the driver's thread that keeps versions writes, and the id of the state.
HISTORY = "history"  # a key that sorts by time to the `Change`
FLOWS = "flows"  # its only key: the job's flows
OPERATORS = "operators"  # its only key: the job's operators
GROUP_PLAN = "group-plan"  # its only key: what the leader of a group has made the job model for
REWINDS = "rewinds"  # a rewind's key to the rewind
SCALES = "scales"  # its only key: the scales of the job's sub-topologies; and the requests
STARTPOINTS = "startpoints"  # id to the record of a startpoint that was applied; and the requests
STATE_CUTS = "state-cuts"  # a cut's key to the cut
STATE_ID = "state-id"  # its only key: the id of the job's state, which stays where all else is forgotten
PARTITION_CHECKS = "partition-checks"  # requests only: to look at once at a stream that a command has expanded
STOPS = "stops"  # requests only: that a run stops
PARTITION_COUNTS = "partition-counts"  # stream to its record
SSP_ASSIGNMENT = "ssp-assignment"  # SSP to the names of the tasks that read it
LOCALITY = "locality"  # a task's name to `Lived.text`
STATE_VERSIONS = "state-versions"  # a version's key to the version
SPARED_FILES = "state-files-before-repairs"  # a repair to the state files that were there
HANDOVERS = "for_each_round"  # a sub-topology's title to what its function was last called with
DEAD_LETTERS = "dead-letters"  # its stream's id and PARTITION:OFFSET of a letter to what was done
NAMESPACES = frozenset(value for name, value in dict(globals()).items() if name.isupper())  # all of the above


def history_of(metadata: MetadataStore, unreadable: Callable[[StorageError], None] | None = None) -> dict[str, Change]:
    """The entries by key, oldest first. `unreadable` is called for each that cannot be read; without it that is raised."""
    found: dict[str, Change] = {}
    for key, data in sorted(metadata.all(HISTORY).items()):
        try:
            found[key] = decode(Change, data, f"entry {key!r} of the history")
        except StorageError as error:
            if unreadable is None:
                raise
            unreadable(error)
    return found


def stored_flows(metadata: MetadataStore) -> tuple[SubTopologyEdges, ...] | None:
    """The flows of the job as it last ran, for callers without a topology; None where none are on record."""
    data = metadata.get(FLOWS, FLOWS)
    return None if data is None else decode(Flows, data, "flows of the job").flows


def state_id_of(metadata: MetadataStore) -> str | None:
    """The id of the job's state, see `core.state_owners`; None where it has none yet."""
    data = metadata.get(STATE_ID, STATE_ID)
    return None if data is None else data.decode()


def stored_operators(metadata: MetadataStore) -> tuple[RunOperator, ...] | None:
    """The operators of the job as it last ran; None where none are on record."""
    data = metadata.get(OPERATORS, OPERATORS)
    return None if data is None else decode(Operators, data, "operators of the job").operators


def plan_origin_of(metadata: MetadataStore) -> ModelOrigin | None:
    """What the job model in force was made for, and which run has last found that it fits; None where no group has made it."""
    data = metadata.get(GROUP_PLAN, GROUP_PLAN)
    return None if data is None else decode(ModelOrigin, data, "origin of the group's job model")


def origin_entry(origin: ModelOrigin | None) -> Metadata:
    """What is stored of it with a job model, or with grants; None: one driver makes the job model."""
    return {GROUP_PLAN: {GROUP_PLAN: None if origin is None else encode(origin)}}


def cuts_of(metadata: MetadataStore) -> tuple[ConsistentCut, ...]:
    """The cuts of all sub-topologies, oldest first; also such whose versions are deleted, until the driver drops them."""
    cuts = (decode(ConsistentCut, data, f"cut {key!r}") for key, data in metadata.all(STATE_CUTS).items())
    return tuple(sorted(cuts, key=lambda cut: (cut.kept_us, cut.key)))


def rewinds_of(metadata: MetadataStore) -> tuple[Rewind, ...]:
    """The rewinds in the order in which they were applied."""
    rewinds = (decode(Rewind, data, f"rewind {key!r}") for key, data in metadata.all(REWINDS).items())
    return tuple(sorted(rewinds, key=lambda rewind: rewind.applied_at_us))


def startpoints_of(store: MetadataStore, elsewhere: Mapping[str, bytes] | None = None) -> StartpointRequests:
    """The startpoints that are requested, and those on record. `elsewhere`: requests that were read from another store."""
    found = store.requests(STARTPOINTS) | dict(elsewhere or {})
    requests: dict[str, StartpointRequest] = {}
    unreadable: dict[str, str] = {}
    for id_ in sorted(found):
        try:
            requests[id_] = decode(StartpointRequest, found[id_], "request for startpoints")
        except StorageError as error:
            unreadable[id_] = error.message
    stored = store.all(STARTPOINTS).items()
    records = {id_: decode(StartpointRecord, data, f"startpoint {id_!r}") for id_, data in stored}
    return StartpointRequests(requests, records, unreadable)


def scales_of(metadata: MetadataStore) -> ScaleRequests:
    """The scales on record, and what is requested of them, oldest first."""
    requests: dict[str, ScaleRequest] = {}
    unreadable: dict[str, str] = {}
    for id_, data in metadata.requests(SCALES).items():
        try:
            requests[id_] = decode(ScaleRequest, data, "request for a scale")
        except StorageError as error:
            unreadable[id_] = error.message
    in_order = sorted(requests.items(), key=lambda item: (item[1].requested_at_us, item[0]))
    stored = metadata.get(SCALES, SCALES)
    scales = StoredScales() if stored is None else decode(StoredScales, stored, "scales of the job")
    return ScaleRequests(scales, dict(in_order), unreadable)


def stop_request(run_id: str, requested_by: str) -> bytes:
    """What is left in `STOPS`: of this run only, so that it does not stop a later one."""
    return msgspec.json.encode({"run": run_id, "by": requested_by})


def stop_requested_by(requests: Iterable[bytes], run_id: str) -> str:
    """Who has requested that this run stops; empty where none of these is of it."""
    for request in requests:
        try:
            found = msgspec.json.decode(request, type=dict[str, str])
        except msgspec.MsgspecError:
            continue
        if found.get("run") == run_id:
            return found.get("by") or "somebody"
    return ""


def expansion_request(stream: str, partitions: int, requested_by: str) -> bytes:
    """What a command leaves in `PARTITION_CHECKS` once it has expanded a stream."""
    return msgspec.json.encode({"stream": stream, "partitions": partitions, "by": requested_by})


def expanders_of(requests: Iterable[bytes]) -> dict[tuple[str, int], str]:
    """Who has left such requests, by stream and its new number of partitions; without those that do not say."""
    expanders: dict[tuple[str, int], str] = {}
    for request in requests:
        try:
            found = msgspec.json.decode(request, type=dict[str, str | int])
        except msgspec.MsgspecError:
            continue
        stream, partitions, by = found.get("stream"), found.get("partitions"), found.get("by")
        if isinstance(stream, str) and isinstance(partitions, int) and isinstance(by, str):
            expanders[stream, partitions] = by
    return expanders
