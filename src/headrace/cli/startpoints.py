"""`headrace startpoint`: sets, lists and deletes the positions that tasks resume from."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import counted, iso, print_json, print_table, say
from headrace.cli.previews import confirm, write_confirmed
from headrace.cli.targets import JsonOption, Target, YesOption, about_an_application, not_files, whole_number
from headrace.core.rewind.startpoint_rules import startpoint_text
from headrace.model.durations import time_ago_us, time_us
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.whole_numbers import whole_number_of

if TYPE_CHECKING:
    from headrace.client.startpoint_manager import KnownStartpoint
    from headrace.client.startpoints import Startpoints

SET_EXAMPLES = """\
headrace startpoint set flights flights.py --earliest
headrace startpoint set flights flights.py --partition 3 --offset 1200
headrace startpoint set flights --application flight-delays --ago "2 hours" --yes
headrace startpoint set flights flights.py --time 2013-06-01T00:00:00Z"""
LIST_EXAMPLES = """\
headrace startpoint list flights.py
headrace startpoint list --application flight-delays --system log:./data --json"""
DELETE_EXAMPLES = """\
headrace startpoint delete 3f0c5a7be812 --application flight-delays
headrace startpoint delete --stream flights --partition 3 --app flights.py"""

StreamArgument = Annotated[str, typer.Argument(metavar="STREAM", help="An input or repartition stream of the application.")]
_COLUMNS = {  # the name of each, and its key in JSON
    **{name: name for name in ("id", "stream", "partition", "task", "startpoint", "state")},
    "written by": "written_by",
    "written at": "written_at",
    "status": "detail",
}
StateOption = Annotated[
    str, typer.Option("--state", metavar="keep|rewind", help="Keep state as it is, or rewind the application with its state.")
]


@about_an_application
def set_startpoint(
    target: Target,
    stream: StreamArgument,
    partition: Annotated[str, typer.Option("--partition", "-p", metavar="P|all", help="Only this partition.")] = "all",
    task: Annotated[str | None, typer.Option("--task", metavar="T", help="Only this task, of several readers.")] = None,
    earliest: Annotated[bool, typer.Option("--earliest", help="The first available record.")] = False,
    latest: Annotated[bool, typer.Option("--latest", help="The end offset: only new records.")] = False,
    bootstrap: Annotated[
        bool, typer.Option("--bootstrap", help="The first record; up to the current end before other streams.")
    ] = False,
    offset: Annotated[int | None, typer.Option("--offset", parser=whole_number(), metavar="N", help="This offset.")] = None,
    at: Annotated[
        str | None, typer.Option("--time", metavar="ISO", help="The first record at or after this time (with a time zone).")
    ] = None,
    ago: Annotated[str | None, typer.Option("--ago", metavar="DURATION", help='As --time, relative to now: "2 hours".')] = None,
    state: StateOption = "keep",
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Set where tasks resume, while the job runs or not. Shows first what would be read again or skipped, then prompts.

    Exactly one of --earliest, --latest, --bootstrap, --offset, --time and --ago sets the position. It counts until the position
    has moved, over any number of restarts.

    With --state rewind the whole application goes back: also stores behind repartition streams, and other tasks that write
    to these, so that no store counts a record twice. The preview shows all of it. With --state keep stores stay, and
    count records that are read again twice.
    """
    words = {"earliest": earliest, "latest": latest, "bootstrap": bootstrap}
    chosen: list[Any] = [word for word, is_given in words.items() if is_given]
    chosen += [] if offset is None else [offset]
    now_us = time.time_ns() // 1000
    if at is not None:
        chosen.append(Startpoint(PositionType.TIMESTAMP, time_us(at, "--time")))
    if ago is not None:
        chosen.append(Startpoint(PositionType.TIMESTAMP, time_ago_us(ago, now_us, "--ago")))
    if len(chosen) != 1:
        found = "none" if not chosen else "several"
        raise typer.BadParameter(
            f"expected one of --earliest, --latest, --bootstrap, --offset, --time and --ago, found {found} of them"
        )
    number = partition_of_text(partition)
    from headrace.client.startpoint_previews import startpoint_of

    with opened_startpoints(target) as points:
        startpoint = startpoint_of(chosen[0], now_us)
        preview = points.preview(stream, startpoint, partition=number, task=task, state=state)
        write_confirmed(points, preview, f"startpoint of stream {stream}: {startpoint_text(startpoint)}", yes, json)


def partition_of_text(text: str) -> int | None:
    """A partition's number; None for all."""
    if text == "all":
        return None
    number = whole_number_of(text)
    if number is None:
        raise typer.BadParameter(f"--partition {text}: expected a number, or all")
    return number


@about_an_application
def list_startpoints(target: Target, json: JsonOption = False) -> None:
    """List all startpoints and the status of each, oldest first, those of one command by partition. Of those that are
    finished, the newest thousand.

    A startpoint waits to be picked up by the driver (in a group: by the leader), is pending until a commit moves the position,
    and then is applied. It may also be superseded by a later one, or deleted. None expires.
    """
    with opened_startpoints(target) as points:
        found, unreadable = points.list(), points.unreadable()
    if json:
        requests = [{"request": id_, "detail": why} for id_, why in unreadable.items()]
        shown = [startpoint_document(one) for one in found]
        print_json({"application": target.application, "startpoints": shown, "unreadable": requests})
        return
    if not found and not unreadable:
        say(f"application {target.application} has no startpoints; `headrace startpoint set` makes one")
    elif found:
        _print_startpoints(found)
    _say_unreadable(target, unreadable)


