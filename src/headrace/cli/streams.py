"""`headrace stream`: the streams of a system, their records as JSON lines in and out."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from headrace import wiring
from headrace.cli.expand import job_models
from headrace.cli.json_values import line_of_record, looks_windowed, record_of_line
from headrace.cli.output import EXIT_USAGE, counted, fail, print_json, print_table, report, say
from headrace.cli.previews import is_somebody_there
from headrace.cli.targets import JsonOption, SystemOption, YesOption, looked_up, system_url, whole_number
from headrace.client.job_look import is_run
from headrace.codec.job_records import stored_operators
from headrace.core.job_plan.stream_readers import is_output, models_that_read
from headrace.errors import ConfigError, HeadraceError, SerdeError, StorageError, StreamNotFoundError, UnavailableError
from headrace.model.durations import time_us
from headrace.model.serde import Serde
from headrace.model.streams import StreamDescription
from headrace.record import Record
from headrace.serdes.serdes import BY_FORM, serde_of_text

_SERDES = f"{', '.join(BY_FORM)}, decimal(DIGITS,DIGITS), json:DDL, windowed:SERDE"
CREATE_EXAMPLES = "headrace stream create flights --partitions 4"
LIST_EXAMPLES = "headrace stream list --system log:./data"
DESCRIBE_EXAMPLES = "headrace stream describe flights"
DELETE_EXAMPLES = "headrace stream delete flights --yes"
PRODUCE_EXAMPLES = """A line is {"key": ..., "value": ...}; "timestamp" (ISO 8601 or µs since 1970), "headers" (an object)
and "partition" may be there. Bytes are a text, or {"base64": ...}; UUIDs, times and decimals are texts. "offset" is ignored:
the output of `consume` can be produced again, and gets new offsets. Examples:

\b
  echo '{"key": "N1", "value": {"carrier": "UA"}}' | headrace stream produce flights --key string --value json
  headrace stream produce flights --key string --value 'json:carrier string, delay double' < flights.jsonl
"""
CONSUME_EXAMPLES = """\
headrace stream consume flights --key string --value json --limit 10
headrace stream consume delays --key windowed:string --value json --follow
headrace stream consume flights --partition 0 --start 1000
headrace stream consume flights --start 2013-06-01T00:00:00Z"""
_WINDOWED = "--key windowed:SERDE, such as windowed:string"
_FOLLOW_INTERVAL_S = 0.2
_BATCH_LINES = 100_000
_UNANSWERED_MAX = 3  # streams in a list: each of them is waited for, and behind so many no other is asked about

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The stream's name.")]
KeyOption = Annotated[str, typer.Option("--key", metavar="SERDE", help=f"Serde of the keys: {_SERDES}.")]
ValueOption = Annotated[str, typer.Option("--value", metavar="SERDE", help="Serde of the values, as for --key.")]


def create(
    name: NameArgument,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", parser=whole_number(), metavar="N", help="Number of partitions.")
    ] = 1,
    system: SystemOption = None,
    json: JsonOption = False,
) -> None:
    """Create a stream; the log itself too, if there is none yet."""
    with wiring.open_system(system_url(system)) as opened:
        created = opened.create_stream(name, partitions)
    found = {"name": created.name, "partitions": created.partitions, "id": created.id}
    report(json, found, f"created stream {created.name} with {counted(created.partitions, 'partition')}")


def list_streams(system: SystemOption = None, json: JsonOption = False) -> None:
    """List all streams, also the repartition streams that belong to an application."""
    with looked_up(system) as opened:
        found = opened.streams()
        counts = _counts_of(opened, [one.name for one in found])
        rows = [(one.name, one.partitions, count, one.internal_of) for one, count in zip(found, counts, strict=True)]
    if json:
        print_json([dict(zip(("name", "partitions", "records", "internal_of"), row, strict=True)) for row in rows])
    elif rows:
        print_table(("stream", "partitions", "records", "of application"), rows, right=("partitions", "records"))
    else:
        say("there are no streams yet; create one with `headrace stream create NAME`")


def describe(name: NameArgument, system: SystemOption = None, json: JsonOption = False) -> None:
    """Show a stream's partitions: the first offset that can be read, and the end (the offset of the next record)."""
    with looked_up(system) as opened:
        stream = opened.describe_stream(name)
        beginnings, ends = opened.beginning_offsets(name), opened.end_offsets(name)
    rows = [{"partition": number, "beginning": beginnings.get(number, 0), "end": ends[number]} for number in sorted(ends)]
    if json:
        print_json({"name": stream.name, "id": stream.id, "internal_of": stream.internal_of, "partitions": rows})
        return
    owner = f", of application {stream.internal_of}" if stream.internal_of else ""
    print(f"{stream.name}: {counted(stream.partitions, 'partition')}{owner}")
    names = ("partition", "beginning", "end", "records")
    print_table(names, [(r["partition"], r["beginning"], r["end"], r["end"] - r["beginning"]) for r in rows], right=names)


