"""`headrace state`: what a store holds, as committed; which versions are kept. `headrace reset` forgets all of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headrace.cli.json_values import plain
from headrace.cli.output import EXIT_ERROR, counted, fail, iso, print_json, print_table, report, say
from headrace.cli.previews import confirm
from headrace.cli.targets import JsonOption, Target, YesOption, about_an_application, opened
from headrace.errors import ConfigError, HeadraceError
from headrace.model.serde import Serde
from headrace.serdes.plain_values import value_of_text
from headrace.serdes.windowed import Windowed

if TYPE_CHECKING:
    from headrace.client.kept_system import KeptSystem
    from headrace.client.state_reader import StateView, StoredEntry

GET_EXAMPLES = """\
headrace state get delays UA flights.py
headrace state get delays UA --application flight-delays --system log:./data --json
headrace state get per-hour '{"key": "UA", "start": "2013-01-01T00:00:00Z", "end": "2013-01-01T01:00:00Z"}' flights.py"""
RESET_EXAMPLES = """\
headrace reset flights.py
headrace reset --application flight-delays --system log:./data --yes"""
VERSIONS_EXAMPLES = """\
headrace state versions flights.py
headrace state versions flights.py --tasks --json"""
DUMP_EXAMPLES = """Columns: key; window_start and window_end of windowed stores; value. Examples:

\b
  headrace state dump delays flights.py --output delays.parquet
  python -c 'import pandas; print(pandas.read_parquet("delays.parquet"))'
"""

_WINDOW_HINT = 'write it as JSON: \'{"key": "UA", "start": "2013-01-01T00:00:00Z", "end": "2013-01-01T01:00:00Z"}\''

StoreArgument = Annotated[str, typer.Argument(metavar="STORE", help="The store's name, as `headrace describe` shows it.")]


@about_an_application
def get(
    target: Target,
    store: StoreArgument,
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY",
            help='The key as a text, as JSON where keys are JSON, MessagePack or of windows; or {"base64": ...}, its bytes.',
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Read a store by key, as committed, while the job runs or not. All windows of the key, if the store has windows.

    The exit code is 1 where there is nothing under the key. On Kafka it reads state where a job that is started in this
    folder keeps it, unless `state_uri` is set.
    """
    view = view_of(store, target)
    typed_key, entries, _ = view.looked_up(lambda serde: key_of_text(key, serde))
    if json:
        listed = list(map(entry_document, entries))
        print_json({"application": view.application, "store": store, "key": typed_key, "entries": listed})
    elif entries:
        _print_entries(entries)
    if not entries:
        say(f"store {store!r} has nothing under key {key!r}")
        raise typer.Exit(EXIT_ERROR)


@about_an_application
def dump(
    target: Target,
    store: StoreArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.parquet", help="The file to write.")],
    json: JsonOption = False,
) -> None:
    """Write a whole store, as committed, to a Parquet file; an older file of that name is replaced."""
    view = view_of(store, target)
    entries = view.write_parquet(output)
    written = {"application": view.application, "store": store, "entries": entries, "file": str(output)}
    report(json, written, f"wrote {entries:,} entries to {output}, as Parquet")


@about_an_application
def reset(target: Target, yes: YesOption = False, json: JsonOption = False) -> None:
    """Forget all of a job that does not run: positions, state, startpoints, history, and the streams that it made for itself.
    The next start is a first start.

    Shows first what goes, then prompts. Inputs and outputs stay as they are: results are written once more. Local
    stores are removed on this machine; on others they are of no use, and removed in time. Where it is interrupted, no start is
    possible until it is done again.
    """
    from headrace.client.resetting import Reset

    with Reset(target.application, target.config, None if target.app is None else target.app.topology()) as resetting:
        found = resetting.preview()
        if found.holder:
            fail(f"application {target.application} is run by {found.holder}; nothing was changed", "stop it first")
        shown = {name: value for name, value in asdict(found).items() if name != "holder"}
        if not json:
            print(f"application {target.application}: these go, and cannot be had back")
            print(f"  the positions of {counted(found.tasks, 'task')}, their startpoints and history")
            print(f"  {counted(found.state_files, 'state file')}, {found.state_bytes / 1e6:,.1f} MB")
            if found.shared_state:
                print(f"  {found.shared_state}")
            print(f"  {counted(found.local_stores, 'local store')} on this machine")
            for stream, records in found.streams.items():
                print(f"  stream {stream}, {records:,} offsets")
            if found.group:
                print(f"  what its group has stored in {found.group} of ZooKeeper")
        confirm(f"reset {target.application}?", yes, json)
        resetting.forget()
    report(json, shown, f"reset {target.application}: its next start is a first start")


