"""Owns where a job keeps on this machine what is not in its system: the one definition, for jobs and for commands."""

from __future__ import annotations

from pathlib import Path

from headrace.config import Config


def work_folder(config: Config) -> Path:
    """Where rounds leave what their Spark tasks tell each other: in the log's folder, or beside the local stores."""
    return _log_folder(config) or _beside_stores(config)


def state_folder(config: Config) -> Path:
    """Where state is kept unless `state_uri` says so: `.headrace/state` beside the log's folder, or beside the local
    stores."""
    log = _log_folder(config)
    return (_beside_stores(config) if log is None else log.parent / ".headrace") / "state"


def _log_folder(config: Config) -> Path | None:
    scheme, _, folder = config.system.partition(":")
    return Path(folder).expanduser().absolute() if scheme == "log" else None


def _beside_stores(config: Config) -> Path:
    return Path(config.local_store_dir).absolute().parent
