"""What a job needs on a Spark cluster, whose executors share nothing with the driver but its system and `state_uri`: settings,
and what each executor is asked."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from headrace.config.loading import Config
from headrace.core.affinity.admission import Admission
from headrace.environment import checked_folder
from headrace.errors import ConfigError, StateError
from headrace.exchange.engine import Engine, WorkerCheck
from headrace.state_files.files import StateFiles
from headrace.wiring.folders import OWNER_OF_LOG, local_store_dir_of, log_folder_of, sign, state_uri_of
from headrace.wiring.worker.greeting import answer_to, versions_here

RETURN_WAIT_S = 10.0  # a standalone master takes that to start an executor again
_TRIAL = bytes(4096)  # a full disk may still have room for the name of a file
_PASSWORD = re.compile(r"//[^/@]*:[^/@]*@")


def is_remote(state_uri: str | None) -> bool:
    """Whether a URI is of a file system that is not this machine's."""
    return bool(state_uri) and "://" in str(state_uri) and not str(state_uri).startswith("file:")


def check_state_uri(config: Config) -> None:
    """`StateError` where the system cannot be used with the state's place: a commit of an embedded log looks at the files.
    `ConfigError` for a URI with a password, as it goes to logs and to executors."""
    if _PASSWORD.search(config.state_uri or ""):
        raise ConfigError(
            "state_uri holds a password: it would be shown",
            "give driver and executors credentials by their environment, such as AWS_ACCESS_KEY_ID, or by their host's role",
        )
    if is_remote(config.state_uri) and log_folder_of(config) is not None:
        raise StateError(
            f"state_uri {config.state_uri!r}: with an embedded log ({config.system}) state is kept in a folder",
            "set `state_uri` to a folder, or `system` to Kafka",
        )


def check_state_folder(config: Config) -> None:
    """`SetupError` where the folder of the state files cannot be written, or its disk is full. A place on a remote file system
    is not tried: the first round that writes finds what is wrong with it."""
    local = None if is_remote(config.state_uri) else StateFiles(state_uri_of(config)).local_path("")
    if local is not None:
        checked_folder(local, "the state files (state_uri)", _TRIAL)


def check_cluster_settings(config: Config) -> None:
    """`ConfigError` for what a job with state needs on a cluster and is not set: all that is a default for one machine."""
    check_own_places(config, "on a Spark cluster", "each executor's host", "the driver and all executors")


def check_own_places(config: Config, mode: str, host: str, readers: str) -> None:
    """`ConfigError` where the folder of the local stores, or the place of the state, is a default for one machine. `mode`: in
    which a job runs on several; `host`: which has the stores; `readers`: who must see the state."""
    given = config.local_store_dir
    if "local_store_dir" not in config.origins or not (Path(given).is_absolute() or given.startswith("env:")):
        raise ConfigError(
            f"local_store_dir is {given!r}: {mode} expected an absolute path, or env:NAME",
            f"set `local_store_dir` to a folder on a local disk of {host}, such as /var/lib/headrace/stores",
        )
    if config.state_uri is None:
        raise ConfigError(
            f"state_uri is not set: {mode} the state must be where {readers} see it",
            "set `state_uri` to a shared folder, or to a URI such as s3://BUCKET/FOLDER",
        )


def return_wait_s_of(config: Config) -> float:
    """For how long the tasks of a location wait that is away."""
    return RETURN_WAIT_S if config.processor_return_wait_s is None else config.processor_return_wait_s


def check_places_of_workers(engine: Engine, config: Config) -> None:
    """Refuse what is no place for local stores, or for the state, now that it is known where Spark's workers are: spark-submit
    may have named the master. `ConfigError` for settings that are not for a cluster."""
    if engine.driver_address is None:
        checked_folder(local_store_dir_of(config), "the local stores (local_store_dir)")
    else:
        check_cluster_settings(config)
    check_state_folder(config)


def signed_check(application: str, config: Config, run_id: str, state_id: str | None) -> WorkerCheck:
    """What each executor is asked, with the signs left that it is to find. `state_id`: None without state. Only who
    holds the application may leave them: those of the run before are deleted, and its workers would take the folders for
    others."""
    log_folder = log_folder_of(config)
    if state_id is not None:
        sign(StateFiles(state_uri_of(config)), application, run_id, state_id)
    if log_folder is not None:
        sign(StateFiles(str(log_folder)), application, run_id, OWNER_OF_LOG, "system log:")
    admission = Admission(
        application,
        run_id,
        versions_here(),
        config.local_store_dir,
        config.location_id,
        None if state_id is None else state_uri_of(config),
        None if log_folder is None else str(log_folder),
    )
    return WorkerCheck(partial(answer_to, admission), admission.verdict_on)
