"""Turning configuration into adapters: the one place that knows which technology is behind which port.

What a command needs that reads no records (status, tasks, checkpoints) imports neither Spark nor Arrow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from headrace.config.loading import Config, load_config
from headrace.errors import AppLoadError, ConfigError
from headrace.model.topology import Topology
from headrace.wiring.spark_sessions import SessionSlot

if TYPE_CHECKING:
    from headrace.driver.job import Job
    from headrace.driver.job_status import RunStatus
    from headrace.exchange.engine import Engine
    from headrace.ports.system import Streams, System


class Application(Protocol):
    """What is known of an application here: `headrace.App`, or a part of one."""

    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> Path | None: ...  # of its file, where a command has loaded it
    @property
    def config_folder(self) -> Path | None: ...  # of its `headrace.toml`
    @property
    def session(self) -> SessionSlot: ...
    @property
    def config_arguments(self) -> Mapping[str, Any]: ...
    def topology(self) -> Topology: ...


LOOK_UP_WAIT_S = 5.0  # a look-up has to report soon that a broker does not answer


def open_system(url: str, *, create: bool = True, kafka: Mapping[str, str] | None = None) -> Streams:
    """Open a system by its URL, `log:DIR` or `kafka://HOST:PORT`; use it in a `with`.

    `create=False` refuses a folder that holds no log. `kafka`: the `kafka.*` settings of a secured broker; those of
    `HEADRACE_KAFKA__*` variables and of `headrace.toml` in this folder if None."""
    return opened_system(url, create=create, kafka=kafka)


def opened_system(url: str, *, create: bool = True, kafka: Mapping[str, str] | None = None) -> System:
    """What `open_system` opens, with all that a driver asks of it."""
    scheme = url.partition(":")[0] if isinstance(url, str) else None
    opened: System
    if scheme == "log" and url != "log:":
        from headrace.adapters.log import system as log

        opened = log.open_system(url, create=create)
    elif scheme == "kafka":
        settings = kafka if kafka is not None else load_config(Path.cwd(), os.environ, {}, []).kafka
        from headrace.adapters.kafka import system as kafka_system

        opened = kafka_system.open_system(url, settings)
    else:
        raise ConfigError(
            f"system {url!r}: expected log:FOLDER or kafka://HOST:PORT", "such as log:./data or kafka://localhost:9092"
        )
    return opened


def open_configured(config: Config, *, create: bool = True, wait_s: float | None = None) -> System:
    """Open the system of a configuration, with its settings; `wait_s` is how long a broker is waited for if it sets none."""
    patience = {} if wait_s is None else {"wait.s": str(wait_s)}
    return opened_system(config.system, create=create, kafka={**patience, **config.kafka})


_declaring: list[Path] = []  # files that are being loaded for what they declare


@contextmanager
def only_declaring(path: Path) -> Iterator[None]:
    """While the context is open no application may be started: `path` is loaded to look at, or to be run later."""
    _declaring.append(path)
    try:
        yield
    finally:
        _declaring.pop()


def config_of(app: Application, overrides: Sequence[str] = ()) -> Config:
    """An application's configuration, all five places merged."""
    return load_config(app.config_folder, os.environ, app.config_arguments, list(overrides))


def start(
    app: Application,
    until: str | None = None,
    *,
    overrides: Sequence[str] = (),
    config: Config | None = None,
    engine: Engine | None = None,
    log: Callable[[str], None] | None = None,
    python_s: float | None = None,
) -> Job:
    """Start an application; see `driver.job.Job`. A processor of a group is a `driver.group.group_job.GroupJob`, which is used
    in the same way. `python_s`: for so long the process has run, where that counts as part of the start."""
    began_s = time.monotonic()
    from headrace.driver.start_times import StartTimes
    from headrace.wiring.group_terms import is_in_group
    from headrace.wiring.launch import started

    if _declaring:
        raise AppLoadError(
            f"{_declaring[-1].name} runs its application at import, but a command only loads it",
            'put the run under `if __name__ == "__main__":`',
        )
    if until not in (None, "caught-up"):
        raise ConfigError(f"run(until={until!r}): expected None or 'caught-up'")
    config = config or config_of(app, overrides)
    with ExitStack() as opened:
        if config.log_format == "json":
            from headrace.exchange import json_logs

            opened.callback(json_logs.JsonLog(app.name).close)
            log = json_logs.LOG.info
        endpoint = None
        if config.metrics_address is not None:
            from headrace.wiring.job_endpoint import JobEndpoint

            endpoint = JobEndpoint(config.metrics_address, app.name, log)
            opened.callback(endpoint.close)
        if is_in_group(config):
            from headrace.wiring.group_launch import started_in_group

            job = cast("Job", started_in_group(app, config, until, engine, log))
        else:
            job = started(app, config, until, engine, log, StartTimes(began_s, python_s))
        if endpoint is not None:
            endpoint.show(job)
        job.when_ended(opened.pop_all().close)
        return job


def run(app: Application, until: str | None = None, *, progress: bool = True, **options: Any) -> RunStatus:
    """Start an application, show its progress, and wait for its end; SIGINT and SIGTERM stop it. Gives its last status."""
    from headrace.wiring.foreground import wait_for

    config = options.pop("config", None) or config_of(app, options.get("overrides", ()))
    return wait_for(start(app, until, config=config, **options), progress and config.log_format == "text")
