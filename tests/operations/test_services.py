"""The systemd unit and the Kubernetes manifest of docs/deploy.md: their commands run with their environments, their probes are
asked, and they are stopped as systemd and the kubelet would."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import yaml

import headrace as hr
from headrace.adapters.common.server_process import free_ports
from support.manifests import loose_ends
from support.world import Place

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy.md"
HEADRACE = [sys.executable, "-c", "from headrace.cli import main; main()"]
APP = """
import headrace as hr

app = hr.App({name!r}, system={url!r}, config={{"spark.master": "local[1]"}})
app.stream({source!r}, key=hr.String()).group_by_key().count(store="seen").to_stream().to({target!r})
"""
WAIT_S = 100.0
pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", DEPLOY.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return str(found)


def answer(port: int, path: str) -> int | None:
    """The status of a probe; None where nothing listens yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as found:
            return int(found.status)
    except URLError as error:
        return getattr(error, "code", None)


@contextmanager
def running(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A service in `folder`. What it says is in `said.txt` there."""
    assert command[0].rpartition("/")[2] == "headrace"
    called, more = [*HEADRACE, *command[1:]], os.environ | dict(environ)
    with (folder / "said.txt").open("wb") as said:
        started = subprocess.Popen(called, cwd=folder, env=more, stdout=said, stderr=said, start_new_session=True)
    try:
        yield started
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def until_ready(service: subprocess.Popen[bytes], port: int, path: str, folder: Path) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while answer(port, path) != 200:
        said = (folder / "said.txt").read_text(errors="replace")
        assert service.poll() is None, said
        assert time.monotonic() < deadline_s, said
        time.sleep(0.1)


def stopped(service: subprocess.Popen[bytes], within_s: float) -> int:
    service.send_signal(signal.SIGTERM)
    return service.wait(within_s)


def written(folder: Path, url: str, name: str) -> None:
    source, target = f"{name}-in", f"{name}-out"
    with hr.open_system(url) as system:
        for stream in (source, target):
            system.create_stream(stream, 2)
    text = APP.format(name=name, url=url, source=source, target=target)
    (folder / "flights.py").write_text(text, encoding="utf-8")


def unit_of(text: str) -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    return unit


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """Where there is a systemd to ask. The user and the folders are those of a host."""
    text = block("ini").replace("/srv/flights/.venv/bin/headrace", sys.executable).replace("User=headrace\n", "")
    (tmp_path / "flights.service").write_text(text.replace("/srv/flights", str(tmp_path)), encoding="utf-8")
    unit = unit_of(block("ini"))
    assert unit["Service"]["ExecStart"].startswith("/srv/flights/.venv/bin/headrace run ")
    if analyse := shutil.which("systemd-analyze"):
        asked = [analyse, "verify", "--man=no", str(tmp_path / "flights.service")]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
        assert "flights.service" not in done.stderr and done.returncode == 0, done.stderr


def test_the_unit_runs_is_ready_and_stops_in_time(tmp_path: Path) -> None:
    service, port = unit_of(block("ini"))["Service"], next(free_ports("127.0.0.1"))
    written(tmp_path, f"log:{tmp_path / 'log'}", "flights")
    environ = dict(one.split("=", 1) for one in service["Environment"].split())
    assert environ["HEADRACE_METRICS_ADDRESS"] == "9404"
    environ["HEADRACE_METRICS_ADDRESS"] = str(port)
    with running(service["ExecStart"].split(), tmp_path, environ) as started:
        until_ready(started, port, "/ready", tmp_path)
        assert stopped(started, float(service["TimeoutStopSec"])) == 0, (tmp_path / "said.txt").read_text()
    lines = (tmp_path / "said.txt").read_text().splitlines()
    assert any(line.startswith("{") for line in lines), "as JSON, for the journal"


def manifest() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(block("yaml")))


def the_set(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [one["spec"] for one in documents if one["kind"] == "StatefulSet"]
    return dict(found)


def test_every_reference_of_the_manifest_resolves() -> None:
    assert loose_ends(manifest()) == []


def _without_service(documents: list[dict[str, Any]]) -> None:
    documents[:] = [one for one in documents if one["kind"] != "Service"]


def _with_volume(documents: list[dict[str, Any]]) -> None:
    the_set(documents)["template"]["spec"]["containers"][0]["volumeMounts"].append({"name": "logs", "mountPath": "/logs"})


def _with_probe(documents: list[dict[str, Any]]) -> None:
    the_set(documents)["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"] = "health"


def _with_secret(documents: list[dict[str, Any]]) -> None:
    the_set(documents)["template"]["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "kafka"}}]


def _with_labels(documents: list[dict[str, Any]]) -> None:
    the_set(documents)["template"]["metadata"]["labels"] = {"app": "sales"}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (_without_service, ["headless service flights"]),
        (_with_volume, ["volume logs"]),
        (_with_probe, ["livenessProbe port health"]),
        (_with_secret, ["Secret kafka"]),
        (_with_labels, ["selector {'matchLabels': {'app': 'flights'}}", "service selector {'app': 'flights'}"]),
    ],
)
def test_a_reference_to_nothing_is_found(change: Callable[[list[dict[str, Any]]], None], found: list[str]) -> None:
    documents = manifest()
    change(documents)
    assert loose_ends(documents) == found


def test_the_pod_runs_its_probes_are_answered_and_it_stops(tmp_path: Path, on_kafka: Place, real_zookeeper: Any) -> None:
    spec = the_set(manifest())
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    (named,) = container["ports"]
    port, name = next(free_ports("127.0.0.1")), f"flights-{os.getpid()}"
    written(tmp_path, on_kafka.url(tmp_path), name)
    # What the kubelet fills in: the pod's name, and what a claim is mounted at.
    pod_name = f"{spec['serviceName']}-0"
    environ = {one["name"]: one.get("value", pod_name) for one in container["env"]}
    assert environ["HEADRACE_METRICS_ADDRESS"] == f"0.0.0.0:{named['containerPort']}"
    (mount,), (claim,) = container["volumeMounts"], spec["volumeClaimTemplates"]
    assert mount["name"] == claim["metadata"]["name"] and mount["mountPath"] == environ["HEADRACE_LOCAL_STORE_DIR"]
    assert environ["HEADRACE_STATE_URI"].startswith("s3://")
    environ |= {"HEADRACE_METRICS_ADDRESS": str(port), "HEADRACE_LOCAL_STORE_DIR": str(tmp_path / "stores")}
    environ["HEADRACE_STATE_URI"] = str(tmp_path / "state")
    zookeeper = f"127.0.0.1:{real_zookeeper.server.port}"
    command = [one.replace("$(POD)", pod_name).replace("zookeeper:2181", zookeeper) for one in container["args"]]
    with running(command, tmp_path, environ) as started:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["port"] == named["name"]
            until_ready(started, port, asked["path"], tmp_path)
        assert stopped(started, float(pod["terminationGracePeriodSeconds"])) == 0, (tmp_path / "said.txt").read_text()
    assert any((tmp_path / "state").iterdir()), "where the manifest says"
