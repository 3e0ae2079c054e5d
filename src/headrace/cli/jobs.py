"""`headrace status`, `tasks`, `history`: what is stored about a job, whether it runs or not; `describe` and `plan`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from headrace import wiring
from headrace.cli.output import iso, print_json, print_table, report, say
from headrace.cli.targets import (
    AppArgument,
    DropStoreOption,
    JsonOption,
    RenameStoreOption,
    SetOption,
    SystemOption,
    Target,
    about_an_application,
    opened,
    target_of,
    whole_number,
    with_store_changes,
)
from headrace.client.job_documents import change_document, status_document, tasks_document
from headrace.codec.job_records import history_of
from headrace.core.health import ended_by, health_of
from headrace.model.change import Change
from headrace.model.names import few

STATUS_EXAMPLES = """\
headrace status flights.py
headrace status --application flight-delays --system log:./data --json"""
_LOAD_NAMES = ("records/s", "busy", "waiting")
_SHOWN_APART = frozenset({"records", "records_written"})
TASKS_EXAMPLES = """\
headrace tasks flights.py
headrace tasks --application flight-delays --system log:./data"""
DESCRIBE_EXAMPLES = """\
headrace describe flights.py
headrace describe flights.py --mermaid > flights.mmd"""
HISTORY_EXAMPLES = """\
headrace history flights.py
headrace history --application flight-delays --system log:./data --json"""
PLAN_EXAMPLES = """\
headrace plan flights.py                       after an edit: what its next start would change
headrace plan flights.py --expand flights=8    what 8 partitions of the stream would change
headrace plan flights.py --set containers=2"""
_CHANGE_NAMES = ("when", "what", "requested by", "outcome", "job model", "pause", "from", "to", "why")


@about_an_application
def status(
    target: Target,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Say in one line how it is, and exit with 0, or 3 to 6: see below.")
    ] = False,
    max_lag: Annotated[
        int | None, typer.Option("--max-lag", parser=whole_number(), metavar="N", help="With --exit-code: more is too much.")
    ] = None,
    max_age: Annotated[
        int, typer.Option("--max-age", parser=whole_number(1), metavar="S", help="With --exit-code: longer is too long.")
    ] = 60,
    json: JsonOption = False,
) -> None:
    """Show a job's progress: whether it runs, and per sub-topology its records, rate, lag, round and tasks.

    The lag is counted now, from the committed positions to the ends of the streams, with partitions that the job has not
    picked up yet. Records and rounds are those of this run, as last reported; of the last run if the job is not running. Of a
    group these are the records of all its processors in this run, and the highest round of one. JSON: `counts_of` tells which.
    Records per second are those of the last minute, of the last run the average; JSON: `records_per_s` is always the average.
    Other counters, such as dead_letters, are also given for all runs, where these have counted more. JSON: `metrics` of the job
    and of each sub-topology, since the plan was made; `headrace tasks --json` has those of each task. docs/metrics.md says what
    they mean.

    Exit codes, for scripts: 0 it works, 3 it does not run, 4 a sub-topology has stopped, 5 it has not reported for --max-age
    seconds, 6 a sub-topology is behind by more than --max-lag.
    """
    if max_lag is not None and not exit_code:
        raise typer.BadParameter("--max-lag goes with --exit-code")
    with opened(target) as job:
        found = status_document(job, target.config.system)
    if exit_code:
        health, why = health_of(found, time.time_ns() // 1000, max_lag, max_age)
        report(json, {"application": target.application, "exit_code": int(health), "why": why}, f"{target.application}: {why}")
        raise typer.Exit(int(health))
    if json:
        print_json(found)
    else:
        _print_status(found)


@about_an_application
def tasks(target: Target, json: JsonOption = False) -> None:
    """Show the job model: every task, the container it is in, what it reads, how far behind it is and how busy it was.

    The lag is counted now, in whole partitions: of virtual tasks of one partition each has that of all of its keys. Records per
    second, busy and waiting are those of the last minute, as the job last reported: for how much of the time the task was
    processed, and waited meanwhile. The last commit is by the driver's clock; the last error is that of a record, or of a round
    of the task that failed. JSON: `came` says how the task came to where it is, `metrics` has all that was measured of it since
    the plan was made, as last reported, the lag too. A sub-topology of more than 1,000 tasks reports sums and maxima only, see
    `headrace status --json`.
    """
    with opened(target) as job:
        found = tasks_document(job)
    if json:
        print_json({"application": target.application, "job_model": found["job_model"], **found})
        return
    rows, notes = found["tasks"], found["notes"]
    places = ("processor", "location") if any(row["processor"] for row in rows) else ()
    cells = [
        (row["task"], row["sub_topology"], row["container"], *(row[place] for place in places), " ".join(row["reads"]),
         row["lag"], *_load_cells(row["metrics"]), row["last_commit"])
        for row in rows
    ]  # fmt: skip
    names = ("task", "sub-topology", "container", *places, "reads", "lag", *_LOAD_NAMES, "last commit")
    print_table(names, cells, right=("container", "lag", *_LOAD_NAMES))
    failed: dict[tuple[str, str], list[str]] = {}
    for row in (one for one in rows if one["last_error"] is not None):
        failed.setdefault((row["last_error"]["at"], row["last_error"]["error"]), []).append(row["task"])
    for (at, error), mine in sorted(failed.items()):
        print(f"last error of {few(mine)}, at {at}: {error}")
    for note in notes:
        print(note)


def _load_cells(metrics: Mapping[str, float]) -> tuple[Any, ...]:
    """The last minute of a task, as in `_LOAD_NAMES`; without it nothing."""
    if "busy-share-60s" not in metrics:
        return (None,) * len(_LOAD_NAMES)
    shares = (f"{metrics[name]:.0%}" for name in ("busy-share-60s", "wait-share-60s"))
    return round(metrics["records-per-s-60s"]), *shares


def _counters_text(sub: Mapping[str, Any]) -> str:
    """The counters of the run that is shown, with those of all runs where earlier ones have counted as well."""
    counters: Mapping[str, int] = sub.get("counters", {})
    every: Mapping[str, int] = counters | sub.get("counters_of_all_runs", {})
    counts = {name: (counters.get(name, 0), every[name]) for name in sorted(every.keys() - _SHOWN_APART)}
    return ", ".join(
        f"{name} {count:,}" + (f" ({whole:,} in all runs)" if whole > count else "") for name, (count, whole) in counts.items()
    )


def _state_text(found: Mapping[str, Any]) -> str:
    """Whether a job runs, and where."""
    holder = found["holder"]
    process = f"process {holder['pid']} on {holder['host']}" if holder is not None else ""
    if holder is not None and holder["alive"]:
        return f"running: {process}, last heartbeat {holder['silent_s']} s ago"
    if found["running"]:
        return f"running: processors {', '.join(found['working_processors'])} of its group; {_who_leads(found, process)}"
    if not process:
        return "not running"
    if any(sub.get("processors") for sub in found["sub_topologies"].values()):
        return f"not running: no processor of the group is at work; {process} was its leader"
    return f"not running: {process} ended, or is stopped, without releasing the job"


def _who_leads(found: Mapping[str, Any], process: str) -> str:
    """Of a group whose leader has not been heard of lately: `process`, empty where there is none."""
    holder = found["holder"]
    if holder is None:
        return "none leads, another will lead"
    for one in found.get("processors", {}).values():
        # what one that was killed has said last is that it leads
        if (one["host"], one["pid"]) == (holder["host"], holder["pid"]) and not one["is_leader"]:
            return f"none leads: {process}, which led, waits for {one['waiting_for'] or 'its turn'}"
    return f"{process}, which led, is lost, another will lead"


def _print_status(found: dict[str, Any]) -> None:
    print(f"{found['application']} on {found['system']}: {_state_text(found)}")
    if not found["running"] and (why := ended_by(found)):
        print(f"its last run ended with: {why}")
    rate = "records/s of the last minute" if found["running"] else "records/s on average"
    print(f"records and rounds: of {found['counts_of']}; {rate}")
    names = ("sub-topology", "records", "written", "records/s", "lag", "round", "tasks", "containers", "now")
    keys = ("records", "records_written", "records_per_s", "lag", "round", "tasks", "containers")
    rows = []
    for name, reported in found["sub_topologies"].items():
        sub = dict(reported)
        if found["running"] and (recent := sub.get("metrics", {}).get("records-per-s-60s")) is not None:
            sub["records_per_s"] = round(recent)
        now = "stopped, see below" if sub.get("stopped_by") else sub.get("waiting_for", "") if found["running"] else ""
        rows.append((name, *map(sub.get, keys), now))
    print_table(names, rows, right=names[1:-1])
    _print_processors(found)
    for host, reason in found["rejected_executors"].items():
        print(f"executors on host {host} get no work: {reason}")
    for name, sub in found["sub_topologies"].items():
        if counters := _counters_text(sub):
            print(f"{name}: {counters}")
        if sub.get("stopped_by"):
            print(f"{name}: stopped: {sub['stopped_by']}")
        if sub.get("scale_waits_for"):
            print(f"{name}: {sub['scale_waits_for']}")
        if sub.get("autosizing"):
            print(f"{name}: autosizing: {sub['autosizing']['cause']}: {sub['autosizing']['reason']}")
        for one in sub.get("restoring", ()) if found["running"] else ():
            print(f"{name}: {_restoring_text(one)}")
        for note in sub.get("notes", ()):
            print(f"{name}: {note}")


def _print_processors(found: Mapping[str, Any]) -> None:
    """Of a standalone group what each processor has reported, with tasks or without."""
    now_us, there = time.time_ns() // 1000, found.get("processors", {})
    rows: list[tuple[Any, ...]] = []

    def add(id_: str, name: str, tasks: int, records: int | None, one: Mapping[str, Any]) -> None:
        role = "leads" if there.get(id_, {}).get("is_leader") else "spare" if there.get(id_, {}).get("is_spare") else ""
        reported = f"{max(0, now_us - one['updated_us']) / 1e6:.0f} s ago"
        rows.append((id_, role, name, tasks, records, reported, one.get("ended_by") or one["waiting_for"]))

    for name, sub in found["sub_topologies"].items():
        for id_, one in sub.get("processors", {}).items():
            if (tasks := sub["tasks_by_processor"].get(id_, 0)) or not there.get(id_, {}).get("is_spare"):
                add(id_, name, tasks, one["records"], one)
    for id_ in there.keys() - {row[0] for row in rows}:
        add(id_, "", 0, None, there[id_])
    if rows and found["running"]:
        names = ("processor", "role", "sub-topology", "tasks", "records", "reported", "now")
        print()
        print_table(names, sorted(rows, key=lambda row: (row[0], row[2])), right=("tasks", "records", "reported"))


def _restoring_text(one: Mapping[str, Any]) -> str:
    """How far the local store of a task is."""
    what = f"the store of {one['task']} at {one['location']}"
    if one["problem"]:
        return f"{what} is restored in a round, as it could not be in the background: {one['problem']}"
    left = "" if one["left_s"] is None else f", about {one['left_s']:,.0f} s left"
    done, total = one["done_bytes"] / 1e6, one["total_bytes"] / 1e6
    return f"{what} is restored: {done:,.1f} of {total:,.1f} MB, {one['entries']:,} entries{left}"


@about_an_application
def history(target: Target, json: JsonOption = False) -> None:
    """Show what has changed the plan of a job, oldest first: starts with another plan, expansions, startpoints, other
    scales, and what came or went of a cluster.

    A request that could not be done is there too, with the reason; the job kept running. The pause is how long no round
    ran. The newest thousand are kept.
    """
    with opened(target) as job:
        metadata = job.system.metadata_store(target.application)
        changes = list(history_of(metadata, lambda error: say(f"warning: {error.message}")).values())
    if json:
        print_json({"application": target.application, "changes": [change_document(one) for one in changes]})
    elif changes:
        print_table(_CHANGE_NAMES, [_row_of(one) for one in changes], right=("job model", "pause"))
    else:
        say(f"application {target.application} has no history: it last ran under an older version")


def _row_of(one: Change) -> tuple[Any, ...]:
    pause = None if one.pause_us is None else f"{one.pause_us / 1e6:.2f} s"
    texts = [text or None for text in (one.before, one.after, one.why)]
    return iso(one.at_us), f"{one.kind}: {one.what}", one.requested_by or None, one.outcome.value, one.job_model, pause, *texts


def describe(
    app: AppArgument,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a mermaid diagram.")] = False,
    json: JsonOption = False,
) -> None:
    """Show an application's topology: its sub-topologies, operators, streams and stores. Nothing is run."""
    from headrace.cli.app_loading import load_app

    if mermaid and json:
        raise typer.BadParameter("give either --mermaid or --json")
    loaded = load_app(app, (), say)
    if json:
        print_json(loaded.describe("dict"))
    else:
        print(loaded.describe("mermaid" if mermaid else "text").rstrip())


