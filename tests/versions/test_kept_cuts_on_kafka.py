"""On Kafka, where each container commits by itself: what a cut says was written lies before it, and all the rest behind."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest

import headrace as hr
from headrace.driver import job as jobs
from headrace.testing import KafkaServer
from support.world import started
from versions.checked_cuts import Checker, application, cuts_on_record, value_of


def test_between_rounds_whose_containers_commit_by_themselves_and_when_nothing_runs(
    kafka_server: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All versions are kept, so nothing is purged, and the checker sees everything."""
    monkeypatch.setattr(jobs, "TIDY_S", 0.1)
    name, url = f"cuts-{uuid.uuid4().hex[:8]}", f"kafka://{kafka_server.bootstrap}"
    every = {"keep_state_versions": 1000, "keep_state_versions_s": 0, "state_version_interval_s": 0}
    places = {"local_store_dir": str(tmp_path / "stores"), "state_uri": str(tmp_path / "state"), "trigger_interval_ms": 10}
    app = application(name, f"{name}-in", system=url, max_records_per_round=12, containers=2, **places, **every)
    with hr.open_system(url) as system:
        system.create_stream(f"{name}-in", 2)
        system.produce(f"{name}-in", [(b"k%d" % n, value_of(n).encode()) for n in range(120)])
        ends = {(f"{name}-in", partition): end for partition, end in system.end_offsets(f"{name}-in").items()}

        def is_done() -> bool:
            """The source has read all, and what is behind it what came of that, and cuts of both are on record."""
            cuts = {cut.sub_topology: cut for cut in cuts_on_record(system, name)}  # of each the last
            if cuts.keys() != {None, "first"} or cuts[None].positions != ends:
                return False
            return all(cuts["first"].positions[place] >= end for place, end in cuts[None].ends.items())

        job = started(app)
        try:
            deadline_s = time.monotonic() + 120
            while not is_done():
                assert job.is_running, job.wait(0)
                assert time.monotonic() < deadline_s, job.status()
                time.sleep(0.1)
        finally:
            job.stop()
        checker, cuts = Checker(system), cuts_on_record(system, name)
        assert len([cut for cut in cuts if cut.sub_topology is None]) >= 5
        for cut in cuts:
            checker.judge(cut)
