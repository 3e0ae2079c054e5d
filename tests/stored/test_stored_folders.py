"""Jobs that an older version has begun are continued by the current code, to exactly what plain Python makes of their input.

The folders are archives under `data/VERSION`, made by `make_folders.py`. A stored form that changes without a reader for its
older form fails here. An archive is never made again: it is what users have on their disks.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.adapters.common.lease_holder import boot_id
from headrace.cli.commands import application
from stored.archives import STORES, archive_of, booted, expected_in, files_in, unpacked, versions
from stored.jobs import JOBS, Halves, StoredJob, Watch, build_watch
from stored.plain import Result, expected_of
from stored.results import result_of

NEW_HEADERS = ["headrace.failed-at-us", "headrace.application"]  # which letters of older versions may lack
ON_SPARK = ("lake",)
SIZE_MAX = 1_000_000
NEWEST = versions()[-1]


def _stored(version: str) -> list[str]:
    return [name for name, job in JOBS.items() if archive_of(version, name).exists() and not job.on_kafka]


ALL = [(version, name) for version in versions() for name in _stored(version)]
IN_PROCESS = [one for one in ALL if one[1] not in ON_SPARK]
as_params = pytest.mark.parametrize(("version", "name"), ALL, ids=[f"{name}-{version}" for version, name in ALL])


def check_continued(job: StoredJob, version: str, folder: Path) -> None:
    """Continue what is stored, and compare with the recorded expectation."""
    unpacked(archive_of(version, job.name), folder)
    with job.system(folder) as url:
        job.finish(job, folder, url)
        check_result(job, version, folder, url)


def check_result(job: StoredJob, version: str, folder: Path, url: str) -> None:
    expected = expected_in(version, job.name)
    found: Result = json.loads(json.dumps(result_of(job, folder, url, expected)))
    for part, by_name in expected.items():
        for what, values in by_name.items():
            assert found[part].get(what) == values, f"{job.name}: {part}: {what}"
    assert found == expected


@pytest.mark.parametrize(("version", "name"), IN_PROCESS, ids=[f"{name}-{version}" for version, name in IN_PROCESS])
def test_a_stored_job_is_continued_to_its_end(version: str, name: str, tmp_path: Path) -> None:
    check_continued(JOBS[name], version, tmp_path)


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.parametrize("version", [version for version, name in ALL if name == "lake"])
def test_a_stored_job_on_spark_is_continued_to_its_end(version: str, tmp_path: Path) -> None:
    """The round that it was stopped in is handed over again: under the same id, with the same records."""
    handed = {name: data for name, data in files_in(archive_of(version, "lake")).items() if name.startswith("lake/")}
    failed = max(handed)
    check_continued(JOBS["lake"], version, tmp_path)
    after = {f"lake/{path.name}": path.read_bytes() for path in (tmp_path / "lake").iterdir()}
    assert {name: after[name] for name in handed} == handed
    assert len(after) > len(handed) > 1 and json.loads(handed[failed])
    rows = [tuple(row[:2]) for data in after.values() for row in json.loads(data)]
    flights = [record for batch in JOBS["lake"].batches for record in batch]
    assert sorted(rows) == sorted((record.key, record.value["delay"]) for record in flights)


@pytest.mark.parametrize("version", [version for version, name in ALL if name == "watch"])
@pytest.mark.parametrize(("same_boot", "sealed"), [(True, True), (False, True), (False, False)])
def test_local_stores_are_used_as_they_are_in_the_same_boot_or_sealed(
    version: str, same_boot: bool, sealed: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And rebuilt after another boot where no seal says that all of it has come to the disk."""
    job = JOBS["watch"]
    unpacked(archive_of(version, job.name), tmp_path)
    marks = list((tmp_path / STORES).rglob("mark.json"))
    assert marks
    for mark in marks:
        if same_boot:
            booted(mark, boot_id())
        if not sealed:
            mark.write_text(json.dumps(json.loads(mark.read_text()) | {"content": ""}))
    with caplog.at_level("INFO", "headrace.state_files"), job.system(tmp_path) as url:
        job.finish(job, tmp_path, url)
        check_result(job, version, tmp_path, url)
    rebuilt = [text for text in caplog.messages if "rebuilt" in text or "restored" in text]
    assert bool(rebuilt) is not (same_boot or sealed), caplog.messages


