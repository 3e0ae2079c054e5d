"""What ZooKeeper shows of the job model in force: its leader writes it again where that is missing, or not whole."""

from __future__ import annotations

import logging

from headrace.codec.documents import encode
from headrace.core.group.state import BarrierState, GroupState, ModelOrigin
from headrace.errors import StorageError
from headrace.group.leading import Leading
from headrace.group.processor_group import ProcessorGroup
from headrace.model.job_model import JobModel

LOG = logging.getLogger("headrace.group")


def show_again(leading: Leading, state: GroupState, model: JobModel, origin: ModelOrigin) -> None:
    """The tree does not show the plan in force: it has come back empty, or a leader has ended in between. `origin`: what the
    plan was made for."""
    LOG.info("job model %d is in force, and ZooKeeper shows %d: it is written again", model.version, state.versions.active)
    is_waiting = state.barrier is not None and state.barrier.state is BarrierState.NEW
    if state.versions.proposed == model.version and is_waiting and leading.publish(model.version):
        return
    leading.restore(model.version, encode(model), origin)


def check_shown(group: ProcessorGroup, leading: Leading, state: GroupState, model: JobModel) -> None:
    """Once: the leader before may have shown a job model that is torn, or another program has altered it since. Processors
    load what is committed, from Kafka; so it is written again, for who looks at the tree."""
    if state.versions.active != model.version or state.origin is None:
        return
    try:
        group.job_model(model.version)
    except StorageError as error:
        LOG.warning("%s: job model %d is written again", error.message, model.version)
        leading.restore(model.version, encode(model), state.origin)
