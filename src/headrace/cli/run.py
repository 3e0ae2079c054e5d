"""`headrace run`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace import wiring
from headrace.cli.output import print_json, say
from headrace.cli.targets import (
    AppArgument,
    CoordinatorOption,
    DropStoreOption,
    JsonOption,
    ProcessorIdOption,
    RenameStoreOption,
    SetOption,
    Target,
    whole_number,
    with_group,
    with_store_changes,
)
from headrace.cli.ui import PORT, AllowChangesOption, pages
from headrace.config.loading import load_config
from headrace.environment import process_age_s
from headrace.errors import ConfigError
from headrace.exchange.json_logs import JsonLog

if TYPE_CHECKING:
    from headrace.application import App
    from headrace.driver.job import Job
    from headrace.driver.job_status import JobStatus, RunStatus

EXAMPLES = """\
headrace run flights.py                       until Ctrl-C or SIGTERM
headrace run flights.py --until caught-up     process up to the current end offsets
headrace run flights.py --set containers=2 --set dead_letter_stream=bad-flights
headrace run flights.py --coordinator zookeeper://localhost:2181/headrace --processor-id a    one of a group
headrace run flights.py --rename-store delays=mean-delays      the store has a new name and keeps its state
headrace run flights.py --drop-store delays                    its state is dropped: see `headrace startpoint set --help`"""


CAUGHT_UP = "caught-up"


def _until(text: str) -> str:
    if text != CAUGHT_UP:
        raise typer.BadParameter(f"expected {CAUGHT_UP}, found {text!r}; did you mean {CAUGHT_UP!r}?")
    return text


def run(
    app: AppArgument,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            parser=_until,
            metavar=CAUGHT_UP,
            help="`caught-up`: exit after processing up to the current end offsets, and what comes of it",
        ),
    ] = None,
    coordinator: CoordinatorOption = None,
    processor_id: ProcessorIdOption = None,
    drop_store: DropStoreOption = None,
    rename_store: RenameStoreOption = None,
    set_: SetOption = None,
    ui: Annotated[bool, typer.Option("--ui", help="Show it in a browser too, as `headrace ui` does.")] = False,
    ui_port: Annotated[
        int, typer.Option("--ui-port", parser=whole_number(0, 65_535), metavar="N", help="Of --ui; 0: any that is free.")
    ] = PORT,
    allow_changes: AllowChangesOption = False,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="Hide the progress display.")] = False,
    json: JsonOption = False,
) -> None:
    """Run an application on Spark, with its progress, until it is stopped or has caught up.

    The file is read first, and refused if it cannot hold an application. Then it is imported: its whole top level is executed,
    but not the code under `if __name__ == "__main__":`. All commands that take APP do so.

    Ctrl-C and SIGTERM stop it cleanly: the running round is discarded, and the next run resumes from the last commit.
    """
    from headrace.cli.app_loading import load_app

    overrides = with_group(with_store_changes(set_, drop_store, rename_store), coordinator, processor_id)
    log = _json_log(app, overrides)
    loaded = load_app(app, overrides, say)
    config = wiring.config_of(loaded, overrides)
    if config.log_format == "json":
        (log or JsonLog(loaded.name)).is_of(loaded.name)
    if allow_changes and not ui:
        raise typer.BadParameter("--allow-changes goes with --ui")
    progress = not no_progress and config.log_format == "text"
    if ui:
        status = _run_with_pages(loaded, until, overrides, allow_changes, progress=progress, port=ui_port)
    else:
        age_s = process_age_s()
        status = wiring.run(loaded, until, overrides=overrides, log=say, progress=progress, python_s=age_s)
    if json:
        print_json(status)
    unprocessed = unprocessed_text(status, config.dead_letter_stream)
    if status.get("stopped"):
        say(f"{_stopped_text(loaded.name, status)}{unprocessed}")
    elif not json:
        # Kafka's transactions take an offset each for their markers, which are no records.
        say(_summary(status, "offset" if config.system.startswith("kafka:") else "record") + unprocessed)


def _stopped_text(application: str, status: Mapping[str, Any]) -> str:
    """
    >>> _stopped_text("words", {"processor_id": "c", "has_tasks": False})
    'stopped processor c of words: it had no tasks'
    """
    processor = status.get("processor_id")
    if processor is None:
        return f"stopped {application}: committed rounds are kept, the next run resumes from there"
    kept = "committed rounds are kept, its tasks wait for it, then go to other processors"
    return f"stopped processor {processor} of {application}: {kept if status.get('has_tasks') else 'it had no tasks'}"


def _json_log(app: str, overrides: list[str]) -> JsonLog | None:
    """The log as JSON lines, from the import of the file on, where that is set outside of it; it is open to the end of the
    command, as its last lines are of the log too."""
    file = Path(app.rpartition(":")[0] or app)
    with suppress(ConfigError):  # it is said once the file is loaded
        if load_config(file.parent, os.environ, {}, overrides).log_format == "json":
            return JsonLog(file.stem)
    return None


def _run_with_pages(
    app: App, until: str | None, overrides: list[str], allow_changes: bool, *, progress: bool, port: int
) -> RunStatus:
    """The pages first: what is wrong with them is said before Spark is started."""
    from headrace.wiring.foreground import wait_for

    started: list[Job] = []

    def stop() -> None:
        for job in started:
            job.stop()

    with pages(Target(app.name, wiring.config_of(app, overrides), app), "127.0.0.1", port, allow_changes, stop):
        job = wiring.start(app, until, overrides=overrides, log=say)
        started.append(job)
        try:
            return wait_for(job, progress)
        finally:
            if job.is_running:
                job.stop()


def _summary(status: JobStatus, unit: str) -> str:
    """Of the inputs only: what goes through a repartition stream is read there once more, and is no other record."""
    source = status["sub_topologies"].get("source")
    if source is None:
        return f"{status['application']} has caught up: this processor had no tasks"
    records, lag = source["records"], source["lag"]
    behind = f", {lag:,} came meanwhile" if lag else ""
    read = f"{records:,} input {unit}{'' if records == 1 else 's'}"
    return f"{status['application']} has caught up: {read} read{behind}"


def unprocessed_text(status: JobStatus, dead_letter_stream: str | None) -> str:
    """Of what a run was given the records that came to no result, for the end of a line; empty where there are none.

    >>> counters = {"dead_letters": 2, "late_records": 1}
    >>> unprocessed_text({"sub_topologies": {"source": {"counters": counters}}}, "bad")
    '; 2 dead letters and 1 late record went to bad'
    >>> unprocessed_text({"sub_topologies": {"source": {"counters": {"late_records": 3}}}}, None)
    '; 3 late records were dropped'
    """
    dead, late = (
        sum(sub.get("counters", {}).get(name, 0) for sub in status["sub_topologies"].values())
        for name in ("dead_letters", "late_records")
    )
    named = [(dead, "dead letter"), (late, "late record")]
    counted = [f"{count:,} {name}{'' if count == 1 else 's'}" for count, name in named if count]
    if not counted:
        return ""
    if dead_letter_stream is None:
        return f"; {' and '.join(counted)} {'was' if dead + late == 1 else 'were'} dropped"
    return f"; {' and '.join(counted)} went to {dead_letter_stream}"
