"""The tree of commands: which there are, in which order, and what `headrace` itself says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from typer.core import TyperGroup

import headrace
from headrace.cli import (
    checkpoints,
    dead_letters,
    demo,
    doctor,
    elasticity,
    expand,
    jobs,
    run,
    servers,
    startpoints,
    states,
    stream_check,
    streams,
    ui,
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


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit


application = typer.Typer(
    cls=ReportingGroup,
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


_GROUPS = {
    "kafka": "Kafka: start a broker for trials.",
    "zookeeper": "ZooKeeper: start a server for trials.",
    "checkpoint": "Checkpoints: what each task has committed.",
    "startpoint": "Startpoints: set, list and delete resume positions.",
    "elasticity": "Elasticity: virtual tasks and containers, set and shown.",
    "dead-letters": "Dead letters: list, show, count, retry and discard records that could not be processed.",
    "stream": "Streams: create, list, describe, check, expand, produce, consume, delete.",
    "state": "State: read a store by key, dump it to a file, show the versions that are kept.",
}
_COMMANDS: tuple[tuple[str, Callable[..., None], str, str | None], ...] = (
    ("run", run.run, "Run an application on Spark.", run.EXAMPLES),
    ("status", jobs.status, "Show a job's progress, lag and tasks.", jobs.STATUS_EXAMPLES),
    ("describe", jobs.describe, "Show an application's topology.", jobs.DESCRIBE_EXAMPLES),
    ("tasks", jobs.tasks, "Show the tasks, their containers and inputs.", jobs.TASKS_EXAMPLES),
    ("plan", jobs.plan, "Show what the next start would change.", jobs.PLAN_EXAMPLES),
    ("history", jobs.history, "Show what has changed the plan of a job.", jobs.HISTORY_EXAMPLES),
    ("ui", ui.ui, "Show a job in a browser.", ui.EXAMPLES),
    ("checkpoint list", checkpoints.list_checkpoints, "Show what each task has committed.", checkpoints.EXAMPLES),
    ("checkpoint export", checkpoints.export, "Write the positions of all tasks to a file.", checkpoints.EXPORT_EXAMPLES),
    ("checkpoint import", checkpoints.import_, "Resume from exported positions.", checkpoints.IMPORT_EXAMPLES),
    ("startpoint set", startpoints.set_startpoint, "Replay or skip: set where tasks resume.", startpoints.SET_EXAMPLES),
    ("startpoint list", startpoints.list_startpoints, "List startpoints and their status.", startpoints.LIST_EXAMPLES),
    ("startpoint delete", startpoints.delete, "Delete startpoints that are not applied yet.", startpoints.DELETE_EXAMPLES),
    ("elasticity set", elasticity.set_scale, "Change virtual tasks or containers.", elasticity.SET_EXAMPLES),
    ("elasticity show", elasticity.show, "Show virtual tasks, containers and their history.", elasticity.SHOW_EXAMPLES),
    ("stream create", streams.create, "Create a stream.", streams.CREATE_EXAMPLES),
    ("stream list", streams.list_streams, "List all streams.", streams.LIST_EXAMPLES),
    ("stream describe", streams.describe, "Show a stream's partitions and their ends.", streams.DESCRIBE_EXAMPLES),
    ("stream check", stream_check.check, "Check by a sample that keys are in the right partitions.", stream_check.EXAMPLES),
    ("stream expand", expand.expand, "Add partitions to a stream.", expand.EXAMPLES),
    ("stream produce", streams.produce, "Append records from JSON lines.", streams.PRODUCE_EXAMPLES),
    ("stream consume", streams.consume, "Print records as JSON lines.", streams.CONSUME_EXAMPLES),
    ("stream delete", streams.delete, "Delete a stream and its records.", streams.DELETE_EXAMPLES),
    ("state get", states.get, "Read a store by key.", states.GET_EXAMPLES),
    ("state dump", states.dump, "Write a store to a Parquet file.", states.DUMP_EXAMPLES),
    ("state versions", states.versions, "Show the versions that are kept.", states.VERSIONS_EXAMPLES),
    ("dead-letters list", dead_letters.list_letters, "List records that could not be processed.", dead_letters.LIST_EXAMPLES),
    ("dead-letters show", dead_letters.show, "Show one as it was read.", dead_letters.SHOW_EXAMPLES),
    ("dead-letters count", dead_letters.count, "Count them by operator and reason.", dead_letters.COUNT_EXAMPLES),
    ("dead-letters retry", dead_letters.retry, "Put records back where they came from.", dead_letters.RETRY_EXAMPLES),
    ("dead-letters discard", dead_letters.discard, "Note that nothing is to be done.", dead_letters.DISCARD_EXAMPLES),
    ("reset", states.reset, "Forget all of a job that does not run.", states.RESET_EXAMPLES),
    ("doctor", doctor.doctor, "Check this machine, or verify a log.", doctor.DOCTOR_EXAMPLES),
    ("submit-args", doctor.submit_args, "Print the options for spark-submit.", doctor.SUBMIT_ARGS_EXAMPLES),
    ("class-archive", doctor.class_archive, "Make Spark start sooner on this machine.", None),
    ("kafka start", servers.start_kafka, "Start a broker for trials.", servers.KAFKA_EXAMPLES),
    ("zookeeper start", servers.start_zookeeper, "Start a ZooKeeper server for trials.", servers.ZOOKEEPER_EXAMPLES),
    ("demo", demo.demo, "Run the demonstration: a year of real flights, their delays.", None),
)


def _epilog(examples: str | None) -> str | None:
    """The end of a command's help; `examples` is that as a whole, or just lines, which stay as they are."""
    if examples is None or "Examples:" in examples:
        return examples
    return "Examples:\n\n\b\n  " + examples.replace("\n", "\n  ")


_typers = {"": application}
for _name, _help in _GROUPS.items():
    _typers[_name] = typer.Typer(help=_help, no_args_is_help=True, rich_markup_mode=None, cls=TyperGroup)
    application.add_typer(_typers[_name], name=_name)
for _path, _command, _short, _examples in _COMMANDS:
    _group, _, _name = _path.rpartition(" ")
    _typers[_group].command(_name, short_help=_short, epilog=_epilog(_examples), cls=PlainCommand)(_command)