def delete(
    name: NameArgument,
    yes: YesOption = False,
    force: Annotated[bool, typer.Option("--force", help="Delete even if an application reads, writes or needs it.")] = False,
    system: SystemOption = None,
    json: JsonOption = False,
) -> None:
    """Delete a stream and its records. A job that reads or writes it fails from then on.

    Refused while an application reads it, running or not, and while a running one writes it: --force deletes it
    anyway. An application that read it cannot start again under its name, even if a stream of that name is created again.
    """
    with wiring.opened_system(system_url(system), create=False) as opened:
        stream = opened.describe_stream(name)
        if stream.internal_of is not None and not force:
            fail(
                f"stream {name!r} belongs to application {stream.internal_of!r}: deleting it loses positions, or records "
                "in flight, and the application cannot resume from its committed offsets",
                "--force deletes it anyway; then run the application under another name",
            )
        models = models_that_read(stream.name, stream.id, job_models(opened, force, "deletes the stream"))
        names = [model.application for model in models if model.application != stream.internal_of]
        readers = {name: is_run(opened.job_store(name)) for name in names}
        writers = _writers_of(opened, stream, force)
        _refuse_to_delete(stream, readers, writers, force, system)
        if not yes:
            if not is_somebody_there():
                text = f"standard input is no terminal to ask whether {name} is to be deleted; nothing was changed"
                fail(text, "add --yes", EXIT_USAGE)
            typer.confirm(f"delete {name} with {_records_in(opened, name):,} records?", abort=True, err=True)
        opened.delete_stream(name)
    listed = {"applications": _listed(readers), "writers": _listed(writers)}
    report(json, {"deleted": name, "id": stream.id, **listed}, f"deleted stream {name}")


def _listed(applications: dict[str, bool]) -> list[dict[str, Any]]:
    return [{"application": name, "running": is_running} for name, is_running in applications.items()]


def _writers_of(system: Any, stream: StreamDescription, force: bool) -> dict[str, bool]:
    """The applications that have written a stream as an output when they last ran; whether each runs."""
    found = {}
    for application in system.applications():
        try:
            operators = stored_operators(system.metadata_store(application)) or ()
        except UnavailableError:
            raise
        except StorageError as error:
            if not force:
                raise
            say(f"warning: {error.message}: whether it writes the stream is not known")
            continue
        if application != stream.internal_of and is_output(stream.name, operators):
            found[application] = is_run(system.job_store(application))
    return found


def _refuse_to_delete(
    stream: StreamDescription, readers: dict[str, bool], writers: dict[str, bool], force: bool, system: str | None
) -> None:
    fails = "and runs: it fails as soon as the stream is deleted"
    refused, recreates = "its next start is refused without the stream", "its next start creates it again, without the records"
    reasons = [f"application {name!r} reads it{f' {fails}' if runs else f': {refused}'}" for name, runs in readers.items()]
    running = [name for name, runs in writers.items() if runs]
    reasons += [f"application {name!r} writes it {fails}" for name in running]
    notes = [f"application {name!r} writes it: {recreates} that it has written" for name in writers if name not in running]
    if force or not reasons:
        for text in [*reasons, *notes]:
            say(f"warning: stream {stream.name!r}: {text}")
        return
    last = "stop the application first, or start it again afterwards"
    if readers:
        last = (
            "an application that reads it cannot start under its name then, also where the stream is created again: its "
            "positions and its state are of the deleted one; run it under another name"
        )
    does = " or ".join(word for word, found in (("reads", readers), ("writes", running)) if found)
    fail(
        f"deleting stream {stream.name!r} breaks what {does} it; nothing was changed. {'; '.join(reasons)}",
        f"`headrace stream delete {stream.name} --force{f' --system {system}' if system else ''}` deletes it all the same; "
        + last,
    )


def produce(
    name: NameArgument,
    key: KeyOption = "bytes",
    value: ValueOption = "bytes",
    batch: Annotated[
        int,
        typer.Option(
            "--batch", parser=whole_number(1, _BATCH_LINES), metavar="N", help="Lines per commit; each is all or nothing."
        ),
    ] = _BATCH_LINES,
    system: SystemOption = None,
    json: JsonOption = False,
) -> None:
    """Append records, JSON lines from standard input. A bad line is named, and nothing of its batch is written."""
    key_serde, value_serde = serde_of_text(key), serde_of_text(value)
    written = 0
    with wiring.open_system(system_url(system), create=False) as opened:
        partitions = opened.describe_stream(name).partitions  # before anything is read
        lines = ((number, line) for number, line in enumerate(sys.stdin.buffer, start=1) if line.strip())
        records = (record_of_line(line, number, key_serde, value_serde, partitions) for number, line in lines)
        try:
            while chunk := list(islice(records, batch)):
                written += opened.produce(name, chunk)
        except HeadraceError as error:
            before = f"{written:,} records of the batches before were written, none of this one"
            error.message = f"{error.message}; {before if written else 'nothing was written'}"
            raise
    if json:
        print_json({"stream": name, "records": written})
    else:
        say(f"wrote {counted(written, 'record')} to {name}")


