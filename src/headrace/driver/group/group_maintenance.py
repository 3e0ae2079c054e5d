"""What the leader of a group does in the background, for all processors: versions of the state, space that is reclaimed, and
what those have left that are there no more. Seed: SEP-11; protocol.md 20."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from headrace.core.group.grants import numbers_in_force
from headrace.core.topology.sub_topologies import has_state, sub_topologies_of
from headrace.driver.group.group_planner import GroupPlanner
from headrace.driver.maintenance.maintenance import Maintenance
from headrace.driver.maintenance.state_garbage import StateGarbage
from headrace.driver.maintenance.state_notes import StateNotes, given_state_id
from headrace.driver.maintenance.state_versions import versions_of
from headrace.driver.planning.job_plan import JobPlan
from headrace.errors import UnavailableError
from headrace.group.locality import GroupLocality
from headrace.state_files.files import StateFiles

LOG = logging.getLogger("headrace.group")


class GroupMaintenance:
    """Of one leadership, whose thread calls it: that thread alone gives grants and takes them back. `by`: the leader's
    registration; `holding`: held while something is written, when no heartbeat is.

    State files of rounds that never committed are looked for where grants have changed: then those of the grants before have
    no round to come.
    """

    def __init__(
        self, plans: GroupPlanner, files: StateFiles, locality: GroupLocality, by: int, holding: threading.Lock
    ) -> None:
        self._plans, self._files, self._locality, self._by, self._holding = plans, files, locality, by, holding
        self._backend = plans.planner.backend
        self._application = plans.planner.topology.application
        self._notes = StateNotes(files, self._application, self._backend.system.metadata_store(self._application))
        self._plan: JobPlan | None = None
        self._maintenance: Maintenance | None = None
        self._has_leftovers = False
        self._replaced = frozenset[str]()  # state files that are to be deleted, unless a version names them

    def sign(self, epoch: int, sign: Callable[[str], None]) -> None:
        """Have `sign` leave the sign of the run for the application's state, whose id it is called with."""
        if self._has_state():
            sign(given_state_id(self._backend.store, epoch, self._backend.system.metadata_store(self._application)))

    def leave_note(self, epoch: int) -> None:
        """Say whose the state files are, before any processor of this leadership writes one; see `StateNotes.leave`.
        `UnavailableError` where their folder does not answer."""
        if self._has_state():
            try:
                self._notes.leave(self._backend.store, epoch, lambda: self._garbage().named())
            except OSError as error:
                raise UnavailableError(f"state_uri {self._files.uri} cannot be written: {error}", "it is tried again") from None

    def _has_state(self) -> bool:
        return any(map(has_state, sub_topologies_of(self._plans.planner.topology)))

    def begin(self, epoch: int) -> None:
        """Of a leadership that has no plan yet: delete what the runs before have left. Where that cannot be, its plan does."""
        store = self._backend.store
        try:
            self._plans.fence_others(epoch)
            self._garbage().collect_orphans(lambda: store.check_epoch(epoch), self._in_force)
        except (OSError, UnavailableError) as error:  # one that sleeps in a transaction, say: it is fenced soon
            LOG.info("state files of rounds that never committed are deleted later: %s", getattr(error, "message", error))

    def _garbage(self) -> StateGarbage:
        """Of what is committed now."""
        garbage = StateGarbage(self._files, self._application, is_alone=self._notes.is_alone)
        garbage.committed(None, self._backend.store.checkpoints().values())
        versions = versions_of(self._backend.system.metadata_store(self._application))
        garbage.hold(version.checkpoint for kept in versions.values() for version in kept)
        return garbage

    def planned(self, plan: JobPlan, clock_us: Callable[[], int], pause_of: Callable[[str | None], int | None]) -> None:
        """This plan is in force from now on, or others have grants under it."""
        self._plan, self._has_leftovers = plan, True
        config = self._plans.planner.config
        self._maintenance = Maintenance(plan, self._backend, self._files, config, clock_us, pause_of)

    def due_cuts(self) -> frozenset[str | None]:
        """See `Maintenance.due_cuts`; none before there is a plan."""
        return frozenset() if self._maintenance is None else self._maintenance.due_cuts()

    def hear(self, cuts: Collection[str | None] | None = None) -> None:
        """Keep the versions that are due; `cuts` None: of all sub-topologies, of tasks that are each for itself. Checkpoints
        are read, not heard of: by an older one, files of a newer one would be deleted."""
        maintenance, plan, store = self._maintenance, self._plan, self._backend.store
        if maintenance is None or plan is None:
            return
        names = [sub.name for sub in maintenance.subs] if cuts is None else cuts
        self._replaced |= store.replaced_files()
        checkpoints = store.checkpoints()
        with self._holding:
            # One that has slept may lead no more: the next may have kept what this one would delete. Asked behind the reading:
            # what a later one keeps is in these checkpoints, or newer.
            store.check_epoch(plan.epoch)
            for name in names:
                with self._deleting():
                    maintenance.heard(name, [one for task, one in checkpoints.items() if task.sub_topology == name])
            maintenance.keep()
            if cuts is not None:
                return  # of the other sub-topologies it is not known what newer checkpoints name
            with self._deleting():
                maintenance.delete_replaced(self._replaced)
                self._replaced = frozenset()

    @contextmanager
    def _deleting(self) -> Iterator[None]:
        """What cannot be deleted now is tried again later."""
        try:
            yield
        except OSError as error:
            self._has_leftovers = True
            LOG.warning("state files that nothing needs could not be deleted, it is tried again: %s", error)

    def tidy(self) -> None:
        """Keep versions that are due, and delete what nothing needs any more."""
        maintenance, plan, has_leftovers = self._maintenance, self._plan, self._has_leftovers
        if maintenance is None or plan is None:
            return
        if has_leftovers:
            with self._holding:
                self._plans.fence_others(plan.epoch)
        self.hear()
        with self._holding:
            if has_leftovers:
                self._delete_leftovers(maintenance, plan)
            maintenance.reclaim()

    def _delete_leftovers(self, maintenance: Maintenance, plan: JobPlan) -> None:
        """After `hear`, which has read what was committed under grants that are not in force any more."""
        try:
            count = maintenance.delete_orphans(self._in_force)
        except OSError as error:
            LOG.warning("state files that no round has committed could not be deleted, it is tried again: %s", error)
            return
        self._locality.remove_all_but([task.name for task in plan.model.tasks], self._by)
        self._locality.forget_former(plan.rewound, self._by)
        self._has_leftovers = False
        if count:
            LOG.info("%d state files of rounds that never committed are deleted", count)

    def _in_force(self) -> frozenset[int]:
        return numbers_in_force(self._backend.store.grants() or {})
