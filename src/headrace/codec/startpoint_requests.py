"""Reads the startpoints that are requested of an application, and those on record."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.codec.startpoint import STARTPOINTS, decode_startpoint_record, decode_startpoint_request
from headrace.core.job_plan.startpoint_requests import StartpointRequests
from headrace.errors import StorageError
from headrace.model.startpoint import StartpointRequest
from headrace.ports import MetadataStore


def asked_of(store: MetadataStore, elsewhere: Mapping[str, bytes] | None = None) -> StartpointRequests:
    """Read both. `elsewhere`: requests that were read from another store. `StorageError` for a record that cannot be read; a
    request may come from anybody, and must not end a job."""
    found = store.requests(STARTPOINTS) | dict(elsewhere or {})
    requests: dict[str, StartpointRequest] = {}
    unreadable: dict[str, str] = {}
    for id_ in sorted(found):
        try:
            requests[id_] = decode_startpoint_request(found[id_])
        except StorageError as error:
            unreadable[id_] = error.message
    records = {id_: decode_startpoint_record(data, f"startpoint {id_!r}") for id_, data in store.all(STARTPOINTS).items()}
    return StartpointRequests(requests, records, unreadable)
