"""Metrics and health of a job over HTTP: what Prometheus' own parser makes of them, and what they are of."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import headrace as hr
from headrace import wiring
from headrace.adapters.common.server_process import free_ports
from headrace.adapters.http.job_pages import exposition
from headrace.core.metrics.observations import OBSERVED_TASKS_MAX
from headrace.core.metrics.phases import PHASES
from headrace.core.metrics.series import series_max, series_of
from headrace.core.metrics.table import METRICS, MetricLabel, MetricValues
from headrace.errors import ConfigError, SetupError
from headrace.wiring.job_endpoint import JobEndpoint, host_and_port, waits_for
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine


def answer(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def free_port() -> int:
    return next(free_ports("127.0.0.1"))


def until(look: Callable[[], Any]) -> Any:
    deadline_s = time.monotonic() + 20
    while not (found := look()):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return found


def application(folder: Path, **keys: Any) -> hr.App:
    places = {"system": f"log:{folder / 'log'}", "local_store_dir": str(folder / "stores"), "state_uri": str(folder / "state")}
    app = hr.App("shop", config={**places, "dead_letter_stream": "bad", **keys})
    counted = app.stream("in", key=hr.String(), value=hr.Long()).filter(lambda record: 1 // record.value > 0)
    counted.group_by_key().count(store="counts").to_stream().to("out")
    return app


def samples(text: str) -> dict[str, float]:
    """By name and the values of all labels but the application's."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [value for name, value in sorted(sample.labels.items()) if name != "application"]
            found[" ".join([sample.name, *labels])] = sample.value
    return found


def test_a_running_job_answers_for_itself_until_it_ends(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        for stream in ("in", "out", "bad"):
            log.create_stream(stream, 2)
        log.produce("in", [(f"k{number % 5}", number % 10) for number in range(100)], key=hr.String(), value=hr.Long())
        job = wiring.start(application(tmp_path, metrics_address=str(port)), engine=InlineEngine(run_container))
        try:
            until(lambda: job.status()["sub_topologies"]["source"]["lag"] == 0)
            until(lambda: samples(answer(f"{url}/metrics")[1]).get("headrace_lag source Partition_0") == 0)
            found = samples(answer(f"{url}/metrics")[1])
            assert found["headrace_dead_letters_total source"] == 10
            processed = [found[f"headrace_records_processed_total source Partition_{number}"] for number in range(2)]
            assert sum(processed) == 100
            assert found["headrace_round_seconds_total source"] > found["headrace_round_commit_seconds_total source"] > 0
            assert found["headrace_decode_seconds_total source Partition_0"] > 0
            assert json.loads(answer(f"{url}/ready")[1]) == {"ready": True, "why": ""}
            assert answer(f"{url}/live")[0] == 200 and answer(f"{url}/elsewhere")[0] == 404
        finally:
            job.stop()
    with pytest.raises(urllib.error.URLError):
        answer(f"{url}/live")


RARE = (
    "rounds_failed_total source",
    "declined_total source",
    "dead_letters_total source",
    "late_records_total source",
    "restored_bytes_total source",
    "restore_left_bytes source",
    "records_written_total source",
    "round_phase_seconds_total write source",
    "plan_changes_total",
    "change_pause_seconds",
)


def test_what_seldom_occurs_is_there_from_the_first_scrape_on(tmp_path: Path) -> None:
    """Or an alert on its rate misses the first time."""
    port = free_port()
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        for stream in ("in", "out", "bad"):
            log.create_stream(stream, 2)
    job = wiring.start(application(tmp_path, metrics_address=str(port)), engine=InlineEngine(run_container))
    try:
        found = samples(answer(f"http://127.0.0.1:{port}/metrics")[1])
        assert {name: found.get(f"headrace_{name}") for name in RARE} == dict.fromkeys(RARE, 0)
        assert job.observations()[0].last_pause_s is None, "no change is no pause of 0 s"
    finally:
        job.stop()


def test_a_start_that_fails_leaves_the_address(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    for _ in range(2):
        with pytest.raises(Exception, match="in"):  # there is no such stream
            wiring.start(application(tmp_path, metrics_address=address), engine=InlineEngine(run_container))


def test_before_there_is_a_job_it_lives_and_is_not_ready() -> None:
    endpoint = JobEndpoint(f"127.0.0.1:{free_port()}", "shop", None)
    try:
        assert answer(f"{endpoint.url}/live")[0] == 200
        assert answer(f"{endpoint.url}/ready") == (503, '{"ready":false,"why":"the start of the job"}')
        assert answer(f"{endpoint.url}/metrics")[0] == 200
        with pytest.raises(SetupError, match="cannot be had"):
            JobEndpoint(f"127.0.0.1:{endpoint.url.rpartition(':')[2]}", "shop", None)
    finally:
        endpoint.close()


def test_what_a_job_waits_for() -> None:
    running = {"sub_topologies": {"source": {"stopped_by": ""}, "by": {"stopped_by": ""}}}
    assert waits_for(running) == ""
    assert "by" in waits_for({"sub_topologies": {"source": {"stopped_by": ""}, "by": {"stopped_by": "StreamChangedError"}}})
    assert waits_for({"waiting_for": "a grant", **running}) == "a grant"


@pytest.mark.parametrize("address", ["", "host", "host:", ":80", "host:0", "host:65536", "host:-1", "host:8o", "host:９"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="metrics_address"):
        host_and_port(address, "metrics_address")


def measured(tasks: int, containers: int) -> dict[str, MetricValues]:
    """Everything that there is of each metric."""
    own = {
        MetricLabel.TASK: {f"Partition_{number}": 1.0 for number in range(tasks)},
        MetricLabel.CONTAINER: {str(number): 1.0 for number in range(containers)},
        MetricLabel.SUB_TOPOLOGY: {"": 1.0},
        MetricLabel.JOB: {"": 1.0},
        MetricLabel.PHASE: {f"phase {number}": 1.0 for number in range(20)},
        MetricLabel.ROUND_PHASE: dict.fromkeys(PHASES, 1.0),
    }
    if tasks > OBSERVED_TASKS_MAX:
        own[MetricLabel.TASK] = {"sum": 1.0, "max": 1.0}
    of_job = {name: own[one.label] for name, one in METRICS.items() if one.label in (MetricLabel.JOB, MetricLabel.PHASE)}
    return {"": of_job, "source": {name: own[one.label] for name, one in METRICS.items() if name not in of_job}}


@pytest.mark.parametrize(("tasks", "counted"), [(OBSERVED_TASKS_MAX, OBSERVED_TASKS_MAX), (OBSERVED_TASKS_MAX + 1, 0)])
def test_there_are_no_more_series_than_is_documented(tasks: int, counted: int) -> None:
    text = exposition(lambda: series_of("shop", measured(tasks, 4)))().decode()
    found = samples(text)
    assert len(found) <= series_max(1, 4, counted)
    assert ("headrace_lag_max_over_tasks source" in found) == (counted == 0)
    assert "/" not in "".join(found)


def test_a_label_of_any_text_comes_through_whole() -> None:
    text = 'a "b" \\ \n <script>'
    series = series_of(text, {"source": {"round-ns": {"": 5e9}}})
    (family,) = text_string_to_metric_families(exposition(lambda: series)().decode())
    assert [(one.labels["application"], one.value) for one in family.samples] == [(text, 5.0)]
