"""`headrace doctor --system log:DIR`: whether a log's catalog and data files fit, and what can be done if not."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from headrace.cli.output import EXIT_ERROR, fail, print_json, print_table
from headrace.cli.previews import confirm

if TYPE_CHECKING:
    from headrace.adapters.log.repairing import Repaired
    from headrace.adapters.log.verifying import Verified

_WAYS = """\
  Restoring the newest catalog is the only way without data loss. Without one:
  --quarantine  keeps this catalog; data files that it does not know are moved, none is deleted
  --rebuild     also appends the records of producers to the streams, or, without a catalog, all records in the data files"""

_STATE = """\
  Jobs continue from the checkpoints in that catalog; without one they start over. Their present state files are kept until the
  folder in quarantine/ is deleted, so that the newest catalog can still be restored."""


def check_log(url: str, quarantine: bool, rebuild: bool, yes: bool, json: bool) -> None:
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
        _show(found)
    is_check = not quarantine and not rebuild
    if not is_check and not found.is_whole:
        _repair(found, rebuild, yes, json)
        return
    if json:
        print_json(_described(found))
    elif not is_check:
        print("nothing to do")
    elif not found.is_whole:
        print(_WAYS)
    if not found.is_whole:
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
        print_json(_described(found) | {"repaired": dataclasses.asdict(done)})
    else:
        _show_repaired(found, done)


def _show(found: Verified) -> None:
    from headrace.adapters.log.verifying import names_of

    held = f"{counted(found.streams, 'stream')}, {counted(found.records, 'record')}"
    rows = [
        ("catalog", _state(found.catalog), found.catalog or held),
        ("data files", "ok", f"{found.files:,}, {found.waiting:,} not committed yet, {found.garbage:,} to be deleted"),
        ("missing", _state(found.missing), names_of(found.missing) or "none"),
        ("damaged", _state(found.damaged), "; ".join(found.damaged[:5]) or "none"),
        ("unknown", _state(found.unknown), names_of(found.unknown) or "none"),
    ]
    print_table(("what", "state", "found"), rows)
    if found.rebuildable:
        held = ", ".join(f"{stream} {count:,}" for stream, count in sorted(found.rebuildable.items()))
        print(f"the unknown data files hold records of: {held}")


def _show_repaired(found: Verified, done: Repaired) -> None:
    for stream, count in sorted(done.added.items()):
        print(f"added {counted(count, 'record')} to {stream}")
    if done.brought_back:
        print(f"brought {counted(len(done.brought_back), 'data file')} back from the quarantine")
    print(f"moved {counted(len(done.moved), 'file')} to {found.root / done.quarantine}")
    print("earlier state files are kept while that folder exists; delete it when the newest catalog need not be restored")
    print("done; `headrace doctor --system` verifies it")


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _state(wrong: object) -> str:
    return "wrong" if wrong else "ok"


def _described(found: Verified) -> dict[str, object]:
    described = dataclasses.asdict(found) | {"root": str(found.root), "rebuildable": dict(found.rebuildable)}
    return {"ok": found.is_whole} | described
