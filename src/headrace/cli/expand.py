"""Owns `headrace stream expand`: whom it would break, doing it, and telling the applications that read the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from headrace import wiring
from headrace.cli.output import fail, print_json, say
from headrace.cli.targets import JsonOption, SystemOption, system_url

if TYPE_CHECKING:
    from headrace.core.readers import Reader
    from headrace.model.job_model import JobModel
    from headrace.ports import StreamDescription

EXAMPLES = """Examples:

\b
  headrace stream expand flights --partitions 8
  headrace stream expand by-carrier --application flight-delays --partitions 16
"""


def expand(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The stream's name; with --application, a repartition's.")],
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="How many partitions it is to have then.")],
    force: Annotated[bool, typer.Option("--force", help="Also where an application that reads it cannot follow.")] = False,
    application: Annotated[
        str | None, typer.Option("--application", metavar="ID", help="Whose repartition NAME is: by-carrier, for short.")
    ] = None,
    system: SystemOption = None,
    json: JsonOption = False,
) -> None:
    """Add partitions to a stream. The applications that read it take them up, those that run at once."""
    from headrace.core.growth import check_expansion
    from headrace.core.readers import readers_of

    _check_named(name, application)
    full = name if application is None else _repartition_stream(application, name)
    with wiring.open_system(system_url(system), create=False) as opened:
        stream = _described(opened, name, full, application, partitions)
        check_expansion(full, stream.partitions, partitions)
        readers = readers_of(full, stream.id, stream.partitions, partitions, _job_models(opened, force))
        _refuse_to_break(stream, partitions, readers, force)
        expanded = opened.expand_stream(full, partitions)
        for reader in readers:
            _tell(opened, reader.application, expanded)
    _report(stream, expanded, readers, json)


def _check_named(name: str, application: str | None) -> None:
    if not name.strip():
        kind = "a stream" if application is None else "a repartition"
        fail(f"NAME is empty: expected the name of {kind}", "headrace stream list shows them")
    if application is not None and not application.strip():
        fail("--application is empty: expected the id of an application", "leave it out, and give the stream's whole name")


def _described(system: Any, name: str, full: str, application: str | None, partitions: int) -> StreamDescription:
    """The stream to expand. What is no repartition of `application` may be a stream by itself: then this is said."""
    from headrace.errors import StreamNotFoundError

    found: StreamDescription
    try:
        found = system.describe_stream(full)
    except StreamNotFoundError as missing:
        if application is None:
            raise
        try:
            system.describe_stream(name)
        except StreamNotFoundError:
            raise missing from None
        _refuse_as_no_repartition(system, name, application, partitions)
    return found


def _refuse_as_no_repartition(system: Any, name: str, application: str, partitions: int) -> NoReturn:
    models = _job_models(system, force=True)
    is_input = any(model.application == application and name in model.partition_counts for model in models)
    fail(
        f"stream {name!r} is an input of application {application!r}, and no repartition of it"
        if is_input
        else f"stream {name!r} is no repartition of application {application!r}",
        f"leave --application out: headrace stream expand {name} --partitions {partitions}",
    )


def _repartition_stream(application: str, name: str) -> str:
    """The stream's whole name, which may be given as well."""
    from headrace.core.sub_topologies import REPARTITION_SUFFIX

    if name.startswith(f"{application}-") and name.endswith(REPARTITION_SUFFIX):
        return name
    return f"{application}-{name.removesuffix(REPARTITION_SUFFIX)}{REPARTITION_SUFFIX}"


def _job_models(system: Any, force: bool) -> list[JobModel]:
    """Those of all applications here. One that cannot be read may read the stream: that is an error, unless forced."""
    from headrace.errors import StorageError, UnavailableError

    models = []
    for application in system.applications():
        try:
            model = system.job_store(application).job_model()
        except UnavailableError:
            raise
        except StorageError as error:
            if not force:
                error.hint = f"--force expands the stream without knowing whether that application reads it; {error.hint or ''}"
                raise
            say(f"warning: {error.message}: whether it reads the stream is not known")
        else:
            models += [] if model is None else [model]
    return models


def _refuse_to_break(stream: StreamDescription, partitions: int, readers: Sequence[Reader], force: bool) -> None:
    from headrace.core.readers import count_for_all

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
    ways = [] if better is None else [f"--partitions {better}, which all applications that read it can follow"]
    if stopped:
        stops = "what reads it there stops, state and positions untouched, and is not started again under that name"
        ways.append(f"--force: {stops}")
    else:
        ways.append("--force: what is not read yet of a key may be read out of order there")
    reasons = "; ".join(f"application {application!r}: {reason}" for application, reason in [*stopped, *disordered])
    fail(
        f"expanding stream {stream.name!r} from {stream.partitions} to {partitions} partitions breaks what reads it; "
        f"nothing was changed. {reasons}",
        "; or ".join(ways),
    )


def _tell(system: Any, application: str, stream: StreamDescription) -> None:
    """Ask a driver that runs to look at once. One that does not hear of it looks every `partition_check_interval_s`."""
    import msgspec

    from headrace.errors import HeadraceError
    from headrace.runtime.partition_watch import PARTITION_CHECKS

    try:
        request = msgspec.json.encode({"stream": stream.name, "partitions": stream.partitions})
        system.metadata_store(application).request(PARTITION_CHECKS, request)
    except HeadraceError as error:
        say(
            f"warning: application {application!r} could not be told ({error.message}): it takes the partitions up when it "
            "looks by itself, every partition_check_interval_s"
        )


def _report(before: StreamDescription, after: StreamDescription, readers: Sequence[Reader], json: bool) -> None:
    warnings = sorted({reader.warning for reader in readers if reader.warning is not None})
    if json:
        followers = [{"application": one.application, "before": one.before, "follows": one.refusal is None} for one in readers]
        print_json(
            {
                "name": after.name,
                "id": after.id,
                "before": before.partitions,
                "partitions": after.partitions,
                "applications": followers,
                "warnings": warnings,
            }
        )
        return
    for warning in warnings:
        say(f"warning: {warning}")
    print(f"expanded stream {after.name} from {before.partitions} to {after.partitions} partitions")
    for reader in readers:
        if reader.refusal is None:
            print(f"  application {reader.application} takes them up: at its next round if it runs, else at its next start")
        else:
            print(f"  application {reader.application} cannot follow: what reads the stream there stops")
