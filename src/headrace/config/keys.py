"""Every configuration key, once: its name, type, default and meaning, and the immutable `Config` that holds their values.
Names: `max_round_ms` is a key; `containers.by-carrier` is one sub-topology's own value of a key that may have one; `kafka.*`,
`spark.*` and `zookeeper.*` are handed on to the clients of Kafka, Spark and ZooKeeper. The unit is the last part of a name."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from headrace.config.key_form import Key, declared, declared_keys
from headrace.core.affinity.groupers import TaskNameGrouper
from headrace.core.job_plan.groupers import SystemStreamPartitionGrouper
from headrace.core.secrets import HIDDEN, Secrets, holds_secret, is_secret
from headrace.errors import ConfigError

VARIABLE_PREFIX = "HEADRACE_"
PASSED_THROUGH = ("kafka", "spark", "zookeeper")
SOURCE_SUB_TOPOLOGY = "source"  # what the sub-topology without a name is called in `containers.source`


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Config(Mapping[str, Any]):
    """All settings of one application, immutable: `config.max_round_ms`, or `config["kafka.client.id"]` by name. As a mapping
    it holds every key, the own values of sub-topologies, and what is passed through (as text)."""

    system: str = declared(
        "log:./data",
        "Where the streams and checkpoints of the job are: `log:FOLDER` is the embedded log, `kafka://HOST:PORT,...` a Kafka "
        "cluster.",
    )
    processing_guarantee: Literal["exactly_once", "at_least_once"] = declared(
        "exactly_once",
        "`exactly_once`: outputs, state and offsets commit atomically; `at_least_once` (on Kafka, for lower latency): outputs "
        "are flushed before the commit, so after a failure records may be processed again and their outputs duplicated.",
    )
    containers: int | None = declared(
        None,
        "Number of containers of a sub-topology, at most one per (virtual) task; unset: as many as Spark has slots; "
        "not in a group, where they are the slots of its processors.",
        least=1,
        per_sub_topology=True,
        shapes_plan=True,
    )
    elasticity_factor: int = declared(
        1,
        "Virtual tasks per task, a power of two up to 1,024: each has the keys of one bucket.",
        least=1,
        per_sub_topology=True,
        shapes_plan=True,
    )
    task_threads: int | None = declared(
        None,
        "Threads in which a container processes the records of its tasks, at most one per task; more than 1 are for functions "
        "that wait, which are then called for several tasks at the same time; unset: 1, and for virtual tasks one each, at "
        "most 32, as soon as a round has shown that they wait for more than 30 % of their time.",
        least=1,
        per_sub_topology=True,
    )
    max_bucket_lead: int = declared(
        100_000,
        "Maximum number of offsets that a virtual task may be ahead of the slowest one of the same partition.",
        least=1,
        per_sub_topology=True,
    )
    autosizing: Literal["off", "on"] = declared(
        "off",
        "`on`: elasticity factor and containers follow the load, within the bounds below; not in a group.",
        per_sub_topology=True,
    )
    autosizing_factor_min: int = declared(
        1, "Lowest elasticity factor that autosizing sets, a power of two.", least=1, per_sub_topology=True
    )
    autosizing_factor_max: int = declared(
        16, "Highest elasticity factor that autosizing sets, a power of two.", least=1, per_sub_topology=True
    )
    autosizing_containers_min: int = declared(
        1, "Lowest number of containers that autosizing sets.", least=1, per_sub_topology=True
    )
    autosizing_containers_max: int | None = declared(
        None,
        "Highest number of containers that autosizing sets; unset: as many as Spark has slots.",
        least=1,
        per_sub_topology=True,
    )
    autosizing_catch_up_s: float = declared(
        60.0, "Autosizing aims to read a lag within this many seconds.", least=0.001, per_sub_topology=True
    )
    autosizing_quiet_s: float = declared(
        600.0,
        "Autosizing halves a factor, or a number of containers, that was not needed for this many seconds.",
        least=0.001,
        per_sub_topology=True,
    )
    autosizing_cool_down_s: float = declared(
        120.0,
        "For this many seconds after a change of scale autosizing makes none, and for 20 times the pause of that change.",
        least=0,
        per_sub_topology=True,
    )
    autosizing_interval_s: float = declared(10.0, "How often autosizing looks at the load, in seconds.", least=0.001)
    ssp_grouper: str | type[SystemStreamPartitionGrouper] | SystemStreamPartitionGrouper | None = declared(
        None,
        "How partitions are grouped into tasks: `partition` (`GroupByPartition`), `system_stream_partition` "
        "(`GroupBySystemStreamPartition`), `GroupByPartitionFixedTaskNum`, `GroupBySystemStreamPartitionFixedTaskNum`, "
        "`all_ssps_to_every_task` (`AllSspsToEveryTask`), "
        "or a class of your own with `group(previous_assignment, ssps)` (the class, an object, or `MODULE:NAME`); unset: by "
        "partition, and where a sub-topology has state, the first two keep the number of tasks when partitions are added.",
        takes="a grouper",
        method="group",
        shapes_plan=True,
    )
    task_name_grouper: str | type[TaskNameGrouper] | TaskNameGrouper | None = declared(
        None,
        "On a cluster or in a group: which processor has which tasks, by a class of your own with `group(tasks, processor_ids, "
        "previous_containers)` (the class, an object, or `MODULE:NAME`); unset: shares are equal, and each task stays with the "
        "processor, or at the location, where its state is, as far as that goes.",
        takes="a grouper",
        method="group",
        shapes_plan=True,
    )
    max_records_per_round: int = declared(
        1_000_000, "Maximum number of records in one round of a sub-topology.", least=1, per_sub_topology=True
    )
    max_bytes_per_round: int = declared(
        256 * 1024 * 1024,
        "Maximum number of stored bytes in one round of a sub-topology; at least one record is always read; not on Kafka, "
        "which does not report sizes: there `max_records_per_round` is the limit.",
        least=1,
        per_sub_topology=True,
    )
    max_round_ms: int = declared(
        20_000, "Time limit of a round in milliseconds: a longer one ends early and commits its positions.", least=1
    )
    caught_up_passes_max: int = declared(
        1_000, "How often `run --until caught-up` reads the inputs on, at most, if the job itself writes to them.", least=1
    )
    trigger_interval_ms: int = declared(100, "How often an idle sub-topology checks for new records, in milliseconds.", least=1)
    local_store_dir: str = declared(
        ".headrace/stores",
        "Folder of the local stores on each machine's local disk; it is a cache of the state; on a cluster an absolute path, "
        "or env:NAME for a variable of each executor's environment.",
    )
    state_uri: str | None = declared(
        None,
        "Folder or file system URI (such as s3://BUCKET/FOLDER, on Kafka) of the state files (deltas and snapshots), shared by "
        "all machines, but not by an application of the same name on another system; required on a cluster for an application "
        "with state; unset: `.headrace/state` next to the log's folder.",
    )
    metadata_store: Any = declared(
        None,
        "Where job models, startpoints and requests are stored; any other place than the job's own system is refused, because "
        "they commit in one transaction with the checkpoints.",
        takes="a metadata store",
        method="requests",
    )
    startpoint_metadata_store: Any = declared(
        None,
        "Where startpoint requests are stored, under the application's name: a system, as for `system`, or your own "
        "`hr.MetadataStore` (the class, an object, or `MODULE:NAME`); the status of startpoints is always stored with the job; "
        "unset: the job's own system.",
        takes="a metadata store",
        method="requests",
    )
    drop_stores: str | None = declared(
        None,
        "Stores whose state is dropped if the edited application cannot use it or no longer has them: names, separated by "
        "commas (`headrace run --drop-store NAME` adds one); a compatible store is not affected.",
        shapes_plan=True,
    )
    rename_stores: str | None = declared(
        None,
        "Stores that were renamed and keep their state: OLD=NEW, separated by commas (`headrace run --rename-store OLD=NEW` "
        "adds one); a store that was renamed before is not affected.",
        shapes_plan=True,
    )
    partition_check_interval_s: float = declared(
        60.0, "How often the driver checks the inputs for new partitions, in seconds.", least=0.001
    )
    idle_timeout_s: float = declared(
        30.0,
        "An input that has been read to its end for this many seconds is idle and does not hold the watermark back.",
        least=0,
    )
    event_time_warning_s: float = declared(
        31_536_000.0,
        "Warn of the first record of a stream whose event time (`timestamp=`) is more than this many seconds from the record's "
        "own timestamp: its unit is probably wrong; the counter `far_event_times` counts such records; 0: no check.",
        least=0,
    )
    settle_time_s: float = declared(
        600.0, "Seconds after a partition expansion by which every producer knows the new partitions.", least=0
    )
    check_partitioning: Literal["off", "sample"] = declared(
        "off",
        "Removed, and refused if `sample`: `headrace stream check NAME` checks with a sample of keys, without a job, that the "
        "producers of a stream choose partitions by hash(key) mod the number of partitions.",
    )
    on_lost_offsets: Literal["fail", "earliest", "latest"] = declared(
        "fail",
        "If records were deleted by retention before being read: `fail` with an error that lists them, or skip to the first "
        "available record (`earliest`) or to the end offset (`latest`); skipped records are counted and shown in `status`.",
        shapes_plan=True,
    )
    max_lag: int = declared(
        10_000_000,
        "Back pressure: while a repartition stream holds this many unread records, the sub-topology that writes it starts no "
        "new round; one round may exceed the limit.",
        least=1,
    )
    keep_state_versions: int = declared(
        5,
        "Number of versions of each task's state that are kept for rewinds, including the current one (1: only the current "
        "one, and a rewind goes to the very beginning); repartition streams keep the records after the oldest version.",
        least=1,
    )
    keep_state_versions_s: float = declared(
        3_600.0,
        "Age in seconds of the oldest kept version; the versions are spread over this time, older ones further apart; 0: the "
        "newest ones are kept, whatever their age.",
        least=0,
    )
    state_version_interval_s: float = declared(
        60.0, "Minimum number of seconds between two kept versions of a task's state.", least=0
    )
    coordinator: str | None = declared(
        None,
        "Runs the process as one processor of a standalone group: `zookeeper://HOST:PORT,.../ROOT` is the ZooKeeper ensemble "
        "and the node below which groups are (`headrace run --coordinator URL`); unset: the process alone runs the "
        "application.",
    )
    processor_id: str | None = declared(
        None,
        "In a group: the name of this processor, which no other has and which it keeps over restarts: up to 100 letters, "
        "digits and any of `_.-` (`headrace run --processor-id ID`).",
    )
    log_format: Literal["text", "json"] = declared(
        "text",
        "`json`: every line on the standard error of the process of the job is one of JSON, with its job, and within a round "
        "with the sub-topology, the epoch and the round: what is logged and printed there and in workers of this machine.",
    )
    metrics_address: str | None = declared(
        None,
        "`HOST:PORT`, or a port of this machine's loopback address: where the process of the job answers `/metrics` (for "
        "Prometheus), `/live` and `/ready`; unset: nowhere.",
    )
    traces: Literal["off", "otel"] = declared(
        "off",
        "`otel`: each round and each change of the plan is a span of OpenTelemetry; they go where the process sends its spans, "
        "else by OTLP to where the variables `OTEL_EXPORTER_OTLP_*` say (needs `headrace[otel]`).",
    )
    application_id: str = declared("1", "In a group: part of the name of its node below ROOT, after the application's name.")
    job_id: str = declared("1", "In a group: part of the name of its node, after the job's name, which is the application's.")
    stage_id: str = declared("1", "In a group: the last part of the name of its node.")
    group_release_wait_s: float = declared(
        10.0,
        "In a group: maximum time in seconds that a rebalance waits for processors to commit and release the tasks they lose; "
        "then these are fenced.",
        least=0,
    )
    processor_return_wait_s: float | None = declared(
        None,
        "Time in seconds for which tasks wait before they move: on a cluster those of a location whose executors have ended, "
        "in a group those of a processor that was stopped, or that was lost together with all others; unset: 10 on a cluster, "
        "30 in a group.",
        least=0,
    )
    restore_inline_bytes: int = declared(
        4 * 1024 * 1024,
        "On a cluster or in a group: maximum number of bytes of state files that a round reads to restore the stores of a "
        "container; more than that is restored in the background, and the container takes no part in rounds until then.",
        least=0,
    )
    local_store_retention_s: float = declared(
        86_400.0,
        "A local store that was not used for this many seconds is removed, unless its task is assigned to the machine that has "
        "it; checked when a job starts and every hour.",
        least=0,
    )
    location_id: str | None = declared(
        None,
        "Where an executor of a cluster or a processor of a group is, as its disk goes, so that tasks stay near their state: a "
        "text, env:NAME for a variable of its environment, or a hr.LocationIdProvider of your own as MODULE:NAME; unset: the "
        "name of its host.",
    )
    artifact_dir: str | None = declared(
        None,
        "Folder for jars that are downloaded at first use, such as Spark's Kafka connector; unset: `headrace/jars` in the "
        "user's cache folder.",
    )
    dead_letter_stream: str | None = declared(
        None,
        "Stream for records that cannot be processed; unset: the first such record stops the job.",
        shapes_plan=True,
    )
    kafka: Mapping[str, str] = dataclasses.field(default_factory=dict)
    spark: Mapping[str, str] = dataclasses.field(default_factory=dict)
    zookeeper: Mapping[str, str] = dataclasses.field(default_factory=dict)
    own_values: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # "containers.by-carrier" to its value
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict)  # where each key that is no default was set

    def __post_init__(self) -> None:
        for name in (*PASSED_THROUGH, "own_values", "origins"):
            object.__setattr__(self, name, types.MappingProxyType(dict(getattr(self, name))))

    def __getitem__(self, name: str) -> Any:
        if name in KEYS:
            return getattr(self, name)
        if name in self.own_values:
            return self.own_values[name]
        group, _, rest = name.partition(".")
        if group in PASSED_THROUGH:
            return getattr(self, group)[rest]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        yield from KEYS
        yield from sorted(self.own_values)
        for group in PASSED_THROUGH:
            yield from (f"{group}.{name}" for name in sorted(getattr(self, group)))

    def __len__(self) -> int:
        return len(KEYS) + len(self.own_values) + sum(len(getattr(self, group)) for group in PASSED_THROUGH)

    def __repr__(self) -> str:
        """What is no default, with secrets hidden: configurations end up in logs."""
        return f"Config({', '.join(f'{name}={self.shown(name)}' for name in self if name in self.origins)})"

    def __reduce__(self) -> tuple[Any, ...]:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values |= {name: dict(value) for name, value in values.items() if isinstance(value, Mapping)}
        return partial(Config, **values), ()

    def shown(self, name: str) -> str:
        """The value of `name` as text for people; `***` for a password and the like."""
        return HIDDEN if is_secret(name) else repr(self[name])

    # Of one sub-topology; None is the source's.

    def containers_of(self, sub_topology: str | None) -> int | None:
        return typing.cast("int | None", self.of("containers", sub_topology))

    def elasticity_factor_of(self, sub_topology: str | None) -> int:
        return typing.cast("int", self.of("elasticity_factor", sub_topology))

    def max_records_per_round_of(self, sub_topology: str | None) -> int:
        return typing.cast("int", self.of("max_records_per_round", sub_topology))

    def max_bytes_per_round_of(self, sub_topology: str | None) -> int:
        return typing.cast("int", self.of("max_bytes_per_round", sub_topology))

    def task_threads_of(self, sub_topology: str | None) -> int | None:
        return typing.cast("int | None", self.of("task_threads", sub_topology))

    def max_bucket_lead_of(self, sub_topology: str | None) -> int:
        return typing.cast("int", self.of("max_bucket_lead", sub_topology))

    def check_sub_topologies(self, names: Iterable[str]) -> None:
        """`ConfigError` if a sub-topology has a value of its own and is not among `names` (`source` always is)."""
        known = sorted({*names, SOURCE_SUB_TOPOLOGY})
        for name in sorted(self.own_values):
            sub_topology = name.partition(".")[2]
            if sub_topology not in known:
                raise ConfigError(
                    f"{name} ({self.origins[name]}): there is no sub-topology {sub_topology!r}",
                    f"the sub-topologies are {', '.join(known)}",
                )

    def of(self, key: str, sub_topology: str | None) -> Any:
        """A sub-topology's own value of a key, else the common one."""
        return self.own_values.get(f"{key}.{sub_topology or SOURCE_SUB_TOPOLOGY}", getattr(self, key))

    @property
    def plan_settings(self) -> dict[str, Any]:
        """What shapes plans, by name; of sub-topologies their own values."""
        return {name: self[name] for name in self if name.partition(".")[0] in _PLAN_KEYS}


def handed_on(environ: Mapping[str, str], secrets: Secrets | None = None) -> dict[str, str]:
    """The environment for processes that are started: without the HEADRACE_* variables that hold secrets; all others stay.
    `secrets` are values that are kept back under any of their names."""
    known = Secrets() if secrets is None else secrets
    return {
        name: value
        for name, value in environ.items()
        if not (name.startswith(VARIABLE_PREFIX) and holds_secret(name.replace("__", "."), value, known))
    }


KEYS: Mapping[str, Key] = types.MappingProxyType({key.name: key for key in declared_keys(Config)})
_PLAN_KEYS = frozenset(key.name for key in KEYS.values() if key.shapes_plan)
