"""`headrace stream expand`: whom it would break, doing it, and telling the applications that read the stream."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import Annotated, NoReturn

import typer

from headrace import wiring
from headrace.cli.output import fail, print_json, say
from headrace.cli.targets import JsonOption, SystemOption, system_url, whole_number
from headrace.client.job_look import is_run
from headrace.codec.job_records import PARTITION_CHECKS, expansion_request
from headrace.core.job_plan.growth_rules import check_expansion, expand_command
from headrace.core.job_plan.stream_readers import Reader, count_for_all, readers_of
from headrace.core.topology.sub_topologies import REPARTITION_SUFFIX, short_name_of
from headrace.errors import HeadraceError, StorageError, StreamNotFoundError, UnavailableError
from headrace.model.job_model import JobModel
from headrace.model.streams import StreamDescription
from headrace.ports import System

EXAMPLES = """\
headrace stream expand flights --partitions 8
headrace stream expand by-carrier --application flight-delays --partitions 16"""


def expand(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The stream's name; with --application, a repartition name.")],
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", parser=whole_number(), metavar="N", help="The new number of partitions.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Expand even if an application that reads it cannot follow.")] = False,
    application: Annotated[
        str | None, typer.Option("--application", metavar="ID", help="The application whose repartition NAME is.")
    ] = None,
    system: SystemOption = None,
    json: JsonOption = False,
) -> None:
    """Add partitions to a stream. Running applications that read it pick them up at once, stopped ones at their next start."""
    if not name.strip():
        kind = "a stream" if application is None else "a repartition"
        fail(f"NAME is empty: expected the name of {kind}", "headrace stream list shows them")
    if application is not None and not application.strip():
        fail("--application is empty: expected the id of an application", "leave it out, and give the stream's whole name")
    url = system_url(system)
    with wiring.opened_system(url, create=False) as opened:
        stream = _stream(opened, url, name, application, partitions)
        check_expansion(stream.name, stream.partitions, partitions)
        models = job_models(opened, force, "expands the stream")
        readers = readers_of(stream.name, stream.id, stream.partitions, partitions, models)
        _refuse_to_break(stream, partitions, readers, force, system)
        running = {reader.application for reader in readers if is_run(opened.job_store(reader.application))}
        expanded = opened.expand_stream(stream.name, partitions)
        for reader in readers:
            _notify(opened, reader.application, expanded)
    _report(stream, expanded, readers, running, json)


def _stream(system: System, url: str, name: str, application: str | None, partitions: int) -> StreamDescription:
    """The stream to expand; `name` may be short for a repartition of `application`. Errors say how what is meant is named."""
    whole = name
    if application is not None and not (name.startswith(f"{application}-") and name.endswith(REPARTITION_SUFFIX)):
        whole = f"{application}-{name.removesuffix(REPARTITION_SUFFIX)}{REPARTITION_SUFFIX}"
    try:
        return system.describe_stream(whole)
    except StreamNotFoundError as missing:
        streams = system.streams()
        owned = [(one.internal_of, one.name) for one in streams if one.internal_of and one.name.endswith(REPARTITION_SUFFIX)]
        short_names = [(owner, short_name_of(owner, stream)) for owner, stream in owned]
        if application is None:
            owners = sorted(owner for owner, short in short_names if short == name)
            commands = [f"`headrace stream expand {name} --application {owner} --partitions {partitions}`" for owner in owners]
            if owners:
                whose = " and ".join(map(repr, owners))
                missing.hint = f"it is a repartition stream of application {whose}: {' or '.join(commands)}"
            raise
        if name in [stream.name for stream in streams]:
            _refuse_as_no_repartition(system, name, application, partitions)
        applications = system.applications()
        if application not in applications:
            near = difflib.get_close_matches(application, applications, 3) or applications
            hint = f"there are: {', '.join(near)}" if near else "run it first"
            fail(f"application {application!r} has not run on {url}, and has no repartitions there", hint)
        own = ", ".join(sorted(short for owner, short in short_names if owner == application))
        missing.hint = f"its repartitions are: {own}" if own else f"application {application!r} has no repartitions"
        raise


def _refuse_as_no_repartition(system: System, name: str, application: str, partitions: int) -> NoReturn:
    models = job_models(system, True, "expands the stream")
    is_input = any(model.application == application and name in model.partition_counts for model in models)
    what = f"an input of application {application!r}, and no repartition of it"
    fail(
        f"stream {name!r} is {what if is_input else f'no repartition of application {application!r}'}",
        f"leave --application out: headrace stream expand {name} --partitions {partitions}",
    )


def job_models(system: System, force: bool, forced: str) -> list[JobModel]:
    """Those of all applications here. One that cannot be read may read the stream: that is an error, unless `force`, of which
    `forced` says what it does."""
    models = []
    for application in system.applications():
        try:
            model = system.job_store(application).job_model()
        except UnavailableError:
            raise
        except StorageError as error:
            if not force:
                error.hint = f"--force {forced} without knowing whether that application reads it; {error.hint or ''}"
                raise
            say(f"warning: {error.message}: whether it reads the stream is not known")
        else:
            models += [] if model is None else [model]
    return models


def _refuse_to_break(
    stream: StreamDescription, partitions: int, readers: Sequence[Reader], force: bool, system: str | None
) -> None:
    stopped = [(reader.application, reader.refusal.message) for reader in readers if reader.refusal is not None]
    disordered = [(reader.application, reader.disorder) for reader in readers if reader.disorder is not None]
    if force:
        for application, reason in stopped:
            say(f"warning: what reads {stream.name!r} in application {application!r} stops: {reason}")
        for application, reason in disordered:
            say(f"warning: application {application!r}: {reason}")
        return
    if not stopped and not disordered:
        return
    better = count_for_all(readers, stream.partitions, max(partitions, stream.partitions + 1))
    effect = "unread records of a key may be processed out of order there"
    if stopped:
        effect = (
            "its readers stop, with state and positions intact, until the stream has grown to a number that they can follow; "
            "safe if the application is no longer used"
        )
    ways = [f"`{expand_command(stream.name, partitions, system, force=True)}`: {effect}"]
    if better is not None:
        ways.insert(0, f"`{expand_command(stream.name, better, system)}`, which all applications that read it can follow")
    reasons = "; ".join(f"application {application!r}: {reason}" for application, reason in [*stopped, *disordered])
    fail(
        f"expanding stream {stream.name!r} from {stream.partitions} to {partitions} partitions breaks what reads it; "
        f"nothing was changed. {reasons}",
        "; or ".join(ways),
    )


def _notify(system: System, application: str, stream: StreamDescription) -> None:
    """Ask a driver that runs to look at once. One that does not hear of it looks every `partition_check_interval_s`."""
    from headrace.environment import this_user

    try:
        request = expansion_request(stream.name, stream.partitions, this_user())
        system.metadata_store(application).request(PARTITION_CHECKS, request)
    except HeadraceError as error:
        say(
            f"warning: application {application!r} was not notified ({error.message}): it picks the partitions up at its "
            "next check, every partition_check_interval_s"
        )


def _report(
    before: StreamDescription, after: StreamDescription, readers: Sequence[Reader], running: Collection[str], json: bool
) -> None:
    warnings = sorted({reader.warning for reader in readers if reader.warning is not None})
    if json:
        followers = [
            {"application": name, "before": one.before, "follows": one.refusal is None, "running": name in running}
            for one in readers
            for name in [one.application]
        ]
        found = {"name": after.name, "id": after.id, "before": before.partitions, "partitions": after.partitions}
        print_json(found | {"applications": followers, "warnings": warnings})
        return
    for warning in warnings:
        say(f"warning: {warning}")
    print(f"expanded stream {after.name} from {before.partitions} to {after.partitions} partitions")
    for reader in readers:
        if reader.refusal is None:
            is_running = reader.application in running
            when = "is running: it reads them from its next round" if is_running else "reads them from its next start"
            print(f"  application {reader.application} {when}")
        else:
            print(f"  application {reader.application} cannot follow: its sub-topologies that read the stream stop")