@pytest.mark.parametrize("name", JOBS)
def test_the_recorded_expectation_is_that_of_plain_python(name: str) -> None:
    assert expected_in(NEWEST, name) == json.loads(json.dumps(expected_of(name)))


class Moved:
    """`Halves` under another name, in another module."""

    def group(self, previous_assignment: Any, ssps: Any) -> Any:
        return Halves().group(previous_assignment, ssps)


class Renamed(Watch):
    """`Watch` under another name, in another module."""


def _build_renamed(app: hr.App) -> None:
    build_watch(app, Renamed)


@pytest.mark.parametrize(
    "job",
    [replace(JOBS["halves"], settings={"ssp_grouper": Moved}), replace(JOBS["watch"], build=_build_renamed)],
    ids=["grouper", "processor"],
)
def test_a_user_s_class_may_move_to_another_module(job: StoredJob, tmp_path: Path) -> None:
    """Nothing is stored by the name of a module or class: a task is found by its own name, a store by its own."""
    check_continued(job, NEWEST, tmp_path)


@pytest.mark.parametrize("version", [version for version, name in ALL if name == "sums"])
def test_dead_letters_have_the_headers_of_the_version_before(version: str, tmp_path: Path) -> None:
    """And what is new since then: when the record failed."""
    job = JOBS["sums"]
    check_continued(job, version, tmp_path)
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        names = [[name for name, _ in letter.headers] for letter in log.consume("sums-dead")]
    assert len(names) == 3
    older, newer = min(names, key=len), max(names, key=len)
    assert older and [one for one in newer if one not in NEW_HEADERS] == [one for one in older if one not in NEW_HEADERS]
    assert [one for one in newer if one in NEW_HEADERS] == NEW_HEADERS


# --- commands ---------------------------------------------------------------------------------------------------------------

APP = """from pathlib import Path

import headrace as hr
from stored.jobs import JOBS

app: hr.App = JOBS[{name!r}].app(Path({folder!r}), {url!r})
"""


@as_params
def test_commands_read_a_stored_folder(version: str, name: str, tmp_path: Path) -> None:
    folder = unpacked(archive_of(version, name), tmp_path / "job")
    app, log = tmp_path / "app.py", f"log:{folder / 'log'}"
    app.write_text(APP.format(name=name, folder=str(folder), url=log))

    def answer(*arguments: str) -> Any:
        result = CliRunner().invoke(application, [*arguments, "--json"])
        assert result.exit_code == 0, f"{arguments}: {result.output}"
        return json.loads(result.stdout)

    assert answer("status", str(app))["application"] == name
    assert answer("status", "--application", name, "--system", log)["application"] == name
    assert answer("describe", str(app))["application"] == name
    assert answer("tasks", str(app))
    committed = answer("checkpoint", "list", str(app))
    assert committed
    assert answer("checkpoint", "export", str(app))
    startpoints = answer("startpoint", "list", str(app))
    assert len(startpoints["startpoints"]) == sum(expected_in(version, name)["startpoints"].values())
    streams = answer("stream", "list", "--system", log)
    assert {stream["name"] for stream in streams} >= {record.stream for record in JOBS[name].batches[0]}
    for stream in streams:
        assert answer("stream", "describe", stream["name"], "--system", log)
    assert answer("doctor", "--system", log)


@as_params
def test_every_store_of_a_stored_folder_is_read_by_key(version: str, name: str, tmp_path: Path) -> None:
    folder = unpacked(archive_of(version, name), tmp_path / "job")
    app = JOBS[name].app(folder, f"log:{folder / 'log'}")
    stores = [store["name"] for sub in app.describe("dict")["sub_topologies"] for store in sub["stores"]]
    read = {store: app.state(store).to_arrow().num_rows for store in stores}
    assert not stores or any(read.values()), read
    for store in expected_in(version, name)["stores"]:
        assert store in read
