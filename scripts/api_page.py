"""Fills the tables of the API page from signatures and docstrings: `api_page.py docs/api.md`. The text is written there.

A table is between `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

import headrace as hr
from headrace.adapters.log.system import LogSystem
from headrace.cli.commands import application
from headrace.client.autosizing import Autosizing
from headrace.client.dead_letters import DeadLetters
from headrace.client.scales import Elasticity
from headrace.client.startpoints import Startpoints
from headrace.client.state_reader import StateView
from headrace.driver.job import Job
from headrace.driver.running_job import RunningJob
from headrace.dsl.app_declaration import AppDeclaration
from headrace.dsl.displayable import Displayable
from headrace.dsl.joinable import StreamJoins, TableJoins
from headrace.dsl.preview import Preview
from headrace.testing.driver import Driver
from headrace.testing.stores import StoredView
from headrace.worker.operators.processing.process import Metrics, ProcessorContext
from headrace.worker.operators.processing.stores import KeyValueStoreView, ListStoreView, MapStoreView, WindowStoreView

_TABLE = re.compile(r"(<!-- table: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PROCESSOR_METHODS = ("init", "process", "process_batch", "on_timer", "close")
_TRANSFORMER_METHODS = ("init", "transform", "on_timer", "close")
_SYSTEM_METHODS = (
    "create_stream",
    "streams",
    "describe_stream",
    "expand_stream",
    "delete_stream",
    "produce",
    "consume",
    "beginning_offsets",
    "end_offsets",
    "offsets_for_time",
    "purge",
    "applications",
    "metadata_store",
)
_NOT_FOR_USERS: frozenset[tuple[type, str]] = frozenset(
    [(hr.App, "preview_of"), (AppDeclaration, "preview_of"), (Driver, "open"), (Driver, "close"), (Job, "start"), (Job, "wake")]
    + [(StateView, name) for name in ("form", "entries", "entries_as_of", "write_parquet", "to_arrow_as_of")]
    + [(Startpoints, name) for name in ("deletable_of", "deletable_in")]
    + [(DeadLetters, name) for name in ("since", "marks", "bounds", "serdes")]
    + [(RunningJob, "status")]  # the job says more of it
)  # what the framework itself calls


def page(text: str) -> str:
    """`text` with all of its tables rewritten."""
    return _TABLE.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def _members_of(*classes: type, only: Iterable[str] = ()) -> Callable[[], str]:
    def table() -> str:
        rows = [
            (_signature(f"metrics.{name}" if cls is Metrics else name, member), _sentence(member))
            for cls in classes
            for name, member in vars(cls).items()
            if (name in only if only else _is_for_users(cls, name))
            if inspect.isfunction(member) or isinstance(member, property)
        ]
        return _table(("call", "what it does"), rows)

    return table


def _is_for_users(cls: type, name: str) -> bool:
    return not name.startswith("_") and (cls, name) not in _NOT_FOR_USERS


def _names(*names: str) -> Callable[[], str]:
    def table() -> str:
        found = [(name, getattr(hr, name)) for name in names]
        return _table(("call", "what it is"), [(_signature(f"hr.{name}", each), _sentence(each)) for name, each in found])

    return table


def _signature(name: str, member: Any) -> str:
    """`name(a, b=1, *, c=None)`, without types; the name alone of a property."""
    if isinstance(member, property):
        return name
    parts, marked = [], False
    for parameter in inspect.signature(member).parameters.values():
        if parameter.name == "self" or parameter.name.startswith("_"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not marked:
            parts.append("*")
            marked = True
        parts.append(_parameter(parameter))
        marked |= parameter.kind is parameter.VAR_POSITIONAL
    return f"{name}({', '.join(parts)})"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    if parameter.default is parameter.empty:
        return stars + parameter.name
    shown = repr(parameter.default)
    return f"{parameter.name}={'…' if shown.startswith('<') else shown.replace(chr(39), chr(34))}"


def _sentence(member: Any) -> str:
    """The first paragraph of what it says about itself, on one line."""
    text = inspect.getdoc(member.fget if isinstance(member, property) else member)
    assert text, f"{member} has no docstring"
    return " ".join(text.partition("\n\n")[0].split())


def _table(head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|"]
    lines += [f"| `{call.replace('|', chr(92) + '|')}` | {text.replace('|', chr(92) + '|')} |" for call, text in rows]
    return "\n".join(lines) + "\n"


def _commands() -> str:
    root = typer.main.get_command(application)
    return _table(("command", "what it does"), list(_commands_in(root, "headrace")))


def _commands_in(group: Any, before: str) -> Iterable[tuple[str, str]]:
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            yield from _commands_in(command, f"{before} {name}")
            continue
        arguments = [
            (each.metavar or each.name) if each.required else f"[{each.metavar or each.name}]"
            for each in command.params
            if each.param_type_name == "argument"
        ]
        options = [max(each.opts, key=len) for each in command.params if each.param_type_name == "option"]
        text = " ".join(command.help.partition("\n\n")[0].split())
        yield " ".join([before, name, *arguments]), f"{text} Options: {', '.join(f'`{option}`' for option in options)}."


TABLES: dict[str, Callable[[], str]] = {
    "App": _members_of(AppDeclaration, hr.App),
    "KStream": _members_of(hr.KStream, Displayable),
    "KGrouped": _members_of(hr.KGrouped),
    "KCogrouped": _members_of(hr.KCogrouped),
    "KGroupedTable": _members_of(hr.KGroupedTable),
    "KTable": _members_of(hr.KTable, Displayable),
    "joins of streams": _members_of(StreamJoins),
    "joins of tables": _members_of(TableJoins),
    "serdes": _names(
        *("Bytes", "String", "Long", "Int", "Short", "Double", "Float", "Boolean", "UUID", "Timestamp", "Decimal"),
        *("Json", "MessagePack", "Avro", "Protobuf", "JsonSchema", "SchemaRegistry", "Windowed", "OwnSerde"),
    ),
    "windows": _names(
        *("Tumbling", "Hopping", "Sliding", "Session", "Unlimited", "WindowedKey"), "until_window_closes", "until_time_limit"
    ),
    "aggregates": _names("count", "sum", "mean", "min", "max", "first", "last", "count_distinct"),
    "declarations": _names(
        *("App", "Repartitioned", "KeyValueStore", "ListStore", "MapStore", "WindowStore"), "batch", "concurrent"
    ),
    "groupers": _names(
        "GroupByPartition",
        "GroupByPartitionFixedTaskNum",
        "GroupBySystemStreamPartition",
        "GroupBySystemStreamPartitionFixedTaskNum",
        "AllSspsToEveryTask",
        "SystemStreamPartitionGrouper",
        "SystemStreamPartition",
        "TaskName",
    ),
    "groupers of tasks": _names(
        *("TaskNameGrouper", "GroupByProcessor", "ContainerModel", "TaskModel", "BalancingTaskNameGrouper"),
        "LocalityInfo",
    ),
    "locality": _members_of(hr.LocalityManager),
    "locations": _members_of(hr.LocationIdProvider),
    "Processor": _members_of(hr.Processor, only=_PROCESSOR_METHODS),
    "ValueTransformer": _members_of(hr.ValueTransformer, only=_TRANSFORMER_METHODS),
    "context": _members_of(ProcessorContext, Metrics),
    "KeyValueStore": _members_of(KeyValueStoreView),
    "ListStore": _members_of(ListStoreView),
    "MapStore": _members_of(MapStoreView),
    "WindowStore": _members_of(WindowStoreView),
    "Driver": _members_of(Driver),
    "StoredView": _members_of(StoredView),
    "Job": _members_of(RunningJob, Job),
    "state": _members_of(StateView),
    "preview": _members_of(Preview),
    "elasticity names": _names("elasticity", "autosizing", "Scale"),
    "elasticity": _members_of(Elasticity),
    "autosizing": _members_of(Autosizing),
    "dead letter names": _names("dead_letters", "LetterFilter"),
    "dead letters": _members_of(DeadLetters),
    "startpoint names": _names(
        "startpoints",
        "Startpoint",
        "StartpointKey",
        "StartpointEntry",
        "StartpointManager",
        "OffsetManager",
    ),
    "startpoints": _members_of(Startpoints),
    "StartpointManager": _members_of(hr.StartpointManager),
    "OffsetManager": _members_of(hr.OffsetManager),
    "MetadataStore": _members_of(hr.MetadataStore),
    "system": _members_of(LogSystem, only=_SYSTEM_METHODS),
    "commands": _commands,
}


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(page(target.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {sys.argv[1]}")