def consume(
    name: NameArgument,
    key: KeyOption = "bytes",
    value: ValueOption = "bytes",
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", parser=whole_number(0), metavar="P", help="Only this partition; may be repeated."),
    ] = None,
    start: Annotated[
        str, typer.Option("--start", help="An offset, `earliest`, `latest`, or a time such as 2013-06-01T00:00:00Z.")
    ] = "earliest",
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", parser=whole_number(0), metavar="N", help="End after so many records.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more records, until Ctrl-C.")] = False,
    system: SystemOption = None,
    json: Annotated[bool, typer.Option("--json", help="JSON lines: they come in any case.")] = False,
) -> None:
    """Print records as JSON lines: key, value, partition, offset, timestamp, headers; partition after partition."""
    key_serde, value_serde = serde_of_text(key), serde_of_text(value)
    with looked_up(system) as opened:
        positions = _starts(opened, name, start, sorted(set(partition)) if partition else None)
        records = islice(_consumed(opened, name, key_serde, value_serde, positions, follow), limit)
        try:
            has_seen_key = False
            for record in records:
                if not has_seen_key and looks_windowed(record.key):
                    say(f"hint: these look like the keys of windows: read them with {_WINDOWED}")
                has_seen_key = has_seen_key or record.key is not None
                sys.stdout.write(line_of_record(record).decode() + "\n")
        except SerdeError as error:
            error.hint = (error.hint or "").replace("key=", "--key").replace("value=", "--value")
            if error.message.startswith("the key") and not key.startswith("windowed:"):
                error.hint += f"; the keys of windows are read with {_WINDOWED}"
            raise


def _consumed(system: Any, name: str, key: Serde, value: Serde, positions: dict[int, int], follow: bool) -> Iterator[Record]:
    while True:
        for record in system.consume(name, key, value, sorted(positions), dict(positions)):
            positions[record.partition] = record.offset + 1
            yield record
        sys.stdout.flush()
        if not follow:
            return
        time.sleep(_FOLLOW_INTERVAL_S)


def _starts(system: Any, name: str, start: str, wanted: list[int] | None) -> dict[int, int]:
    """The offset to begin at, per partition. What is not there is refused."""
    offset = int(start) if start.isdecimal() and len(start) < 20 else None  # Python refuses to read thousands of digits
    if start == "earliest":
        offsets = system.beginning_offsets(name)
    elif start == "latest":
        offsets = system.end_offsets(name)
    elif offset is not None:
        offsets = dict.fromkeys(system.end_offsets(name), offset)
    else:
        offsets = system.offsets_for_time(name, _time_of(start))
    if missing := [number for number in wanted or () if number not in offsets]:
        count = counted(len(offsets), "partition")
        fail(f"stream {name!r} has no partition {missing[0]}", f"it has {count}, 0 to {max(offsets)}")
    chosen = sorted(offsets) if wanted is None else wanted
    if offset is not None:
        _check_offset(system, name, offset, chosen)
    return {number: offsets[number] for number in chosen}


def _time_of(start: str) -> int:
    try:
        return time_us(start, "--start")
    except ConfigError as error:
        if "found one without" in error.message:  # only its zone is missing
            raise
        hint = "such as --start 1000, or --start 2013-01-01T00:00:00Z"
        fail(f"--start {start!r}: expected an offset, earliest, latest or a time", hint)


def _check_offset(system: Any, name: str, offset: int, partitions: Iterable[int]) -> None:
    """Refuse an offset that one of these partitions does not hold."""
    beginnings, ends = system.beginning_offsets(name), system.end_offsets(name)
    for number in partitions:
        first, end = beginnings.get(number, 0), ends[number]
        if not first <= offset <= end:
            holds = f"{first} to {end - 1}" if end > first else "no records"
            known = f"from {first} to {end}" if end > first else str(end)
            fail(
                f"--start {offset}: partition {number} of stream {name!r} holds {holds}, and its next record gets offset {end}",
                f"name an offset {known} there, or by --partition the partitions that have it",
            )


def _counts_of(system: Any, names: Iterable[str]) -> list[int | None]:
    """How many records each of these streams holds. None where that is not known, which ends no list: others may delete theirs
    meanwhile, or have some without a leader."""
    counts, unanswered = list[int | None](), 0
    for name in names:
        count = None
        if unanswered < _UNANSWERED_MAX:
            try:
                count = _records_in(system, name)
            except StreamNotFoundError:
                say(f"warning: stream {name!r} was deleted meanwhile")
            except StorageError as error:
                unanswered += 1
                say(f"warning: how many records stream {name!r} has is not known: {error.message}")
        counts.append(count)
    return counts


def _records_in(system: Any, name: str) -> int:
    beginnings, ends = system.beginning_offsets(name), system.end_offsets(name)
    return sum(end - beginnings.get(number, 0) for number, end in ends.items())  # it may have grown in between
