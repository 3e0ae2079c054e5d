"""What looks at one application from any process, and changes it: which one is meant, and its system while it is open."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headrace import wiring
from headrace.config.loading import Config, load_config
from headrace.errors import ConfigError, StreamNotFoundError
from headrace.model.topology import Topology
from headrace.wiring.matched_streams import as_matched

Named = tuple[str, Config, Topology | None]  # an application's name, configuration, and topology if it is at hand


def named(application: Any, system: str | None = None) -> Named:
    """The application that an `App`, or a name alone, means; `system` is the URL of where it runs, as configured if None."""
    overrides = [] if system is None else [f"system={system}"]
    if isinstance(application, str):
        return application, load_config(Path.cwd(), os.environ, {}, overrides), None
    if not callable(getattr(application, "topology", None)):
        raise ConfigError(f"{application!r} is no application", "give an hr.App, or the name of one that has run")
    return application.name, wiring.config_of(application, overrides), application.topology()


class ApplicationClient:
    """For use in a `with`, in which the system is open. `system`: one that is open already, and stays so."""

    def __init__(self, application: str, config: Config, topology: Topology | None = None, system: Any = None) -> None:
        self.application = application
        self._config, self._topology, self._given = config, topology, system
        self._opened_system: Any = system
        self._opened_here = ExitStack()

    def _open_more(self, opening: ExitStack) -> None:
        """Open what else is needed, for as long as the system is open."""

    @property
    def _system(self) -> Any:
        """`ConfigError` while it is not open."""
        if self._opened_system is None:
            what = type(self).__name__.lower()
            hint = f"use it in a `with`: `with hr.{what}(...) as {what}: ...`"
            raise ConfigError(f"hr.{what} of application {self.application!r} is not open", hint)
        return self._opened_system

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            if self._given is None:
                opened = wiring.open_configured(self._config, create=False, wait_s=wiring.LOOK_UP_WAIT_S)
                self._opened_system = opening.enter_context(opened)
            if self._topology is not None:
                with suppress(StreamNotFoundError):  # what no stream matches yet has nothing to be looked up
                    self._topology = as_matched(self._topology, self._config, self._opened_system)
            self._open_more(opening)
            self._opened_here = opening.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._opened_here.close()
        self._opened_system = self._given
