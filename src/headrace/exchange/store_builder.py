"""Making local stores in the background: the port, and what the driver and the process that does it tell each other.

Each is one line of JSON: `StoresToBuild` to the process, and for each store of it a `BuiltStore` back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from headrace.model.checkpoint import Head
from headrace.model.tasks import TaskName


class StoresToBuild(msgspec.Struct, frozen=True):
    """The stores of tasks that are not there yet, by task. Folders are absolute; the rest as in `ContainerPlan`."""

    application: str
    run_id: str
    local_store_dir: str
    state_uri: str
    heads: dict[str, Head]


class BuiltStore(msgspec.Struct, frozen=True):
    """One store that is there, with so many entries; or the error of the first one that cannot be, in one line."""

    task: str
    entries: int = 0
    error: str = ""


class StoreBuilder(Protocol):
    """Makes local stores where workers will open them."""

    def build(self, heads: Mapping[TaskName, Head], built: Callable[[TaskName], None]) -> None:
        """Make the stores of these tasks at these heads, or bring those on that were made before; `built` is called after each.
        `StateError` where one cannot be made, where no answer comes, and after `close`."""

    def close(self) -> None:
        """End what it does. From any thread, more than once."""


encoded_stores = msgspec.json.Encoder().encode
decoded_stores = msgspec.json.Decoder(StoresToBuild).decode
decoded_built = msgspec.json.Decoder(BuiltStore).decode
