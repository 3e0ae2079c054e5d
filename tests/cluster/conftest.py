"""A Spark standalone cluster of two machines that share one folder with the driver, and a driver to run jobs on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

import headrace as hr
from cluster.machines import Cluster, NoMachinesError, unshare


class Place(Protocol):
    """Where a driver's folders and logs are, and the master of its jobs."""

    @property
    def root(self) -> Path: ...
    @property
    def driver(self) -> Path: ...
    @property
    def master(self) -> str: ...


class Driver:
    """A process that runs jobs; its folders are the cluster's `driver`. Commands: see `cluster.driver`. `enter` runs it in its
    network, at `address`. `applications`: the module that has them; `more`: settings of Spark."""

    def __init__(
        self,
        cluster: Place,
        enter: Sequence[str] = (),
        address: str = "127.0.0.1",
        applications: str = "cluster.application",
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.cluster, self._address = cluster, address
        settings = {
            "spark.master": cluster.master,
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.enabled": "false",
            **(more or {}),
        }
        self._arguments = [applications, json.dumps(settings)]
        self.begin(enter)

    def begin(self, enter: Sequence[str] = ()) -> None:
        """Start the process; again, once it is closed."""
        folder = self.cluster.driver
        environment = os.environ | {
            "TMPDIR": str(folder / "tmp"),
            "HOME": str(folder),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "SPARK_LOCAL_DIRS": str(folder / "tmp"),
            "SPARK_LOCAL_IP": self._address,
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder / 'tmp'}",
            "PYTHONPATH": os.pathsep.join([str(Path(hr.__file__).parents[1]), str(Path(__file__).parents[1])]),
        }
        self._process = subprocess.Popen(
            [*enter, sys.executable, "-m", "cluster.driver", *self._arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.cluster.root / "driver-errors").open("w"),
            text=True,
        )
        self._answer()

    def ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, text = line.partition(" ")
            if word == "answer":
                found: dict[str, Any] = json.loads(text)
                assert "error" not in found, found["error"]
                return found
        raise AssertionError(f"the driver has ended: {(self.cluster.root / 'driver-errors').read_text()[-4000:]}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait()


def need_machines() -> None:
    """Skip the test where the kernel gives no namespaces; in CI fail it."""
    try:
        unshare()
    except NoMachinesError as error:
        text = f"this machine gives no namespaces: {error}"
        pytest.fail(text, pytrace=False) if os.environ.get("CI") else pytest.skip(text)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need_machines()
    with Cluster(tmp_path_factory.mktemp("cluster"), ["machine-1", "machine-2"]) as started:
        yield started


@pytest.fixture(scope="session")
def driver(cluster: Cluster) -> Iterator[Driver]:
    started = Driver(cluster)
    yield started
    started.close()


@pytest.fixture
def job_keys(cluster: Cluster, kafka_server: Any) -> Callable[..., dict[str, Any]]:
    return job_keys_of(cluster, kafka_server)


def job_keys_of(cluster: Cluster, kafka_server: Any) -> Callable[..., dict[str, Any]]:
    def keys(name: str, **more: Any) -> dict[str, Any]:
        return {
            "name": name,
            "system": f"kafka://{kafka_server.bootstrap}",
            "local_store_dir": str(cluster.own / "stores"),
            "state_uri": str(cluster.shared),
            "trigger_interval_ms": 20,
            **more,
        }

    return keys
