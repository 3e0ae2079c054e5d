"""What the driver tells a container about one round, and what the container answers. Values, as msgspec structs.

What stays the same for a whole plan is a `core.topology.program.Program`; `ContainerPlan` changes from round to round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from headrace.core.rounds.event_times import FarTime
from headrace.exchange.texts import cut, message_of
from headrace.model.checkpoint import Head

RAW = -1  # the endpoint of rows that no expression has seen: a batch with offset, timestamp_us, headers, key, value


class InputRange(msgspec.Struct, frozen=True):
    """Offsets start <= o < end of SSP number `ssp`. `terms`: where the worker finds them by itself, as the system said
    (`ports.system.System.range_terms`); None where the engine reads them, and they come with the prepared rows."""

    ssp: int
    start: int
    end: int
    terms: Any = None


class TaskPlan(msgspec.Struct, frozen=True):
    """One task's share, and its base: the round that made it (`round_id`), positions and own reports of watermarks (by
    SSP number), the head of its state, timers, punctuations and marks. `watermark_us`: the task's as it was before the round.
    `startpoints`: by SSP number the id and the offset of a startpoint that is not known to be spent. `replay`: the number of
    the replay that the task is in (`core.rewind.replays`). `held_files`: so many of the head's files, the first ones, are to
    stay as they are: local stores of another elasticity factor are being made of them."""

    name: str
    positions: dict[int, int]
    head: Head | None = None
    watermark_us: int | None = None
    event_timer_us: int | None = None
    wall_timer_us: int | None = None
    round_id: str = ""
    watermarks: dict[int, int] = {}
    startpoints: dict[int, tuple[str, int]] = {}
    replay: int | None = None
    expiry_us: int | None = None
    closed_us: int | None = None
    held_files: int = 0
    punctuations: dict[str, tuple[int, int]] = {}


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that an operator, or an expression in Spark's engine, could not process. Its texts can be written as UTF-8, and
    are a few KB at most. `replay`: the number of the replay in which it was read, where it was in one."""

    ssp: int
    offset: int
    operator: str
    error_class: str
    message: str
    traceback: str = ""
    replay: int | None = None

    def __post_init__(self) -> None:
        for name in ("operator", "error_class", "message"):
            object.__setattr__(self, name, cut(getattr(self, name)))

    @classmethod
    def of(cls, ssp: int, offset: int, operator: str, error: BaseException, traceback: str = "") -> Self:
        """The reject of a record on which `error` was raised."""
        return cls(ssp, offset, operator, type(error).__name__, message_of(error), traceback)


class ContainerPlan(msgspec.Struct, frozen=True):
    """One container's work in one round. `ssps`: number to (system, stream, partition). `system` is the kind of system that the
    job runs on, and `terms` what its driver's side says to its worker's side (`ProcessorStore.container_terms`). `upstream`: of
    repartition streams, by SSP number, an offset and the event time up to which a task knows all once it is there. `control`:
    how the container gets the signals of its round (`engine.RoundControl.terms_of`); None: it gets none. `local_store_dir` is a
    folder of the worker's machine, and `state_uri` one that all machines see; `has_other_machines`: the worker may not be on
    the driver's. `known_failures`: records that never enter the expressions, and are rejected instead. `threads`: how many work
    on rows. `lead`: so many offsets a virtual task may be ahead of another one of its partition; None: any number. `location`:
    where the container is to run, None for anywhere; `location_id`: how a worker knows where it is, as configured. `is_part`:
    other tasks of the container take no part in the round, and may be restored meanwhile. `restore_inline_bytes`: so many
    bytes of state files opening its stores may read; where it is more the container declines; None: nothing is restored in the
    background, and it never does. `log_as`: the application, where the worker logs JSON lines."""

    round_id: str
    epoch: int
    lane: int
    ssps: list[tuple[str, str, int]]
    tasks: list[TaskPlan]
    ranges: list[InputRange]
    now_us: int
    deadline_s: float
    run_id: str
    local_store_dir: str
    state_uri: str
    system: str
    job_model_version: int
    terms: Any = None
    control: Any = None
    has_other_machines: bool = False
    known_failures: list[Reject] = []
    upstream: dict[int, tuple[int, int]] = {}
    threads: int = 1
    lead: int | None = None
    location: str | None = None
    location_id: str | None = None
    restore_inline_bytes: int | None = None
    is_part: bool = False
    log_as: str | None = None


