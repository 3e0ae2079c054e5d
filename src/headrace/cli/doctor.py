"""`headrace doctor` and `headrace submit-args`: what this machine has, what is wrong, and the options that Spark needs. No JVM
is started but for `java -version`; nothing is fetched by `doctor`."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headrace.adapters.artifacts import cache, connector, pins
from headrace.adapters.spark.required_settings import CLUSTER_SETTINGS, NEEDED, SESSION_SETTINGS, START_SETTINGS
from headrace.cli.output import EXIT_ERROR, counted, fail, print_json, print_table, report, say
from headrace.cli.previews import confirm
from headrace.cli.targets import JsonOption, SetOption, YesOption
from headrace.config.loading import Config, load_config
from headrace.core.secrets import Secrets, holds_secret, secret_values
from headrace.environment import checked_java
from headrace.errors import SetupError

if TYPE_CHECKING:
    from headrace.adapters.log.repairing import Repaired
    from headrace.adapters.log.verifying import Verified

DOCTOR_EXAMPLES = """\
headrace doctor
headrace doctor --json
headrace doctor --system log:./data               verify a log: catalog against data files, and all checksums
headrace doctor --system log:./data --quarantine  take an older catalog; files that it does not know are moved"""
SUBMIT_ARGS_EXAMPLES = """\
headrace submit-args
spark-submit $(headrace submit-args) flights.py
headrace submit-args --kafka --json"""
# Name, oldest that works, first that does not.
_PACKAGES = (
    ("pyspark", (4, 2), (4, 3)),
    ("pandas", (2, 2), (3,)),
    ("pyarrow", (18,), None),
    ("lmdb", (3,), None),
    ("confluent-kafka", (2, 16), None),
)

_WAYS = """\
  Restoring the newest catalog is the only way without data loss. Without one:
  --quarantine  keeps this catalog; data files that it does not know are moved, none is deleted
  --rebuild     also appends the records of producers to the streams, or, without a catalog, all records in the data files"""
_STATE = """\
  Jobs continue from the checkpoints in that catalog; without one they start over. Their present state files are kept until the
  folder in quarantine/ is deleted, so that the newest catalog can still be restored."""

State = Literal["ok", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: `note` is worth knowing, `wrong` has to be put right, as `advice` says."""

    what: str
    state: State
    found: str
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of Spark: what is needed, what Headrace's own session has, and what a session has that is started
    with `spark-defaults.conf` (Spark's default where that does not say). `on_cluster`: it matters only where executors are on
    other machines."""

    name: str
    needed: str
    own_session: str
    other_session: str
    at_start: bool
    on_cluster: bool
    without_it: str
    state: State


def doctor(
    system: Annotated[
        str | None, typer.Option("--system", metavar="log:FOLDER", help="Verify this embedded log instead of the machine.")
    ] = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Keep the catalog as it is; move data files that it does not know.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Rebuild the log's catalog from its data files as far as possible.")
    ] = False,
    yes: YesOption = False,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Check this machine: Python, Java, PySpark, the jars for Kafka, and the settings of Spark; or verify a log.

    Exits with 1 only if something necessary is wrong. It also lists Spark settings that differ and what they cost;
    in a session of your own (`hr.App(..., spark=session)`, `spark-submit`) only you can set those of its start:
    `headrace submit-args` prints them.

    With --system it compares a log's catalog and data files, with all checksums, and exits with 1 if they do not match.
    """
    if system is not None:
        _check_log(system, quarantine, rebuild, yes, json)
        return
    if quarantine or rebuild:
        raise typer.BadParameter("--quarantine and --rebuild are for a log: name it by --system log:FOLDER")
    config = load_config(Path.cwd(), os.environ, {}, set_ or ())
    findings, settings = list(findings_of(config, os.environ)), settings_of(config, os.environ)
    is_wrong = "wrong" in {*(one.state for one in findings), *(one.state for one in settings)}
    if json:
        listed = {"findings": list(map(asdict, findings)), "settings": list(map(asdict, settings))}
        print_json({"ok": not is_wrong, **listed})
    else:
        _show(findings, settings)
    if is_wrong:
        raise typer.Exit(EXIT_ERROR)


def class_archive(json: JsonOption = False) -> None:
    """Make an archive of the Java classes that Spark loads, so that each later start takes less time.

    It takes a minute, and 160 MB in the user's cache folder. It is of this Java and this PySpark: make it again after an
    update. A Spark that is started by spark-submit, or by you, does not use it.
    """
    from headrace.adapters.spark.class_archive import make_archive

    archive = make_archive(checked_java(os.environ).version, os.environ)
    report(json, {"archive": str(archive), "bytes": archive.stat().st_size}, f"made {archive}")


def submit_args(
    kafka: Annotated[
        bool | None, typer.Option("--kafka/--no-kafka", help="Include Kafka's jars; default: if `system` is Kafka.")
    ] = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Print the options for spark-submit, as `--conf NAME=VALUE`, on one line.

    Missing jars for Kafka are fetched. `spark.*` of the configuration wins. The line is for
    `spark-submit $(headrace submit-args) APP.py`: use it in a shell without quotes.
    """
    config = load_config(Path.cwd(), os.environ, {}, set_ or ())
    arguments = {**START_SETTINGS, **CLUSTER_SETTINGS, **SESSION_SETTINGS, **_full_names(config)}
    if config.system.startswith("kafka:") if kafka is None else kafka:
        arguments = connector.with_connector(arguments, config.artifact_dir, say)
    secrets = Secrets(secret_values(arguments))
    for name, value in list(arguments.items()):
        is_secret = holds_secret(name, value, secrets)  # a command line is seen by every process of the machine
        if is_secret or (not json and len(value.split()) != 1):  # a shell does not look for quotes in what $(...) gives
            reason = "it is a secret" if is_secret else "a shell would split it at its spaces"
            del arguments[name]
            say(f"left out, as {reason}: {name}; put it into spark-defaults.conf, or a file that --properties-file names")
    if json:
        print_json(arguments)
    else:
        print(" ".join(f"--conf {name}={value}" for name, value in arguments.items()))


def findings_of(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """What is installed, and whether it will do."""
    yield Finding("Python", "ok", f"{_dotted(sys.version_info[:3])} ({sys.executable})")
    try:
        java = checked_java(environ)
        yield Finding("Java", "ok", f"{java.version} ({java.path})")
    except SetupError as error:
        yield Finding("Java", "wrong", error.message, error.hint)
    for name, least, below in _PACKAGES:
        yield _package(name, least, below)
    folder = cache.folder_of(config.artifact_dir, environ)
    try:
        own = connector.own_connector(_full_names(config))
    except SetupError:
        own = None  # PySpark is missing, which was said above
    if own is not None:
        yield Finding("Kafka connector", "ok", f"your own, by {own}")
    else:
        yield _jars("Kafka connector", pins.connector(), folder)
    yield _jars("Kafka server", pins.kafka_server(), folder)


def settings_of(config: Config, environ: Mapping[str, str]) -> list[Setting]:
    """The settings that Headrace needs, in its own session and in one that others start."""
    chosen, defaults = _full_names(config), spark_defaults(environ)
    found = []
    for one in NEEDED:
        own = chosen.get(one.name, one.value)
        # what can be set on any session Headrace sets itself
        other = defaults.get(one.name, one.default) if one.at_start else one.value
        own_fits, other_fits = (value.strip().lower() == one.value.lower() for value in (own, other))
        state: State = "ok" if own_fits and other_fits else "wrong" if one.is_refused and not own_fits else "note"
        found.append(Setting(one.name, one.value, own, other, one.at_start, one.on_cluster, one.without_it, state))
    return found


def spark_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """What `spark-defaults.conf` says, in Spark's own places for it; empty without one."""
    folder = environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if (home := environ.get("SPARK_HOME")) else "")
    if not folder:
        return {}
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = [re.split(r"\s*[\s=]\s*", line.strip(), maxsplit=1) for line in lines if not line.lstrip().startswith("#")]
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def _package(name: str, least: tuple[int, ...], below: tuple[int, ...] | None) -> Finding:
    wanted = f"{name}>={_dotted(least)}" + (f",<{_dotted(below)}" if below else "")
    found = "not installed"
    with suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version(name)
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        if numbers >= least and (below is None or numbers < below):
            return Finding(name, "ok", version)
        found = f"{version}: expected {wanted}"
    return Finding(name, "wrong", found, f"install it: {shlex.quote(sys.executable)} -m pip install '{wanted}'")


def _jars(what: str, artifacts: pins.Artifacts, folder: Path) -> Finding:
    what, states = f"{what} jars", cache.states_of(artifacts, folder)
    for one in states:
        if one.found is not None and not one.is_right:
            found = f"{one.path}: expected SHA-256 {one.pin.sha256}, found {one.found}"
            return Finding(what, "wrong", found, "delete the file; it is fetched again when it is needed")
    there, count = sum(state.is_right for state in states), len(states)
    if there < count:
        return Finding(what, "note", f"{there} of {count} in {folder}", "the others are fetched when they are first needed")
    return Finding(what, "ok", f"all {count} in {folder}, checksums as pinned")


def _show(findings: list[Finding], settings: list[Setting]) -> None:
    print_table(("what", "state", "found"), [(one.what, one.state, one.found) for one in findings])
    for one in findings:
        if one.advice:
            print(f"  {one.what}: {one.advice}")
    for is_on_cluster, title in ((False, "setting of Spark"), (True, "setting on a cluster")):
        print()
        print_table(
            (title, "needed", "Headrace's session", "a session of yours"),
            [(one.name, one.needed, one.own_session, one.other_session) for one in settings if one.on_cluster is is_on_cluster],
        )
    if differing := [one for one in settings if one.state != "ok"]:
        print("\nWhat it costs where they differ (`headrace submit-args` prints the options for spark-submit):")
    for setting in differing:
        print(f"  {setting.name}: {setting.without_it}")


def _full_names(config: Config) -> dict[str, str]:
    return {f"spark.{name}": value for name, value in config.spark.items()}


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _check_log(url: str, quarantine: bool, rebuild: bool, yes: bool, json: bool) -> None:
    """Verify the log; with `quarantine` or `rebuild`, repair it after a confirmation."""
    from headrace.adapters.log.system import root_of
    from headrace.adapters.log.verifying import verify

    if quarantine and rebuild:
        raise typer.BadParameter("give --quarantine or --rebuild, not both")
    root = root_of(url)
    found = verify(root)
    if found.is_no_log:
        fail(f"there is no log in {root}", "check the folder in log:DIR")
    if not json:
        _show_log(found)
    is_repair = quarantine or rebuild
    if is_repair and not found.is_whole:
        _repair(found, rebuild, yes, json)
        return
    if json:
        print_json(_described_log(found))
    elif is_repair:
        print("nothing to do")
    if not found.is_whole:
        if not json:
            print(_WAYS)
        raise typer.Exit(EXIT_ERROR)


def _repair(found: Verified, rebuild: bool, yes: bool, json: bool) -> None:
    from headrace.adapters.log import repairing

    if not rebuild and not found.is_usable:
        fail(f"there is no usable catalog: {found.catalog}", "rebuild one from the data files: --rebuild")
    what = "rebuild the catalog from the data files" if rebuild else "take this catalog, and move what it does not know"
    if not json:
        print(_STATE)
    confirm(f"{what}? (stop all that uses the log first)", yes, json)
    now = datetime.now(UTC)
    done = repairing.rebuild(found, now) if rebuild else repairing.take(found, now)
    if json:
        print_json(_described_log(found) | {"repaired": asdict(done)})
    else:
        _show_repaired(found, done)


def _show_log(found: Verified) -> None:
    from headrace.adapters.log.verifying import names_of

    held = f"{counted(found.streams, 'stream')}, {counted(found.records, 'record')}"
    files = f"{found.files:,}, {found.waiting:,} not committed yet, {found.garbage:,} to be deleted"
    looked_at = [  # what, what is wrong with it, else what is said of it
        ("catalog", found.catalog, held),
        ("data files", "", files),
        ("missing", names_of(found.missing), "none"),
        ("damaged", "; ".join(found.damaged[:5]), "none"),
        ("unknown", names_of(found.unknown), "none"),
    ]
    print_table(("what", "state", "found"), [(what, "wrong" if bad else "ok", bad or good) for what, bad, good in looked_at])
    if found.rebuildable:
        held = ", ".join(f"{stream} {count:,}" for stream, count in sorted(found.rebuildable.items()))
        print(f"the unknown data files hold records of: {held}")


def _show_repaired(found: Verified, done: Repaired) -> None:
    for stream, count in sorted(done.added.items()):
        print(f"added {counted(count, 'record')} to {stream}")
    if done.restored:
        print(f"brought {counted(len(done.restored), 'data file')} back from the quarantine")
    print(f"moved {counted(len(done.moved), 'file')} to {found.root / done.quarantine}")
    print("earlier state files are kept while that folder exists; delete it when the newest catalog need not be restored")
    print("done; `headrace doctor --system` verifies it")


def _described_log(found: Verified) -> dict[str, object]:
    return {"ok": found.is_whole, **asdict(found), "root": str(found.root), "rebuildable": dict(found.rebuildable)}
