"""What the coordinator writes into an application's metadata: who drives it, the grants, the plan (protocol.md 6, 7 and 12)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.adapters.kafka.names import INTERNAL, JOB, LANES, MODELS, internal_id
from headrace.core.group.grants import Grant, Grants, InForce, numbers_in_force
from headrace.model.commits import DriverLease
from headrace.model.job_model import JobModel
from headrace.ports.metadata_store import Metadata

Entry = tuple[str, str, bytes | None]
"""Namespace, name and value; None deletes."""
TRANSACTION = "transaction"  # of the job: the id of the last one that must not be written twice


class Held(msgspec.Struct, frozen=True):
    """Who holds the application, and since when (µs)."""

    holder: DriverLease
    since_us: int

    @staticmethod
    def found(stored: Mapping[str, bytes]) -> Held | None:
        """By what is stored of the job."""
        found = stored.get("holder")
        return msgspec.json.decode(found, type=Held) if found else None

    def is_replaced(self, stored: Mapping[str, bytes], epoch: int) -> bool:
        """Whether another driver has the application than this one, whose epoch is `epoch`: under a higher epoch, or under this
        very number, where this one's has never come into force."""
        found, held = int(stored.get("epoch", b"0")), Held.found(stored)
        return found > epoch or (found == epoch and held is not None and _process(held.holder) != _process(self.holder))


def _process(lease: DriverLease) -> DriverLease:
    return dataclasses.replace(lease, heartbeat_us=0)


def stored_grants(stored: Mapping[str, bytes]) -> Grants | None:
    """The grants in force; None where there is one driver."""
    found = stored.get("grants")
    return None if found is None else msgspec.json.decode(found, type=dict[str, Grant])


def grant_entries(grants: Grants | None, number: int) -> list[Entry]:
    """What is stored of them; and `number`, the highest that ever was, which stays when they are taken back: one that is given
    again would be that of other rounds."""
    if grants is None:
        return [(JOB, "grants", None)]
    return [(JOB, "grants", msgspec.json.encode(dict(grants))), (JOB, "number", b"%d" % number)]


def in_force(epoch: int, grants: Grants | None) -> InForce:
    """What the position of the coordinator's group has then."""
    return InForce(epoch, None if grants is None else numbers_in_force(grants))


def plan_entries(model: JobModel, encoded: bytes, before: bytes | None, used: Mapping[str, int]) -> list[Entry]:
    """`model`, in place of `before`; and how many lanes it uses, where these are more than were ever `used`."""
    entries: list[Entry] = [(MODELS, "current", encoded)]
    if before is not None and before != encoded:
        entries.append((MODELS, "previous", before))
    for sub in model.sub_topologies:
        count = max(container.lane + 1 for container in sub.containers)
        if count > used.get(sub.title, 0):  # before a lane is used, or a later driver would not fence it
            entries.append((LANES, sub.title, b"%d" % count))
    return entries


def id_entries(model: JobModel, on_record: Mapping[str, bytes]) -> list[Entry]:
    """The repartition topics that `model` reads with their ids, where these are not on record: an older version has created the
    topic, or a start that was killed then."""
    return [
        (INTERNAL, topic, value + b"@" + model.stream_ids[topic].encode())
        for topic, value in on_record.items()
        if topic in model.stream_ids and not internal_id(value)
    ]


def metadata_entries(metadata: Metadata | None) -> list[Entry]:
    """The entries of what goes with a plan."""
    return [(space, key, value) for space, values in (metadata or {}).items() for key, value in values.items()]


def decoded(entries: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """What is published for people, by name."""
    return {name: msgspec.json.decode(value) for name, value in entries.items()}
