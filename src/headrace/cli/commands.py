"""The tree of commands: which there are, in which order, and what `headrace` itself says."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import headrace
from headrace.cli import (
    checkpoints,
    describe,
    doctor,
    expand,
    history,
    jobs,
    kafka,
    plan,
    run,
    startpoints,
    states,
    stream_check,
    streams,
)
from headrace.cli.output import PlainCommand, ReportingGroup

_HELP = """Headrace: keyed stream processing on Spark.

APP is the file that makes the application: flights.py, or flights.py:app where it makes several.

A first look:

\b
  headrace demo                              the main job on real data, in a minute
  headrace run flights.py --until caught-up  process up to the current end offsets
  headrace status flights.py                 its progress, lag and tasks
  headrace stream consume delays-by-carrier --key windowed:string --value json --limit 5
"""
_DEMO = "demo"


class LazyGroup(ReportingGroup):
    """The root group. `demo` is a module of its own that is loaded at its first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *([_DEMO] if _has_demo() else [])]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name != _DEMO or not _has_demo():
            return super().get_command(ctx, cmd_name)
        single = typer.Typer(rich_markup_mode=None, add_completion=False)
        single.command(_DEMO, cls=PlainCommand)(importlib.import_module("headrace.cli.demo").demo)
        return typer.main.get_command(single)


def _has_demo() -> bool:
    return importlib.util.find_spec("headrace.cli.demo") is not None


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit


application = typer.Typer(
    cls=LazyGroup,
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


@application.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="With an error, show Headrace's own stack trace too.")] = False,
) -> None:
    """What all commands share."""


_sub_group: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": None, "cls": TyperGroup}
_stream = typer.Typer(help="Streams: create, list, describe, check, expand, produce, consume, delete.", **_sub_group)
_checkpoint = typer.Typer(help="Checkpoints: what each task has committed.", **_sub_group)
_startpoint = typer.Typer(help="Startpoints: set, list and delete resume positions.", **_sub_group)
_kafka = typer.Typer(help="Kafka: start a broker for trials.", **_sub_group)
_state = typer.Typer(help="State: read a store by key, or dump it to a file.", **_sub_group)

application.command("run", short_help="Run an application on Spark.", epilog=run.EXAMPLES)(run.run)
application.command("status", short_help="Show a job's progress, lag and tasks.", epilog=jobs.STATUS_EXAMPLES)(jobs.status)
application.command("describe", short_help="Show an application's topology.", epilog=describe.EXAMPLES)(describe.describe)
application.command("tasks", short_help="Show the tasks, their containers and inputs.", epilog=jobs.TASKS_EXAMPLES)(jobs.tasks)
application.command("plan", short_help="Show what the next start would change.", epilog=plan.EXAMPLES)(plan.plan)
application.command("history", short_help="Show what has changed the plan of a job.", epilog=history.EXAMPLES)(
    history.history
)
_checkpoint.command("list", short_help="Show what each task has committed.", epilog=checkpoints.EXAMPLES)(
    checkpoints.list_checkpoints
)
_checkpoint.command("export", short_help="Write the positions of all tasks to a file.", epilog=checkpoints.EXPORT_EXAMPLES)(
    checkpoints.export_positions
)
_checkpoint.command("import", short_help="Resume from exported positions.", epilog=checkpoints.IMPORT_EXAMPLES)(
    checkpoints.import_positions
)
_startpoint.command("set", short_help="Replay or skip: set where tasks resume.", epilog=startpoints.SET_EXAMPLES)(
    startpoints.set_startpoint
)
_startpoint.command("list", short_help="List startpoints and their status.", epilog=startpoints.LIST_EXAMPLES)(
    startpoints.list_startpoints
)
_startpoint.command("delete", short_help="Delete startpoints that are not applied yet.", epilog=startpoints.DELETE_EXAMPLES)(
    startpoints.delete_startpoints
)
_stream.command("create", short_help="Create a stream.", epilog=streams.CREATE_EXAMPLES)(streams.create)
_stream.command("list", short_help="List all streams.", epilog=streams.LIST_EXAMPLES)(streams.list_streams)
_stream.command("describe", short_help="Show a stream's partitions and their ends.", epilog=streams.DESCRIBE_EXAMPLES)(
    streams.describe
)
_stream.command("check", short_help="Check by a sample that keys are in the right partitions.", epilog=stream_check.EXAMPLES)(
    stream_check.check
)
_stream.command("expand", short_help="Add partitions to a stream.", epilog=expand.EXAMPLES)(expand.expand)
_stream.command("produce", short_help="Append records from JSON lines.", epilog=streams.PRODUCE_EXAMPLES)(streams.produce)
_stream.command("consume", short_help="Print records as JSON lines.", epilog=streams.CONSUME_EXAMPLES)(streams.consume)
_stream.command("delete", short_help="Delete a stream and its records.", epilog=streams.DELETE_EXAMPLES)(streams.delete)
_state.command("get", short_help="Read a store by key.", epilog=states.GET_EXAMPLES)(states.get)
_state.command("dump", short_help="Write a store to a Parquet file.", epilog=states.DUMP_EXAMPLES)(states.dump)
application.command("doctor", short_help="Check this machine, or verify a log.", epilog=doctor.DOCTOR_EXAMPLES)(doctor.doctor)
application.command("submit-args", short_help="Print the options for spark-submit.", epilog=doctor.SUBMIT_ARGS_EXAMPLES)(
    doctor.submit_args
)
_kafka.command("start", short_help="Start a broker for trials.", epilog=kafka.START_EXAMPLES)(kafka.start)
application.add_typer(_kafka, name="kafka")
application.add_typer(_checkpoint, name="checkpoint")
application.add_typer(_startpoint, name="startpoint")
application.add_typer(_stream, name="stream")
application.add_typer(_state, name="state")

for _group in (application, _kafka, _checkpoint, _startpoint, _stream, _state):
    for _command in _group.registered_commands:
        _command.cls = PlainCommand
