"""A job on Kafka that an older version has begun: the broker's whole folder is stored, so offsets, transactions, groups and
topics are as the job left them, and a real broker on that folder is what the current code continues on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.adapters.kafka import coordinator_store, job_entries
from headrace.cli.commands import application
from stored.archives import archive_of, unpacked, versions
from stored.jobs import JOBS
from stored.test_stored_folders import APP, check_continued, check_result

pytestmark = pytest.mark.kafka

JOB = JOBS["ledger"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("version", [version for version in versions() if archive_of(version, JOB.name).exists()])
def test_a_stored_job_on_kafka_is_continued_to_its_end(version: str, tmp_path: Path) -> None:
    """Before it is continued, every command reads it."""
    folder = unpacked(archive_of(version, JOB.name), tmp_path / "job")
    app = tmp_path / "app.py"
    with JOB.system(folder) as url:
        app.write_text(APP.format(name=JOB.name, folder=str(folder), url=url))
        for command in ("status", "describe", "tasks", "checkpoint list", "checkpoint export", "startpoint list"):
            found = CliRunner().invoke(application, [*command.split(), str(app), "--json"])
            assert found.exit_code == 0, f"{command}: {found.output}"
            assert json.loads(found.stdout)
        JOB.finish(JOB, folder, url)
        check_result(JOB, version, folder, url)


@pytest.mark.timeout(240)
def test_a_change_of_a_stored_form_on_kafka_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record with the job model has another key."""
    for module in (coordinator_store, job_entries):
        monkeypatch.setattr(module, "MODELS", "models")
    with pytest.raises(AssertionError, match="ledger: outputs"):  # it begins again, and counts the whole input twice
        check_continued(JOB, versions()[-1], tmp_path)