def _say_unreadable(target: Target, unreadable: Mapping[str, str]) -> None:
    """On standard error: it is trouble, and no startpoint."""
    where = f"--application {target.application} --system {target.config.system}"
    for id_, why in unreadable.items():
        say(f"request {id_} is unreadable, and no driver of this version applies it: {why}")
        say(f"hint: `headrace startpoint delete {id_} {where}` removes it")


@partial(about_an_application, by_argument=False)
def delete(
    target: Target,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Startpoints, or unreadable requests.", callback=not_files)
    ] = None,
    stream: Annotated[str | None, typer.Option("--stream", metavar="STREAM", help="Instead of ids: all of a stream.")] = None,
    partition: Annotated[
        str, typer.Option("--partition", "-p", metavar="P|all", help="With --stream: only this partition.")
    ] = "all",
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Delete startpoints that have not moved a position yet. Deleting a pending one restores the earlier position, and undoes
    the rewind that belongs to it."""
    if bool(ids) == (stream is not None):
        raise typer.BadParameter("expected either ids or --stream")
    number = partition_of_text(partition)
    if number is not None and stream is None:
        raise typer.BadParameter("--partition goes with --stream; an id names the partition already")
    with opened_startpoints(target) as points:
        if stream is not None:
            ids = [one.entry.id for one in points.deletable_in(stream, number)]
        chosen = list(dict.fromkeys(ids or ()))
        shown = points.deletable_of(chosen)
        unreadable = {id_: why for id_, why in points.unreadable().items() if id_ in chosen}
        if not json:
            _print_chosen(shown, unreadable)
        if chosen:
            confirm(f"delete {_deleted_text(shown, unreadable)}?", yes, json)
            points.delete(*chosen)
    if json:
        print_json({"application": target.application, "deleted": chosen})
    elif chosen:
        print(f"deleted {_deleted_text(shown, unreadable)}")
    else:
        place = f"stream {stream}" if number is None else f"stream {stream} partition {number}"
        print(f"deleted 0 startpoints: none of {place} is waiting or pending")


def _print_chosen(shown: Sequence[KnownStartpoint], unreadable: Mapping[str, str]) -> None:
    if shown:
        _print_startpoints(shown)
    for id_, why in unreadable.items():
        print(f"request {id_} is unreadable: {why}")


def _deleted_text(shown: Sequence[KnownStartpoint], unreadable: Mapping[str, str]) -> str:
    counts = ((len(shown), "startpoint"), (len(unreadable), "unreadable request"))
    return " and ".join(counted(count, what) for count, what in counts if count)


def opened_startpoints(target: Target, system: Any = None) -> Startpoints:
    """Those of the target; to be used in a `with`. `system`: its own, where that is open."""
    from headrace.client.startpoints import Startpoints

    return Startpoints(target.application, target.config, None if target.app is None else target.app.topology(), system)


def _print_startpoints(found: Iterable[KnownStartpoint]) -> None:
    shown = [startpoint_document(one) | {"startpoint": startpoint_text(one.entry.startpoint)} for one in found]
    print_table(list(_COLUMNS), [[one[key] for key in _COLUMNS.values()] for one in shown], right=("partition",))


def startpoint_document(known: KnownStartpoint) -> dict[str, Any]:
    """For programs."""
    entry, record = known.entry, known.record
    return {
        "id": entry.id,
        "stream": entry.key.ssp.stream,
        "partition": entry.key.ssp.partition,
        "task": None if entry.key.task is None else str(entry.key.task),
        "type": entry.startpoint.position_type.value,
        "position": entry.startpoint.position,
        "state": entry.state.value,
        "written_by": entry.written_by,
        "written_at": iso(entry.written_at_us),
        "status": "waiting" if known.status is None else known.status.value,
        "deletion_requested": known.deletion_requested,
        "detail": status_text(known),
        "picked_up_at": None if record is None else iso(record.applied_at_us),
        "changed_at": iso(known.changed_at_us),
        "replay": None if record is None else record.replay,
        "offsets": [
            {
                "task": str(one.task),
                "stream": one.ssp.stream,
                "partition": one.ssp.partition,
                "offset": one.offset,
                "before": one.before,
                "bootstrap_end": one.until,
            }
            for one in (() if record is None else record.resolutions)
        ],
    }


def status_text(known: KnownStartpoint) -> str:
    """The status of a startpoint, for people."""
    record = known.record
    if known.status is None:
        if known.is_read:
            return "waiting to be picked up"
        ssp = known.entry.key.ssp
        return f"waiting: the job does not read {ssp.stream}/{ssp.partition}"
    if record is None:
        return f"{known.status.value} before a driver has seen it"
    if known.status == "pending":
        offsets = sorted({one.offset for one in record.resolutions if one.ssp == known.entry.key.ssp})
        text = f"pending: at offset {', '.join(map(str, offsets))}, not moved yet: no record was read there since"
        return f"{text}; its deletion waits to be picked up" if known.deletion_requested else text
    at = iso(known.changed_at_us)
    if known.status == "refused":
        return f"refused at {at}: see headrace history"
    return f"{known.status.value} at {at}" if at else f"{known.status.value} (not yet recorded by the driver)"
