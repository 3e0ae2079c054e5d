"""What is to be seen of a group: its processors, the proposal and its barrier, its run. Seed: SEP-11 (ZK data model)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class Registration:
    """One incarnation of a processor, as it presents itself. `code`: the fingerprint of the topology and of the settings that
    shape plans; `slots`: how many containers of a sub-topology it runs at once. The last four say which process it is."""

    processor_id: str
    location_id: str
    slots: int
    code: str
    host: str
    pid: int
    process_started: str
    boot_id: str

    def __post_init__(self) -> None:
        if not self.processor_id or self.slots < 1:
            raise ValueError(f"processor {self.processor_id!r} with {self.slots} slots")


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A processor that is there, under the number of its registration. `registration` is None where it cannot be read: of a
    newer version of Headrace, or damaged."""

    sequence: int
    registration: Registration | None

    @property
    def processor_id(self) -> str | None:
        return None if self.registration is None else self.registration.processor_id


def incarnation_of(member: GroupMember) -> str:
    """A text that no other process has, and no other registration of its own. Numbers of registrations alone are used again
    where ZooKeeper has come back empty.

    >>> incarnation_of(GroupMember(7, Registration("p", "host-1", 1, "code", "host-1", 17, "99@4", "boot")))
    '7 boot 17 99@4'
    """
    found = member.registration
    process = "" if found is None else f" {found.boot_id} {found.pid} {found.process_started}"
    return f"{member.sequence}{process}"


@dataclass(frozen=True, slots=True)
class ModelVersions:
    """Which job model is in force, and which was proposed last; 0 for none. `proposed` is above `active` while a proposal
    waits, and after one that was abandoned."""

    proposed: int = 0
    active: int = 0


class BarrierState(Enum):
    NEW = "NEW"
    DONE = "DONE"
    TIMED_OUT = "TIMED_OUT"


@dataclass(frozen=True, slots=True)
class ReleaseBarrier:
    """The barrier of a proposal. DONE and TIMED_OUT are final. `joined`: the registrations of who has released what it
    loses."""

    version: int
    state: BarrierState
    joined: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupRun:
    """A run of the application by the group. `leader`: the registration of the leader that vouches for it: what another has
    left may be of a run before. `targets`: SSP to the offset at which a bounded run ends."""

    id: str
    bounded: bool
    leader: int
    state: str = "running"
    targets: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.state not in ("running", "ended"):
            raise ValueError(f"run {self.id!r} is {self.state!r}: expected 'running' or 'ended'")

    @property
    def has_ended(self) -> bool:
        return self.state == "ended"


@dataclass(frozen=True, slots=True)
class ModelOrigin:
    """What a job model was made for: code of the application, and run. `changed`: the ids of the processors whose portions it
    changes, as it was proposed."""

    code: str
    run_id: str
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PauseRequest:
    """The leader asks that no round of these sub-topologies runs. `number`: no other request has it; `leader`: the registration
    of who asks; `sub_topologies`: their titles; `positions`: SSP to the offset up to which tasks are to read before they rest,
    absent where they rest where they are."""

    number: int
    leader: int
    sub_topologies: tuple[str, ...] = ()
    positions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupState:
    """All of it, as one process has read it. `members` by registration; `barrier`: of the version that was proposed last;
    `highest_version`: no number above it was ever used for a proposal, as far as this process has seen; `origin`: of the
    active job model, `proposed_origin`: of the one that was proposed last, where that is another; `awaited`: the ids of
    processors that are marked to be waited for, `marked`: those whom a leader has marked, see `core.group.returns`; `pause`:
    the one that was requested last; `rests`: registration to the number of the pause that this processor rests for, as only a
    leader reads it."""

    members: tuple[GroupMember, ...] = ()
    versions: ModelVersions = ModelVersions()
    highest_version: int = 0
    barrier: ReleaseBarrier | None = None
    origin: ModelOrigin | None = None
    proposed_origin: ModelOrigin | None = None
    run: GroupRun | None = None
    awaited: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()
    pause: PauseRequest | None = None
    rests: Mapping[int, int] = field(default_factory=dict)
