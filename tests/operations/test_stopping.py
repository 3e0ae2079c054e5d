"""A job is stopped from a page: that of its own process, or any other by a request; and it says that it was stopped."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace import wiring
from headrace.adapters.common.lease_holder import this_process
from headrace.adapters.common.server_process import free_ports
from headrace.cli.commands import application
from headrace.cli.operator_view import OperatorView
from headrace.cli.targets import Target
from headrace.client.stopping import Stopping
from headrace.codec.job_records import STOPS, stop_request
from headrace.core.group.grants import Grant
from headrace.errors import ConfigError
from headrace.wiring.foreground import wait_for
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

APP = """
import headrace as hr

app = hr.App("shop", config={config!r})
app.stream("in", key=hr.String(), value=hr.String()).group_by_key().count(store="counts")
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[hr.App]:
    places = {"local_store_dir": f"{tmp_path}/stores", "state_uri": f"{tmp_path}/state", "trigger_interval_ms": 10}
    config = {"system": f"log:{tmp_path / 'log'}", **places}
    (tmp_path / "job.py").write_text(APP.format(config=config))
    with hr.open_system(config["system"]) as log:
        log.create_stream("in", 1)
        log.produce("in", [("a", "v")], key=hr.String(), value=hr.String())
    from headrace.cli.app_loading import load_app

    return load_app(str(tmp_path / "job.py"))


def started(app: hr.App) -> Any:
    return wiring.start(app, engine=InlineEngine(run_container))


def view_of(app: hr.App, *, with_file: bool = True) -> OperatorView:
    return OperatorView(Target("shop", wiring.config_of(app), app if with_file else None), allow_changes=True)


def posted(url: str, what: str) -> Any:
    made = urllib.request.Request(url + what, b"{}", {"content-type": "application/json"})
    with urllib.request.urlopen(made, timeout=10) as answer:
        return json.load(answer)


def test_a_job_that_its_own_page_stops_says_that_it_was_stopped(
    app: hr.App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = next(free_ports("127.0.0.1"))
    monkeypatch.setattr(wiring, "start", partial(wiring.start, engine=InlineEngine(run_container)))
    answers: list[Any] = []

    def stop() -> None:
        url, deadline_s = f"http://127.0.0.1:{port}", time.monotonic() + 30
        while time.monotonic() < deadline_s:
            try:
                with urllib.request.urlopen(f"{url}/api/overview", timeout=10) as answer:
                    if json.load(answer).get("status", {}).get("running"):
                        break
            except OSError:
                pass
            time.sleep(0.05)
        answers.extend(posted(url, f"/api/{mode}/stop") for mode in ("preview", "change"))

    asking = threading.Thread(target=stop)
    asking.start()
    arguments = ["run", str(tmp_path / "job.py"), "--ui", "--ui-port", str(port), "--allow-changes", "--no-progress"]
    result = CliRunner().invoke(application, arguments)
    asking.join(30)
    assert result.exit_code == 0 and [one["stopped"] for one in answers] == [False, True]
    assert "stopped shop: committed rounds are kept" in result.output and "caught up" not in result.output


def test_the_status_of_a_job_says_whether_it_was_stopped(app: hr.App) -> None:
    job = started(app)
    threading.Timer(0.1, job.stop).start()
    found = wait_for(job, progress=False)
    assert (found["stopped"], found["signal"]) == (True, None)
    found = wait_for(wiring.start(app, until="caught-up", engine=InlineEngine(run_container)), progress=False)
    assert (found["stopped"], found["signal"]) == (False, None)


@pytest.mark.parametrize("with_file", [True, False])
def test_a_job_of_another_process_is_stopped_by_a_request(app: hr.App, with_file: bool) -> None:
    view = view_of(app, with_file=with_file)
    job = started(app)
    try:
        assert view.change("stop", {}, is_wanted=False)["stopped"] is False and job.is_running
        done = view.change("stop", {}, is_wanted=True)
        assert done["stopped"] and done["pid"] > 0
        job.wait(20)
    finally:
        job.stop()
    assert job.was_stopped
    with pytest.raises(ConfigError, match="'shop' does not run"):
        view.change("stop", {}, is_wanted=True)


def test_a_request_stops_no_later_run_and_is_not_kept(app: hr.App) -> None:
    with hr.open_system(wiring.config_of(app).system) as log:
        metadata = log.metadata_store("shop")
        started(app).stop()
        for request in (stop_request("another run", "ada"), b"\xff", b"[]"):
            metadata.request(STOPS, request)
        job = started(app)
        try:
            deadline_s = time.monotonic() + 20
            while metadata.requests(STOPS):
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            assert job.is_running and not job.was_stopped
        finally:
            job.stop()


def test_a_group_is_not_stopped_by_one_request(kafka_server: Any) -> None:
    url = f"kafka://{kafka_server.bootstrap}"
    with wiring.opened_system(url) as system:
        store = system.job_store("grouped")
        epoch = store.acquire(this_process("run", time.time_ns() // 1000), time.time_ns() // 1000)
        store.write_grants(epoch, {"a": Grant(1, "one")})
        app = hr.App("grouped", config={"system": url})
        with Stopping("grouped", wiring.config_of(app)) as stopping, pytest.raises(ConfigError, match="a group of processors"):
            stopping.preview()
        store.release(epoch)
