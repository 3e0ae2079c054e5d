"""Which run of the application a group is in. Seed: SEP-11 ("Semantics of host affinity with run.id").

A run begins when a processor joins an empty group, and lasts while it is not empty: its leaders vouch for it one after the
other.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.core.group.membership import leader_of
from headrace.core.group.state import GroupRun, GroupState, ModelOrigin
from headrace.errors import ConfigError


def run_as_leader(stored: GroupRun | None, mine: str | None, bounded: bool, new_id: str, sequence: int) -> GroupRun:
    """The run that the leader with this registration is to vouch for. `mine`: the id of the run that it takes part in; None
    where it has just started and never heard of one: then none before it counts, as the group was empty, or as those before
    it left without having vouched for one."""
    if mine is None:
        return GroupRun(new_id, bounded, sequence)
    if stored is None:  # ZooKeeper has come back empty
        return GroupRun(mine, bounded, sequence)
    return stored if stored.has_ended else replace(stored, leader=sequence)


def run_as_member(stored: GroupRun | None, leader: int, bounded: bool) -> GroupRun | None:
    """The run that a processor joins while the one with the registration `leader` leads; None while that has not vouched for
    one, or the run has ended: then it waits until it leads. `ConfigError` where one of them ends at the ends of the inputs
    and the other does not."""
    if stored is None or stored.leader != leader or stored.has_ended:
        return None
    if stored.bounded != bounded:
        kinds = {True: "ends when it has caught up", False: "never ends"}
        raise ConfigError(
            f"the run of the group {kinds[stored.bounded]}, and that of this processor {kinds[bounded]}",
            "start all processors of a group with the same --until",
        )
    return stored


def run_in_force(state: GroupState) -> GroupRun | None:
    """The run that a processor which joins now will take part in, as far as that can be seen: its leader is there, and it has
    not ended."""
    leader = leader_of(state.members)
    run = state.run
    return run if leader is not None and run is not None and run.leader == leader.sequence and not run.has_ended else None


def forgets_affinity(run: GroupRun, origin: ModelOrigin | None, has_planned: bool) -> bool:
    """Whether the next plan has tasks go to any processor, wherever they were. `has_planned`: the plan in force was made in
    this run; `origin` None: ZooKeeper does not know what it was made for."""
    return not has_planned and not keeps_affinity(run, origin or ModelOrigin("", ""))


def keeps_affinity(run: GroupRun, origin: ModelOrigin | None) -> bool:
    """Whether tasks stay where they were under the job model of `origin`, None where there is none. A run without an end
    continues any before it; one that is bounded only itself."""
    return origin is not None and (not run.bounded or origin.run_id == run.id)
