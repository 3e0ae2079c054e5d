"""Headrace: keyed stream processing on Spark. These are the public names; `headrace.testing` has the test kit.

Importing this loads neither Spark nor Arrow: a topology is declared without them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from headrace import signals

if signals.is_command():  # what follows takes a while
    signals.end_at_once()

from headrace.application import App
from headrace.core.affinity.groupers import (
    BalancingTaskNameGrouper,
    GroupByProcessor,
    LocalityInfo,
    LocalityManager,
    TaskNameGrouper,
)
from headrace.core.affinity.locations import LocationId, LocationIdProvider
from headrace.core.job_plan.groupers import (
    AllSspsToEveryTask,
    GroupByPartition,
    GroupByPartitionFixedTaskNum,
    GroupBySystemStreamPartition,
    GroupBySystemStreamPartitionFixedTaskNum,
    SystemStreamPartitionGrouper,
)
from headrace.dsl.aggregates import count, count_distinct, first, last, max, mean, min, sum
from headrace.dsl.cogrouped import KCogrouped
from headrace.dsl.concurrency import concurrent
from headrace.dsl.functions import batch
from headrace.dsl.grouped import KGrouped
from headrace.dsl.grouped_table import KGroupedTable
from headrace.dsl.joinable import GlobalTable
from headrace.dsl.kstream import KStream
from headrace.dsl.ktable import KTable
from headrace.dsl.processor import KeyValueStore, ListStore, MapStore, Processor, WindowStore
from headrace.dsl.processor_context import (
    KeyValueStoreView,
    ListStoreView,
    MapStoreView,
    ProcessorContext,
    Schedule,
    Timer,
    WindowStoreView,
)
from headrace.dsl.repartitioned import Repartitioned
from headrace.dsl.value_transformer import ValueTransformer
from headrace.dsl.windows import Hopping, Session, Sliding, Tumbling, Unlimited, until_time_limit, until_window_closes
from headrace.environment import VERSION as _VERSION
from headrace.errors import (
    AppLoadError,
    ArtifactError,
    CallTimeoutError,
    ConfigError,
    DiskFullError,
    EndlessTimersError,
    FencedError,
    HeadraceError,
    IncompatibleChangeError,
    InvalidNameError,
    JobHeldError,
    NotSupportedError,
    OffsetOutOfRangeError,
    OutOfRangeError,
    RecordError,
    RecordTooLargeError,
    RegistryError,
    RoundFailedError,
    SchemaError,
    SerdeError,
    SetupError,
    StartpointError,
    StateError,
    StorageError,
    StreamExistsError,
    StreamNotFoundError,
    TopologyError,
    UnavailableError,
    WaitTimeoutError,
)
from headrace.model.job_model import ContainerModel, TaskModel
from headrace.model.scale import Scale
from headrace.model.serde import Failures
from headrace.model.startpoint import PositionType, Startpoint, StartpointEntry, StartpointKey, StatePolicy
from headrace.model.streams import SystemStreamPartition
from headrace.model.tasks import TaskName
from headrace.record import Record
from headrace.serdes.json_serde import Json
from headrace.serdes.logical import UUID, Decimal, Timestamp
from headrace.serdes.messagepack import MessagePack
from headrace.serdes.own import OwnSerde
from headrace.serdes.scalars import Boolean, Bytes, Double, Float, Int, Long, Short, String
from headrace.serdes.schemas.avro import Avro
from headrace.serdes.schemas.json_schema import JsonSchema
from headrace.serdes.schemas.protobuf import Protobuf
from headrace.serdes.schemas.registry import SchemaRegistry
from headrace.serdes.typed import Serde
from headrace.serdes.windowed import Windowed, WindowedKey

if TYPE_CHECKING:
    from headrace import testing
    from headrace.client.autosizing import autosizing
    from headrace.client.dead_letters import dead_letters
    from headrace.client.letters import LetterFilter
    from headrace.client.scales import elasticity
    from headrace.client.startpoint_manager import OffsetManager, StartpointManager
    from headrace.client.startpoints import startpoints
    from headrace.client.state_reader import JobState, StateView, state
    from headrace.core.topology.description_types import TopologyDescription
    from headrace.driver.job import Job
    from headrace.driver.job_status import JobStatus, RunStatus
    from headrace.ports.metadata_store import MetadataStore
    from headrace.ports.system import Streams
    from headrace.wiring import open_system


__version__ = _VERSION

__all__ = [
    "__version__", "App", "Job", "JobStatus", "RunStatus", "Record", "open_system", "Streams", "testing",
    # declaring
    "KStream", "KTable", "GlobalTable", "KGrouped", "KCogrouped", "KGroupedTable",
    "Repartitioned", "TopologyDescription", "batch", "concurrent",
    "count", "count_distinct", "first", "last", "max", "mean", "min", "sum",
    "Tumbling", "Hopping", "Sliding", "Session", "Unlimited", "until_window_closes", "until_time_limit",
    # processors
    "Processor", "ValueTransformer", "ProcessorContext", "Schedule", "Timer", "KeyValueStore", "KeyValueStoreView",
    "ListStore", "ListStoreView", "MapStore", "MapStoreView", "WindowStore", "WindowStoreView",
    "state", "JobState", "StateView",
    # serdes
    "Serde", "OwnSerde", "Failures",
    "Bytes", "String", "Long", "Int", "Short", "Double", "Float", "Boolean", "UUID", "Timestamp", "Decimal",
    "Json", "MessagePack", "Avro", "Protobuf", "JsonSchema", "SchemaRegistry", "Windowed", "WindowedKey",
    # tasks, startpoints
    "SystemStreamPartition", "SystemStreamPartitionGrouper", "GroupByPartition", "GroupByPartitionFixedTaskNum",
    "GroupBySystemStreamPartition", "GroupBySystemStreamPartitionFixedTaskNum", "AllSspsToEveryTask", "TaskName",
    "elasticity", "autosizing", "dead_letters", "LetterFilter", "Scale", "LocationId", "LocationIdProvider",
    "TaskNameGrouper", "BalancingTaskNameGrouper", "GroupByProcessor", "ContainerModel", "TaskModel",
    "LocalityInfo", "LocalityManager",
    "Startpoint", "StartpointEntry", "StartpointKey", "PositionType", "StatePolicy", "startpoints",
    "OffsetManager", "StartpointManager", "MetadataStore",
    # errors
    "HeadraceError", "AppLoadError", "ArtifactError", "CallTimeoutError", "ConfigError", "DiskFullError", "EndlessTimersError",
    "FencedError", "IncompatibleChangeError", "InvalidNameError", "JobHeldError", "NotSupportedError",
    "OffsetOutOfRangeError", "OutOfRangeError", "RecordError", "RecordTooLargeError", "RegistryError", "RoundFailedError",
    "SchemaError", "SerdeError", "SetupError", "StartpointError", "StateError", "StorageError", "StreamExistsError",
    "StreamNotFoundError", "TopologyError", "UnavailableError", "WaitTimeoutError",
]  # fmt: skip

_LATER = {
    "TopologyDescription": "headrace.core.topology.description_types",
    "Job": "headrace.driver.job",
    "JobStatus": "headrace.driver.job_status",
    "MetadataStore": "headrace.ports.metadata_store",
    "OffsetManager": "headrace.client.startpoint_manager",
    "RunStatus": "headrace.driver.job_status",
    "StartpointManager": "headrace.client.startpoint_manager",
    "StateView": "headrace.client.state_reader",
    "JobState": "headrace.client.state_reader",
    "Streams": "headrace.ports.system",
    "autosizing": "headrace.client.autosizing",
    "dead_letters": "headrace.client.dead_letters",
    "LetterFilter": "headrace.client.letters",
    "elasticity": "headrace.client.scales",
    "open_system": "headrace.wiring",
    "startpoints": "headrace.client.startpoints",
    "state": "headrace.client.state_reader",
}


def __dir__() -> list[str]:
    """The public names alone: what completion offers, without the modules that happen to be loaded."""
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker, which knows all names, would take it to mean that any name is there

    def __getattr__(name: str) -> object:
        """What needs the runtime is loaded at its first use (PEP 562)."""
        if name == "testing":
            return importlib.import_module("headrace.testing")
        if name in _LATER:
            return getattr(importlib.import_module(_LATER[name]), name)
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
