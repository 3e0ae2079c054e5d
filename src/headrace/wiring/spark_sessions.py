"""Opens the Spark session of an application, and the engine that runs its rounds there."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.config.loading import Config
from headrace.core.secrets import secret_values
from headrace.wiring.folders import local_store_dir_of

if TYPE_CHECKING:
    from headrace.adapters.spark.session import SparkSession
    from headrace.wiring import Application

LOG = logging.getLogger("headrace")


@dataclass(slots=True, eq=False)
class SessionSlot:
    """An application's Spark session: the one that its user gave it, and the one that it runs in."""

    given: SparkSession | None = None
    running: SparkSession | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a session, so that none has to be started."""
        return self.given is not None or self.running is not None


def is_kafka(system: str) -> bool:
    """Whether a system's URL is of Kafka."""
    return system.startswith("kafka:")


def session_of(app: Application, config: Config) -> tuple[Any, bool]:
    """The session to run in, and whether it is ours to stop."""
    from headrace.adapters.artifacts.connector import connector_jars, with_connector
    from headrace.adapters.spark import session

    slot, jars = app.session, tuple[Path, ...]()
    if slot.running is not None:
        return slot.running, False
    if slot.given is not None:
        made = session.session_within(slot.given)
        if is_kafka(config.system):
            jars = connector_jars(session.settings_of(made), config.artifact_dir, LOG.info)
    else:
        settings = {f"spark.{name}": value for name, value in config.spark.items()}
        if is_kafka(config.system):
            jars = connector_jars(settings, config.artifact_dir, LOG.info)
            settings = with_connector(settings, config.artifact_dir, LOG.info)
        made = session.started(
            settings,
            app.name,
            log_dir_of(config),
            [str(app.folder)] if app.folder else [],
            client_secrets(config),
        )
    if jars or (slot.given is not None and is_kafka(config.system)):
        # Where it was started too: a JVM that has run another Spark takes no more on its class path.
        session.add_jars(made, jars)
    slot.running = made
    return made, slot.given is None


def client_secrets(config: Config) -> tuple[str, ...]:
    """The passwords of Kafka and of ZooKeeper, which Spark is not to show."""
    return (*secret_values(config.kafka), *secret_values(config.zookeeper))


def log_dir_of(config: Config) -> Path:
    """Where the log of a JVM goes that is started for an application: beside the local stores, which the driver of a cluster
    has not."""
    is_here = local_slots(config) is not None
    return Path(local_store_dir_of(config if is_here else Config())).parent / "logs"


def is_submitted() -> bool:
    """Whether spark-submit started this process, so that it has named the master."""
    from headrace.adapters.spark import gateway

    return gateway.is_submitted()


def is_elsewhere(app: Application, config: Config) -> bool:
    """Whether it is known, before Spark is started, that its executors are no part of this process."""
    from headrace.adapters.spark.session import is_in_one_process

    open_one = app.session.given if app.session.running is None else app.session.running
    if open_one is not None:
        return not is_in_one_process(open_one.sparkContext.master)
    return not is_submitted() and local_slots(config) is None


def local_slots(config: Config) -> int | None:
    """How many containers a Spark that is started here for `config` runs at once; None where its master is elsewhere."""
    master = config.spark.get("master", "local[*]")
    local = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\d+)?\])?", master)
    if local is None:
        return None
    cores = local.group(1) or "1"
    return (os.cpu_count() or 1) if cores == "*" else int(cores)


def slots_here(app: Application, config: Config) -> int:
    """How many containers the Spark of this process runs at once, before it is started; its master is not elsewhere."""
    from headrace.adapters.spark.session import slots_of

    open_one = app.session.given if app.session.running is None else app.session.running
    slots = local_slots(config) if open_one is None else slots_of(open_one)
    assert slots is not None, f"spark.master {config.spark['master']!r} is elsewhere"
    return slots


def spark_engine(app: Application, config: Config) -> Any:
    from headrace.adapters.spark.engine import SparkEngine
    from headrace.adapters.spark.in_worker import WorkerFunctions
    from headrace.wiring.worker.engine_rows import decoded_prefix, read_prefix, run_prepared
    from headrace.wiring.worker.entry import run_containers
    from headrace.wiring.worker.store_restoring import restore

    options: Mapping[str, str] | None = None
    read = read_prefix
    if is_kafka(config.system):
        from headrace.adapters.kafka.connection import connection_of

        options, read = connection_of(config.system, config.kafka).spark_options, decoded_prefix
    made, ours = session_of(app, config)

    def close_session() -> None:
        if ours:
            app.session.running = None

    functions = WorkerFunctions(run_containers, run_prepared, read, restore)
    return SparkEngine(made, functions, ours, close_session, options)


_shared_sessions: list[Any] = []


def shared_spark(app: Application, config: Config) -> Any:
    """The engine on a session that all test drivers of this process share, or on the application's own; never closed."""
    if not app.session.is_open:
        _shared_sessions[:] = [one for one in _shared_sessions if one.sparkContext._jsc is not None]  # not one that ended
        if _shared_sessions:
            app.session.running = _shared_sessions[0]
        else:
            _shared_sessions.append(session_of(app, config)[0])
    return spark_engine(app, config)
