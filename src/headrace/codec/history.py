"""The history of a job: the JSON form of its entries, where they are stored, and reading them."""

from __future__ import annotations

import msgspec

from headrace.codec.checkpoint import WIRE, decoded
from headrace.model.change import Change
from headrace.ports import MetadataStore

HISTORY = "history"  # namespace: an entry's key, which sorts by time, to the entry; written with the job model


class _ChangeForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    change: Change


def encode_change(change: Change) -> bytes:
    return msgspec.json.encode(_ChangeForm(WIRE, change))


def decode_change(data: bytes, what: str = "entry of the history") -> Change:
    """The entry that `data` stands for; `StorageError` that names it as `what` where it cannot be read."""
    return decoded(data, _ChangeForm, what).change


def history_of(metadata: MetadataStore) -> dict[str, Change]:
    """The entries on record by key, oldest first."""
    return {key: decode_change(data, f"entry {key!r} of the history") for key, data in sorted(metadata.all(HISTORY).items())}
