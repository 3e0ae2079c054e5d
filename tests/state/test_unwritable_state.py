"""A place of the state files that cannot be written: rounds wait for it within a bound, and the error names it; a start is
refused before anything is opened."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from cluster.machines import unshare
from headrace.driver import system_wait
from headrace.driver.rounds import retries
from headrace.errors import RoundFailedError, SetupError, StorageError
from headrace.state_files.files import StateFiles
from support.world import source_of, started, waited

_MOUNT = 'mount --make-rprivate / && mount -t tmpfs -o size=8m none "$1" && shift && exec "$@"'


def test_a_full_disk_is_waited_for_and_named(tmp_path: Path) -> None:
    state, tests = tmp_path / "state", Path(__file__).parents[1]
    state.mkdir()
    job = str(Path(__file__).with_name("full_state_disk_job.py"))
    done = subprocess.run(
        [*unshare(), "sh", "-c", _MOUNT, "sh", str(state), sys.executable, job, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(tests), *sys.path]))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line[:1].isupper())
    host = os.uname().nodename
    full = f"state_uri {state}: on host {host} no file can be written in {state}: the disk is full: it has room for "
    assert full in said["WAITS"] and said["WAITS"].startswith("another try, for ")
    assert said["ENDS"].startswith(f"StorageError '{full}") and "hint: make room there, or move the folder" in said["ENDS"]
    assert said["ENDED_BY"].startswith(full) and said["ENDED_BY"].endswith("; rounds were tried again for 0 s")
    refused = f"folder {state} for the state files (state_uri) cannot be written: the disk is full: it has room for "
    assert said["START"].startswith(f"SetupError '{refused}")
    assert "hint: make room there" in said["START"]
    assert "Traceback" not in done.stdout + done.stderr


def counting(tmp_path: Path, **places: str) -> hr.App:
    url = f"log:{tmp_path / 'log'}"
    with hr.open_system(url) as system:
        if not system.streams():
            system.create_stream("in", 1)
    stores = str(tmp_path / "stores")
    app = hr.App("counting", url, **{"local_store_dir": stores, "state_uri": str(tmp_path / "state"), **places})
    counts = app.stream("in", key=hr.Bytes(), value=hr.Bytes()).group_by_key().count(store="counts")
    counts.to_stream().to("out", value=hr.Long())
    return app


def send(tmp_path: Path) -> None:
    with hr.open_system(f"log:{tmp_path / 'log'}") as system:
        system.produce("in", [hr.Record(b"k", b"v", 0)])


def published(tmp_path: Path, application: str) -> Any:
    with hr.open_system(f"log:{tmp_path / 'log'}") as system:
        return system.job_store(application).status()["source"]


@pytest.mark.parametrize(
    ("code", "found"),
    [(errno.EROFS, "read-only file system"), (errno.EACCES, "permission denied"), (errno.EDQUOT, "quota is used up")],
)
def test_rounds_are_tried_again_until_state_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, found: str
) -> None:
    monkeypatch.setattr(retries, "FAILURES_MAX", 1)  # none of these tries counts
    tries = []

    def refuses(files: StateFiles, name: str) -> Any:
        tries.append(name)
        raise OSError(code, os.strerror(code), name)

    job = started(counting(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(StateFiles, "_create", refuses)
        send(tmp_path)
        waited(lambda: len(tries) > 2, job)
        waited(lambda: "another try, for " in (told := source_of(job)["waiting_for"]) and found in told, job)
    waited(lambda: source_of(job)["records"] == 1, job)
    waited(lambda: found not in source_of(job)["waiting_for"], job)
    job.stop()


def test_what_can_never_be_written_ends_the_job_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a remote store what it has said."""

    def refuses(files: StateFiles, name: str) -> Any:
        raise OSError("When creating key 'x' in bucket 'y': AWS Error ACCESS_DENIED")

    job = started(counting(tmp_path))
    monkeypatch.setattr(StateFiles, "_create", refuses)
    monkeypatch.setattr(system_wait, "SYSTEM_WAIT_S", 0.3)
    send(tmp_path)
    with pytest.raises(StorageError, match=r"state_uri .*/state: on host .*AWS Error ACCESS_DENIED; rounds") as ended:
        job.wait(60)
    assert "let the user who runs Headrace write there" in str(ended.value) and "Traceback" not in str(ended.value)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_file_is_refused_before_anything_is_opened(tmp_path: Path, scheme: str) -> None:
    app = counting(tmp_path, state_uri=f"{scheme}{tmp_path}/afile")
    (tmp_path / "afile").write_text("")
    with pytest.raises(SetupError) as refused:
        started(app)
    assert refused.value.message == f"folder {tmp_path}/afile for the state files (state_uri) cannot be written: it is a file"
    assert refused.value.hint == "choose another folder: a file is where one is to be"


def test_what_a_container_raises_is_one_line_in_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FAILURES_MAX", 3)
    fails = [True]

    class Opening(hr.Processor[bytes, bytes, bytes, bytes]):
        def init(self, context: Any) -> None:
            if fails:
                raise OSError(errno.ENOSPC, "No space left\non device")

        def process(self, record: hr.Record) -> None: ...

    url = f"log:{tmp_path / 'log'}"
    with hr.open_system(url) as system:
        system.create_stream("in", 1)
    app = hr.App("opening", url, state_uri=str(tmp_path / "state"), local_store_dir=str(tmp_path / "stores"))
    app.stream("in", key=hr.Bytes(), value=hr.Bytes()).process(Opening, name="opening", value=hr.Bytes()).to("out")
    send(tmp_path)
    job = started(app)
    seen = []
    line = "a container failed: OSError: [Errno 28] No space left on device"
    waited(lambda: line in (seen.append(source_of(job)["waiting_for"]) or seen[-1]), job)
    with pytest.raises(RoundFailedError) as ended:
        job.wait(60)
    assert str(ended.value).startswith("Traceback") and "in init" in str(ended.value), "it is the user's own code"
    status = published(tmp_path, "opening")
    seen += [status["ended_by"], status["waiting_for"], *(text for _, text, _ in status["task_errors"])]
    assert line in status["ended_by"] and status["task_errors"]
    assert not [text for text in seen if "\n" in text or "Traceback" in text or 'File "' in text]