class Failure(msgspec.Struct, frozen=True):
    """A record that could not be processed where no dead-letter stream is set: the round must not be committed."""

    stream: str
    partition: int
    offset: int
    operator: str
    error_class: str
    message: str
    traceback: str


class TaskMeasures(msgspec.Struct, frozen=True, array_like=True):
    """What was measured of one task in one round, under the names of `core.metrics.table` with `_` for `-`; times in ns.
    `task`: its name. `local_bytes`: the size of its local store, None where the round did not open it."""

    task: str
    records_processed: int = 0
    process_ns: int = 0
    wait_ns: int = 0
    store_identify_ns: int = 0
    gets: int = 0
    get_ns: int = 0
    puts: int = 0
    put_ns: int = 0
    deletes: int = 0
    delete_ns: int = 0
    local_bytes: int | None = None
    decode_ns: int = 0


class ContainerMeasures(msgspec.Struct, frozen=True):
    """What was measured of one container in one round, named as in `TaskMeasures`. `records_fetched`: without those that the
    engine has read for it. `tasks`: those that had anything to do. `threads`: how many processed rows. `restored_bytes`: so
    much of state files was read to open local stores. `work_ns`: from its begin to the end of its tasks; `commit_ns` includes
    `write_ns`; `apply_ns`: of applying to local stores what was committed."""

    threads: int = 1
    records_fetched: int = 0
    total_input_consumption_ns: int = 0
    keyhash_compute_ns: int = 0
    commit_ns: int = 0
    tasks: list[TaskMeasures] = []
    restored_bytes: int = 0
    work_ns: int = 0
    write_ns: int = 0
    apply_ns: int = 0


class Summary(msgspec.Struct, frozen=True):
    """The one row that a container yields. `declined`: where it was run, as that is not its location; `missing`: by task how
    many bytes of state files are to be read first: in both cases it has done nothing, and has no part in the round. `lost`: its
    location was lost before it had answered, and the engine answers for it: it has no part in the round either.
    `checkpoints`: of its tasks, in the form of `wire`. `receipt`: what the worker's side of the system gave for the writes
    (`model.commits.ContainerCommit`). `counters` by metric name. `far_times`: the first of each stream. `worked_s`: for so long
    tasks processed rows, summed over threads, and of that `waited_s` for something else than a processor. `written`: records by
    stream. `task_errors`: by task the last record that it could not process, and why."""

    lane: int
    checkpoints: list[msgspec.Raw] = []
    receipt: Any = None
    state_files: list[str] = []
    counters: dict[str, int] = {}
    failure: Failure | None = None
    notes: list[str] = []
    far_times: list[FarTime] = []
    cut_short: bool = False
    worked_s: float = 0.0
    waited_s: float = 0.0
    stopped: bool = False
    error: str | None = None
    measures: ContainerMeasures = ContainerMeasures()
    declined: str | None = None
    missing: dict[str, int] = {}
    lost: bool = False
    written: dict[str, int] = {}
    task_errors: dict[str, str] = {}

    @property
    def has_declined(self) -> bool:
        return self.declined is not None or bool(self.missing) or self.lost


encoded: Callable[[ContainerPlan | Summary], bytes] = msgspec.json.Encoder().encode
decoded_plan = msgspec.json.Decoder(ContainerPlan).decode
decoded_summary = msgspec.json.Decoder(Summary).decode
