"""The JSON form of a kept version of a task's state."""

from __future__ import annotations

import msgspec

from headrace.codec.checkpoint import WIRE, decode_checkpoint, decoded, encode_checkpoint
from headrace.core.rewind.state_history import StateVersion
from headrace.model.checkpoint import RoundId


class _VersionForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wire: int
    kept_us: int
    left_for: RoundId | None
    checkpoint: msgspec.Raw  # in its own form, with a number of its own


def encode_version(version: StateVersion) -> bytes:
    checkpoint = msgspec.Raw(encode_checkpoint(version.checkpoint))
    return msgspec.json.encode(_VersionForm(WIRE, version.kept_us, version.left_for, checkpoint))


def decode_version(data: bytes, what: str = "version of a task's state") -> StateVersion:
    """The version that `data` stands for; `StorageError` that names it as `what` where it cannot be read."""
    form = decoded(data, _VersionForm, what)
    return StateVersion(decode_checkpoint(bytes(form.checkpoint), what), form.kept_us, form.left_for)