def plan(
    app: AppArgument,
    expand: Annotated[
        list[str] | None, typer.Option("--expand", metavar="STREAM=N", help="As if the stream had N partitions. Repeatable.")
    ] = None,
    drop_store: DropStoreOption = None,
    rename_store: RenameStoreOption = None,
    system: SystemOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Show what the next start of an application would change, or what an expansion would. Nothing is stored or started.

    The plan that is in force is compared with the one that a start would make now, of the application as it is edited, its
    streams, and the startpoints that wait: lines with - go, lines with + come. Exits with 1 if the start would be refused.
    A plan has no functions and no options of operators; Spark, Kafka's settings and the state's files are not checked.
    """
    from headrace.client.plan_preview import plan_preview

    expanded = dict[str, int]()
    for stream, count in map(_expansion, expand or ()):
        if expanded.setdefault(stream, count) != count:
            raise typer.BadParameter(f"--expand: stream {stream} is given {expanded[stream]} and {count} partitions")
    target = target_of(app, None, system, with_store_changes(set_, drop_store, rename_store))
    with wiring.open_configured(target.config, create=False, wait_s=wiring.LOOK_UP_WAIT_S) as there:
        preview = plan_preview(target.app.topology(), target.config, there, expanded)
    error = preview.error
    if json:
        models = {"before": preview.before, "after": preview.after}
        refused = None if error is None else {"error": error.message, "hint": error.hint}
        shown = {"application": preview.application, "job_model": models, "lines": preview.lines, "refused": refused}
        print_json(shown)
    if error is not None:
        raise error
    if json:
        return
    was = "not run yet" if preview.before is None else f"job model {preview.before}"
    print(f"application {preview.application}, {was}")
    for line in preview.lines:
        print(line)
    if not preview.lines:
        print("a start would keep it: streams, tasks, containers, stores and positions stay")


def _expansion(text: str) -> tuple[str, int]:
    stream, separator, count = text.rpartition("=")
    if not (separator and stream):
        raise typer.BadParameter(f"--expand {text}: expected STREAM=N")
    return stream, whole_number(1)(count)
