"""Configuration keys that are reserved so far, or removed: what is refused of them, and why. `App(...)` refuses them at its
line, and a start those that were set elsewhere."""

from __future__ import annotations

from headrace.config.loading import Config
from headrace.errors import NotSupportedError


def refuse_reserved(config: Config, *, is_whole: bool) -> None:
    """`NotSupportedError` for a reserved or removed key that is set.

    `is_whole`: all places that set keys were read. If they were not, the job's system may be said elsewhere, and a metadata
    store in another system is refused only where `config` says both, or where it is no system at all.
    """
    if config.coordinator is not None:
        raise NotSupportedError(
            f"coordinator = {config.coordinator!r} ({_origin(config, 'coordinator')}): process groups are not supported yet",
            "leave it unset",
        )
    if config.location_id is not None:
        raise NotSupportedError(
            f"location_id = {config.location_id!r} ({_origin(config, 'location_id')}): one process has all tasks so far, "
            "wherever it runs",
            "leave it unset",
        )
    if config.check_partitioning != "off":
        raise NotSupportedError(
            f"check_partitioning = {config.check_partitioning!r} ({_origin(config, 'check_partitioning')}): jobs do not "
            "sample keys",
            "remove it; `headrace stream check NAME [APP]` samples the keys of a stream, whether a job runs or not",
        )
    store = config.metadata_store
    is_known = is_whole or "system" in config.origins or not isinstance(store, str)
    if is_known and store not in (None, config.system):
        expected = f"unset, or {config.system!r}" if is_whole or "system" in config.origins else "unset"
        raise NotSupportedError(
            f"metadata_store = {store!r} ({_origin(config, 'metadata_store')}): expected {expected}: one transaction of the "
            "job's own system holds job model and checkpoints together",
            "leave it unset; startpoint_metadata_store says where startpoints are requested, a class of your own too",
        )


def _origin(config: Config, key: str) -> str:
    return config.origins.get(key, "default")
