"""Owns `headrace stream expand`: whom it would break, doing it, and telling the applications that read the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

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

    full = name if application is None else _repartition_stream(application, name)
    with wiring.open_system(system_url(system), create=False) as opened:
        stream = opened.describe_stream(full)
        check_expansion(full, stream.partitions, partitions)
        readers = readers_of(full, stream.id, partitions, _job_models(opened, force))
        _refuse_to_break(stream, partitions, readers, force)
        expanded = opened.expand_stream(full, partitions)
        for reader in readers:
            _tell(opened, reader.application, expanded)
    _report(stream, expanded, readers, json)


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

    broken = [reader for reader in readers if reader.refusal is not None]
    if force:
        for reader in broken:
            say(f"warning: what reads {stream.name!r} in application {reader.application!r} stops: {_reason(reader)}")
        return
    if not broken:
        return
    better = count_for_all(readers, max(partitions, stream.partitions + 1))
    ways = [] if better is None else [f"--partitions {better}, which all applications that read it can follow"]
    ways.append("--force: what reads it there stops, state and positions untouched, and is not started again under that name")
    reasons = "; ".join(f"application {reader.application!r}: {_reason(reader)}" for reader in broken)
    fail(
        f"expanding stream {stream.name!r} from {stream.partitions} to {partitions} partitions breaks what reads it; "
        f"nothing was changed. {reasons}",
        "; or ".join(ways),
    )


def _reason(reader: Reader) -> str:
    assert reader.refusal is not None
    return reader.refusal.message


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
