"""What the driver, a worker and the worker's process that restores local stores tell each other, in JSON.

The driver sends a `StoresToRestore` to a worker at the container's location, again and again, and gets a `RestoreAnswer` at
once. The worker hands the first one to a process, which leaves an answer in a file, for every worker process of the machine."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from headrace.model.checkpoint import Head

LEASE_S = 60.0  # a process that was not asked about for so long ends: its driver has ended, or has no worker free


class StoresToRestore(msgspec.Struct, frozen=True):
    """The stores of the tasks of one container: `heads` by task. `location`: where these are to be; the rest as in
    `ContainerPlan`. `is_wanted` False: what is under way for this is to end. `inline_bytes`: where opening the stores would
    read no more than so many bytes of state files nothing is to be done, as a round does it; None: all is to be restored."""

    application: str
    sub_topology: str
    lane: int
    epoch: int
    run_id: str
    local_store_dir: str
    state_uri: str
    has_other_machines: bool
    location: str
    location_id: str | None
    heads: dict[str, Head]
    is_wanted: bool = True
    inline_bytes: int | None = None

    @property
    def token(self) -> str:
        """Names what is asked, under this plan, and nothing else."""
        heads = sorted((task, head.identity) for task, head in self.heads.items())
        return blake2b(repr((self.run_id, self.epoch, heads)).encode(), digest_size=16).hexdigest()


class RestoredStore(msgspec.Struct, frozen=True, array_like=True):
    """How far the store of a task is: bytes of its state files, and the entries that have come."""

    task: str
    done_bytes: int
    entries: int


class RestoreAnswer(msgspec.Struct, frozen=True):
    """How far it is. `elsewhere`: where the question was answered, as that is not its location: nothing was done. `process`:
    which one works on it, None where that is not known, and `read_bytes` how much of state files it has read. `error`: why a
    store could not be made, in one line. Neither that nor `is_done`: it is under way."""

    elsewhere: str | None = None
    token: str = ""
    process: str | None = None
    stores: list[RestoredStore] = []
    read_bytes: int = 0
    is_done: bool = False
    error: str = ""


encoded_stores_to_restore = msgspec.json.Encoder().encode
decoded_stores_to_restore = msgspec.json.Decoder(StoresToRestore).decode
encoded_answer = msgspec.json.Encoder().encode
decoded_answer = msgspec.json.Decoder(RestoreAnswer).decode
