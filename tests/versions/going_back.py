"""What the tests of kept versions share: looking into the versions on record, and going back to one as a plan does it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.adapters.common import lease_holder as holders
from headrace.client.state_reader import entries_of
from headrace.client.store_form import form_of
from headrace.codec.documents import encode
from headrace.codec.job_records import STATE_VERSIONS
from headrace.core.rewind.state_history import StateVersion, abandoned_version, before_rewind, rewound
from headrace.core.topology.program import Program
from headrace.driver.maintenance.state_garbage import files_of
from headrace.driver.maintenance.state_versions import versions_of
from headrace.model.checkpoint import Checkpoint
from headrace.state_files.files import StateFiles
from headrace.testing.stores import StoredView

Choice = Callable[[Sequence[StateVersion], Checkpoint], StateVersion]


def recorded(system: Any, application: str) -> list[StateVersion]:
    """All versions on record, task after task, oldest first."""
    return [one for kept in versions_of(system.metadata_store(application)).values() for one in kept]


def values_of(checkpoint: Checkpoint, program: Program, store: str, state_uri: Path) -> dict[Any, Any]:
    """What a store holds in a checkpoint's state, read from its files, by a reader that remembers nothing."""
    form = form_of(program, store)
    assert form is not None
    return StoredView(store, form, lambda: entries_of([checkpoint.head], StateFiles(str(state_uri)), store)).all()


def files_on_disk(state_uri: Path, application: str) -> frozenset[str]:
    return frozenset(StateFiles(str(state_uri)).list(application))


def files_named(system: Any, application: str) -> frozenset[str]:
    """The files that the tasks' checkpoints, and all versions on record, build on."""
    current = system.job_store(application).checkpoints().values()
    return files_of([*current, *(one.checkpoint for one in recorded(system, application))])


def go_back(url: str, application: str, choice: Choice) -> None:
    """Let every task go back to the version that `choice` gives, of an application that does not run."""
    with hr.open_system(url) as system:
        store = system.job_store(application)
        now_us = time.time_ns() // 1000
        epoch = store.acquire(holders.this_process(uuid.uuid4().hex, now_us), now_us)
        checkpoints, left = [], []
        versions = versions_of(system.metadata_store(application))
        for task, checkpoint in store.checkpoints().items():
            kept = versions.get(task, ())
            version = choice(kept, checkpoint)
            if version == before_rewind(kept, checkpoint):  # the way back: nothing is left
                left.append(StateVersion(version.checkpoint, version.kept_us))
            else:
                left.append(abandoned_version(kept, checkpoint, version, now_us))
            checkpoints.append(rewound(checkpoint, version))
        versions = {one.key: encode(one) for one in left}
        store.commit_job_model(epoch, store.job_model(), checkpoints, {STATE_VERSIONS: versions})
        store.release(epoch)
