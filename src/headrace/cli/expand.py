"""`headrace stream expand`: whom it would break, doing it, and telling the applications that read the stream."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, NoReturn

import typer

from headrace import wiring
from headrace.cli.output import fail, print_json, say
from headrace.cli.targets import JsonOption, SystemOption, system_url, whole_number
from headrace.client.job_look import is_run
from headrace.codec.job_records import PARTITION_CHECKS, expansion_request
from headrace.core.job_plan.growth_rules import check_expansion, expand_command
from headrace.core.job_plan.stream_readers import Reader, count_for_all, readers_of
from headrace.core.topology.sub_topologies import REPARTITION_SUFFIX, short_name_of
from headrace.errors import HeadraceError, IncompatibleChangeError, StorageError, StreamNotFoundError, UnavailableError
from headrace.model.job_model import JobModel
from headrace.model.streams import StreamDescription
from headrace.ports.system import System

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
        readers = checked_readers(opened, stream, partitions, force=force, url=system)
        running = running_of(opened, readers)
        expanded = carried_out(opened, stream, partitions, readers, say)
    if json:
        print_json(expansion_document(stream, expanded, readers, running))
    else:
        _report(stream, expanded, readers, running)


def checked_readers(
    system: System, stream: StreamDescription, partitions: int, *, force: bool = False, url: str | None = None
) -> Sequence[Reader]:
    """Who reads a stream that is to be expanded; the error that says why it is not to be, which `force` makes warnings."""
    check_expansion(stream.name, stream.partitions, partitions)
    models = job_models(system, force, "expands the stream")
    readers = readers_of(stream.name, stream.id, stream.partitions, partitions, models)
    if force:
        _warn(stream, readers)
    elif (refused := refusal(stream, partitions, readers, url)) is not None:
        raise refused
    return readers


def running_of(system: System, readers: Sequence[Reader]) -> set[str]:
    """The applications of these that run."""
    return {reader.application for reader in readers if is_run(system.job_store(reader.application))}


def carried_out(
    system: System, stream: StreamDescription, partitions: int, readers: Sequence[Reader], said: Callable[[str], None]
) -> StreamDescription:
    """Expand the stream, and notify who reads it."""
    expanded = system.expand_stream(stream.name, partitions)
    for reader in readers:
        _notify(system, reader.application, expanded, said)
    return expanded


def expansion_document(
    before: StreamDescription, after: StreamDescription, readers: Sequence[Reader], running: Collection[str]
) -> dict[str, Any]:
    """For programs. `after`: as it is, or is to be."""
    followers = [
        {"application": name, "before": one.before, "follows": one.refusal is None, "running": name in running}
        for one in readers
        for name in [one.application]
    ]
    found = {"name": after.name, "id": after.id, "before": before.partitions, "partitions": after.partitions}
    return found | {"applications": followers, "warnings": _warnings(readers)}


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


def _breaks(readers: Sequence[Reader]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The applications that would stop, and those that would process records out of order, each with why."""
    stopped = [(reader.application, reader.refusal.message) for reader in readers if reader.refusal is not None]
    return stopped, [(reader.application, reader.disorder) for reader in readers if reader.disorder is not None]


def _warn(stream: StreamDescription, readers: Sequence[Reader]) -> None:
    stopped, disordered = _breaks(readers)
    for application, reason in stopped:
        say(f"warning: what reads {stream.name!r} in application {application!r} stops: {reason}")
    for application, reason in disordered:
        say(f"warning: application {application!r}: {reason}")


def refusal(
    stream: StreamDescription, partitions: int, readers: Sequence[Reader], system: str | None
) -> IncompatibleChangeError | None:
    """Why a stream is not to be expanded so, and what to do instead; None where nothing breaks."""
    stopped, disordered = _breaks(readers)
    if not stopped and not disordered:
        return None
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
    return IncompatibleChangeError(
        f"expanding stream {stream.name!r} from {stream.partitions} to {partitions} partitions breaks what reads it; "
        f"nothing was changed. {reasons}",
        "; or ".join(ways),
    )


def _notify(system: System, application: str, stream: StreamDescription, said: Callable[[str], None]) -> None:
    """Ask a driver that runs to look at once. One that does not hear of it looks every `partition_check_interval_s`."""
    from headrace.environment import this_user

    try:
        request = expansion_request(stream.name, stream.partitions, this_user())
        system.metadata_store(application).request(PARTITION_CHECKS, request)
    except HeadraceError as error:
        said(
            f"warning: application {application!r} was not notified ({error.message}): it picks the partitions up at its "
            "next check, every partition_check_interval_s"
        )


def _warnings(readers: Sequence[Reader]) -> list[str]:
    return sorted({reader.warning for reader in readers if reader.warning is not None})


def _report(before: StreamDescription, after: StreamDescription, readers: Sequence[Reader], running: Collection[str]) -> None:
    for warning in _warnings(readers):
        say(f"warning: {warning}")
    print(f"expanded stream {after.name} from {before.partitions} to {after.partitions} partitions")
    for reader in readers:
        if reader.refusal is None:
            is_running = reader.application in running
            when = "is running: it reads them from its next round" if is_running else "reads them from its next start"
            print(f"  application {reader.application} {when}")
        else:
            print(f"  application {reader.application} cannot follow: its sub-topologies that read the stream stop")