@about_an_application
def versions(
    target: Target,
    tasks: Annotated[bool, typer.Option("--tasks", help="Each task's versions alone.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the versions of the state that are kept, and what a rewind to each would read again.

    A consistent cut is of all tasks of a sub-topology, which go back together; of others each task goes back alone, to the
    newest version that is not behind where the startpoint is. `headrace startpoint set --state rewind` goes back.
    """
    from headrace.codec.job_records import cuts_of
    from headrace.core.rewind.kept_states import kept_states
    from headrace.driver.maintenance.state_versions import versions_of

    with opened(target) as job:
        metadata = job.system.metadata_store(target.application)
        cuts = cuts_of(metadata)  # before the versions: those of a cut are on record before it is
        found = kept_states(job.model, job.checkpoints, versions_of(metadata), cuts, by_task=tasks)
    if json:
        kept = [
            {
                "sub_topology": one.sub_topology,
                "kept_at": iso(one.kept_us),
                "is_cut": one.is_cut,
                "tasks": list(map(str, one.tasks)),
                "read_again": one.read_again,
                "left_by_rewind": one.left,
            }
            for one in found
        ]
        print_json({"application": target.application, "versions": kept})
    elif found:
        rows = [
            (
                iso(one.kept_us),
                one.sub_topology,
                str(one.tasks[0]) if tasks else f"{len(one.tasks):,} tasks",
                "together" if one.is_cut else "left by a rewind" if one.left else "each alone",
                sum(one.read_again.values()),
                ", ".join(f"{stream} {count:,}" for stream, count in one.read_again.items()) or None,
            )
            for one in found
        ]
        names = ("kept at", "sub-topology", "tasks", "go back", "read again", "by stream")
        print_table(names, rows, right=("read again",))
    else:
        say(
            f"no version of the state of application {target.application} is kept but the current one; keep_state_versions, "
            "keep_state_versions_s and state_version_interval_s say which are"
        )


def view_of(store: str, target: Target, kept: KeptSystem | None = None) -> StateView:
    """A store of the target; `kept`: its system, where that stays open."""
    from headrace.client.state_reader import StateView
    from headrace.client.store_form import serdes_in

    serdes = {} if target.app is None else serdes_in(target.app.topology())
    return StateView(store, target.application, target.config, serdes, kept)


def key_of_text(text: str, serde: Serde) -> Any:
    """A key as it is written on a command line, as a value that the store's key serde takes.

    >>> from headrace.serdes.scalars import Long, String
    >>> key_of_text("7", Long()), key_of_text("7", String())
    (7, '7')
    """
    hint = _WINDOW_HINT if isinstance(serde, Windowed) else None
    try:
        key = value_of_text(text, serde)
        serde.encode(key)  # so that what is wrong with it is said here
    except RecursionError:
        hint = "give a key with fewer lists and maps in one another"
        raise ConfigError(f"key {text!r:.60}: it is nested too deeply", hint) from None
    except HeadraceError as error:
        raise ConfigError(f"key {text!r:.200}: {error.message}", error.hint or hint) from None
    return key


def entry_document(entry: StoredEntry) -> dict[str, Any]:
    """For programs."""
    window = None if entry.window is None else {"start": iso(entry.window[0]), "end": iso(entry.window[1])}
    sub = None if entry.sub == b"" else entry.sub
    known = {"task": entry.task, "window": window, "at": iso(entry.at_us), "sub": sub, "value": entry.value}
    known["expires"] = iso(entry.expires_us)
    return {name: value for name, value in known.items() if value is not None or name == "value"}


def _print_entries(entries: list[StoredEntry]) -> None:
    rows = [entry_document(entry) | {"value": msgspec.json.encode(plain(entry.value)).decode()} for entry in entries]
    if len(rows) == 1 and set(rows[0]) == {"task", "value"}:
        print(rows[0]["value"])
        return
    for row in rows:
        row |= row.pop("window", {})
        if "sub" in row:
            row["sub"] = plain(row["sub"])
    names = [name for name in ("start", "end", "at", "sub", "value", "expires") if any(name in row for row in rows)]
    print_table(names, [[row.get(name) for name in names] for row in rows])
