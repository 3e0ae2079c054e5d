"""Owns how a command is told which application and which system it is about: by the application's file, or by names."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace import wiring
from headrace.cli.output import fail, say
from headrace.config import Config, load_config

if TYPE_CHECKING:
    from headrace.adapters.log.jobs import LogJobStore
    from headrace.adapters.log.system import LogSystem

AppArgument = Annotated[str, typer.Argument(metavar="APP", help="FILE.py, or FILE.py:name where it makes several.")]
OptionalAppArgument = Annotated[
    str | None, typer.Argument(metavar="[APP]", help="FILE.py or FILE.py:name; or use --application.")
]
AppOption = Annotated[str | None, typer.Option("--app", metavar="APP", help="The application's file: FILE.py[:name].")]
ApplicationOption = Annotated[
    str | None, typer.Option("--application", metavar="ID", help="The application's name, where its file is not at hand.")
]
SystemOption = Annotated[
    str | None,
    typer.Option("--system", metavar="URL", help="Where the streams are: log:FOLDER. Default: as configured, else log:./data."),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a configuration key; may be repeated.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@dataclass(frozen=True, slots=True)
class Target:
    """The application a command is about. `app` is there if its file was named."""

    application: str
    config: Config
    app: Any = None


def target_of(app: str | None, application: str | None, system: str | None, overrides: Sequence[str] | None = None) -> Target:
    """The target that the options name; the only application of the system where they name none."""
    given = [*(overrides or ()), *([f"system={system}"] if system else [])]
    if app is not None and application is not None:
        raise typer.BadParameter("give either the application's file or --application, not both")
    if app is not None:
        from headrace.wiring.loading import load_app

        loaded = load_app(app, given, say)
        return Target(loaded.name, wiring.config_of(loaded, given), loaded)
    config = load_config(Path.cwd(), os.environ, {}, given)
    if application is None:
        application = _only_one(config)
    return Target(application, config)


def _only_one(config: Config) -> str:
    with wiring.open_system(config.system, create=False) as system:
        known = system.applications()
    if not known:
        fail(f"no application has run on {config.system} yet", "run one with `headrace run APP`, or name another --system")
    if len(known) > 1:
        fail(f"{len(known)} applications have run on {config.system}: {', '.join(known)}", "say which: --application ID")
    return known[0]


def system_url(system: str | None) -> str:
    """The system of commands that need no application: as asked for, else as configured here."""
    return load_config(Path.cwd(), os.environ, {}, [f"system={system}"] if system else []).system


@contextmanager
def opened(target: Target) -> Iterator[tuple[LogSystem, LogJobStore]]:
    """The target's system and its job store, of an application that has run; else an error that names those that have."""
    with wiring.open_system(target.config.system, create=False) as system:
        known = system.applications()
        if target.application not in known:
            near = difflib.get_close_matches(target.application, known, 3) or known
            fail(
                f"application {target.application!r} has not run on {target.config.system} yet",
                f"there are: {', '.join(near)}" if near else "run it with `headrace run APP`",
            )
        yield system, system.job_store(target.application)
