"""The heads of tasks whose slots change."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace.errors import NotSupportedError
from headrace.model.checkpoint import Head
from headrace.model.tasks import KeyBucket


def slots_of(bucket: KeyBucket | None) -> KeyBucket | None:
    return bucket


def head_of(parents: Sequence[Head | None], slots: KeyBucket | None, whole: Collection[str] = ()) -> Head | None:
    if any(parent is not None for parent in parents):
        raise NotSupportedError("the elasticity factor of a sub-topology with state cannot change yet")
    return None
