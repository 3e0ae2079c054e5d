"""What a process needs to be a processor of a standalone group: what is refused before anything is opened, and the terms by
which it joins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.adapters.common.lease_holder import this_process
from headrace.adapters.zookeeper.connection import connection_of
from headrace.config.loading import Config
from headrace.core.elasticity.scales import SLOTS_OF_GROUP, makes_as_many_tasks
from headrace.core.group.settling import RETURN_WAIT_S
from headrace.core.group.state import Registration
from headrace.core.topology.fingerprint import code_fingerprint
from headrace.core.topology.patterns import has_patterns
from headrace.core.topology.sub_topologies import has_state, sub_topologies_of
from headrace.driver.planning.grouper_config import grouper_of
from headrace.environment import checked_folder, of_extra
from headrace.errors import ConfigError, HeadraceError, NotSupportedError
from headrace.group.layout import GroupName
from headrace.group.processor_group import ProcessorGroup
from headrace.model.topology import ForEachRound, Topology
from headrace.wiring import Application
from headrace.wiring.cluster_terms import check_own_places, check_state_folder, check_state_uri, is_remote
from headrace.wiring.folders import local_store_dir_of
from headrace.wiring.spark_sessions import is_elsewhere, is_kafka, is_submitted, slots_here
from headrace.wiring.worker.greeting import versions_here
from headrace.wiring.worker.location import location_of

if TYPE_CHECKING:
    from headrace.exchange.engine import Engine

_PROCESSOR_ID = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_ALONE = "leave `coordinator` unset: one process runs it, on all cores or on a Spark cluster"


@dataclass(frozen=True, slots=True, eq=False)
class GroupTerms:
    """How this process takes part in a group. `group` is connected, and the caller's to close; nothing is registered yet.
    `release_wait_s`: for so long a rebalance waits for who loses tasks; `return_wait_s`: and tasks for a processor that was
    stopped."""

    group: ProcessorGroup
    registration: Registration
    release_wait_s: float
    return_wait_s: float


def is_in_group(config: Config) -> bool:
    """Whether this process is to be a processor of a group. `ConfigError` for an id of one that is to be none."""
    if config.coordinator is None and config.processor_id is not None:
        raise ConfigError(
            f"processor_id is {config.processor_id!r}, and coordinator is not set: only a processor of a group has an id",
            "set `coordinator` to zookeeper://HOST:PORT/ROOT as well (--coordinator), or leave both unset",
        )
    return config.coordinator is not None


def check_group(app: Application, config: Config, engine: Engine | None) -> None:
    """Refuse what cannot work in a group, or is not set, before ZooKeeper, Kafka or Spark is touched: `NotSupportedError`,
    `ConfigError`, `InvalidNameError` for parts of the group's name; `SetupError` where the extra `zookeeper` is not installed,
    or the folder of the local stores or the state files cannot be written. `engine` None is Spark."""
    topology = app.topology()
    _check_work(topology, config)
    _check_scale(config)
    _check_processor_id(config)
    _group_name(config, app.name)
    connection_of(_coordinator(config), config.zookeeper)
    if engine is None:
        _check_spark(app, config)
    check_state_uri(config)
    is_stateful = any(map(has_state, sub_topologies_of(topology)))
    if is_stateful:
        _check_places(config)
    with of_extra("zookeeper", "a group (`coordinator`)"):
        import headrace.adapters.zookeeper.opening  # noqa: F401  # what it imports is there
    if is_stateful:
        checked_folder(local_store_dir_of(config), "the local stores (local_store_dir)")
        check_state_folder(config)


def open_terms(app: Application, config: Config, engine: Engine | None) -> GroupTerms:
    """The terms of this process, after `check_group`. `UnavailableError` naming ZooKeeper's address where no server answers in
    time; `ConfigError` for refused credentials, and for a `location_id` that gives none."""
    processor_id = config.processor_id
    assert processor_id is not None, "see check_group"
    slots = slots_here(app, config) if engine is None else engine.slots
    code = code_fingerprint(app.topology(), config.plan_settings, versions_here())
    process = this_process("", 0)
    registration = Registration(
        processor_id,
        _location(config),
        slots,
        code,
        process.host,
        process.pid,
        process.process_started,
        process.boot_id,
    )
    return_wait_s = RETURN_WAIT_S if config.processor_return_wait_s is None else config.processor_return_wait_s
    return GroupTerms(open_group_of(config, app.name), registration, config.group_release_wait_s, return_wait_s)


def open_group_of(config: Config, application: str, wait_s: float | None = None) -> ProcessorGroup:
    """The group of an application as configured, connected; also for who only looks at it. `wait_s`: for how long a server is
    waited for where `zookeeper.connect.timeout.ms` is not set."""
    patience = {} if wait_s is None else {"connect.timeout.ms": str(int(wait_s * 1000))}
    with of_extra("zookeeper", "a group (`coordinator`)"):
        from headrace.adapters.zookeeper.opening import open_group
    return open_group(_coordinator(config), {**patience, **config.zookeeper}, _group_name(config, application))


def _coordinator(config: Config) -> str:
    assert config.coordinator is not None, "no group is configured"
    return config.coordinator


def _group_name(config: Config, application: str) -> GroupName:
    return GroupName(application, config.application_id, application, config.job_id, config.stage_id)


def _check_work(topology: Topology, config: Config) -> None:
    if not is_kafka(config.system):
        raise NotSupportedError(
            f"system {config.system!r}: a group runs on Kafka, and an embedded log in one process only",
            f"set `system` to kafka://HOST:PORT, or {_ALONE}",
        )
    if config.processing_guarantee != "exactly_once":
        raise NotSupportedError(
            f"processing_guarantee is {config.processing_guarantee!r}: a group commits exactly once",
            f"leave `processing_guarantee` unset, or {_ALONE}",
        )
    if has_patterns(topology):
        raise NotSupportedError(
            "app.stream(re.compile(...)): a group does not read streams by a pattern", f"list them by name, or {_ALONE}"
        )
    if handed := [node.name for node in topology.nodes if isinstance(node, ForEachRound)]:
        raise NotSupportedError(
            f"for_each_round ({handed[0]!r}): in a group no process has the whole of a round",
            f"write to a stream with `to(...)`, and read that in a job of one process; or {_ALONE}",
        )


def _check_scale(config: Config) -> None:
    """A group has as many containers as its processors have slots."""
    for name in sorted({name for name in config if name.partition(".")[0] == "containers" and config[name] is not None}):
        containers = config[name]
        if not makes_as_many_tasks(grouper_of(config.ssp_grouper, containers), containers):
            raise NotSupportedError(
                f"{name} is {containers}: {SLOTS_OF_GROUP}",
                "remove it, and start processors or stop some, or give each another number of slots (spark.master=local[N]); "
                f"or {_ALONE}",
            )
    for name in sorted({name for name in config if name.partition(".")[0] == "autosizing" and config[name] == "on"}):
        raise NotSupportedError(
            f"{name} is 'on': the scale of a group does not follow the load",
            "remove it; start processors or stop some, and change the factor by `headrace elasticity set N`; "
            f"or {_ALONE}",
        )


def _check_processor_id(config: Config) -> None:
    given = config.processor_id
    if given is None:
        raise ConfigError(
            "processor_id is not set: in a group each processor has an id of its own",
            "give each process an id that it keeps over restarts, such as `--processor-id flights-1`, or by the environment "
            "variable HEADRACE_PROCESSOR_ID",
        )
    if _PROCESSOR_ID.fullmatch(given) is None:
        raise ConfigError(
            f"processor_id {given!r:.200}: expected up to 100 letters (a to z), digits and any of `_.-`",
            "such as flights-1",
        )


def _check_spark(app: Application, config: Config) -> None:
    if is_submitted():
        raise NotSupportedError(
            "spark-submit started this process: in a group each processor starts a Spark of its own",
            f"start it with `headrace run`, or with python; or {_ALONE}",
        )
    if is_elsewhere(app, config):
        where = "the session of App(spark=...)" if app.session.is_open else f"spark.master {config.spark['master']!r}"
        raise ConfigError(
            f"{where} has executors on other machines: in a group each processor runs Spark in its own process",
            f"use local[N], or remove spark.master; or {_ALONE}",
        )


def _check_places(config: Config) -> None:
    check_own_places(config, "in a group", "this host", "all processors")
    uri = config.state_uri or ""
    if not (is_remote(uri) or uri.startswith(("/", "file:"))):
        raise ConfigError(
            f"state_uri {uri!r}: in a group expected an absolute path or a URI, which is one place for all processors",
            "set `state_uri` to a folder that all hosts share, such as /mnt/headrace/state, or to a URI",
        )


def _location(config: Config) -> str:
    try:
        return location_of(config.location_id)
    except HeadraceError:
        raise
    except Exception as error:  # a user's provider
        raise ConfigError(
            f"location_id {config.location_id!r} raised {type(error).__name__}: {error}",
            "get_location_id() of that class has to give a text, on each host",
        ) from error
