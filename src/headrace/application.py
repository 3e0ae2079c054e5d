"""`App`: an application that is declared, and run. Declaring is in `headrace.dsl.app_declaration`.

What runs it is imported when it is first needed: declaring a topology needs neither Spark nor Arrow.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from headrace import wiring
from headrace.config.loading import KEYS, Config, load_config, refuse_reserved
from headrace.dsl.app_declaration import AppDeclaration
from headrace.errors import ConfigError
from headrace.wiring.spark_sessions import SessionSlot

if TYPE_CHECKING:
    from headrace.adapters.spark.session import SparkSession
    from headrace.client.state_reader import StateView
    from headrace.driver.job import Job
    from headrace.driver.job_status import RunStatus
    from headrace.dsl.displayable import Displayable
    from headrace.dsl.preview import Preview
    from headrace.exchange.engine import Engine


class StartOptions(TypedDict, total=False):
    """How an application is started. `overrides`: configuration as `--set` takes it, `KEY=VALUE` each."""

    overrides: Sequence[str]
    config: Config
    engine: Engine
    log: Callable[[str], None]


class RunOptions(StartOptions, total=False):
    """How an application is run in the foreground. `progress`: whether its progress is shown on standard error."""

    progress: bool


class App(AppDeclaration):
    """An application: streams are read from it, and it is run.

    `system` is where its streams are, `log:./data` where it is not said anywhere. `spark` is a session to run in;
    without one, one is started when it is needed. `config` and `keys` are configuration keys; those with a dot, such
    as `spark.executor.memory`, only fit into `config`. Making an App connects to nothing.

    `ConfigError` at once for a key that there is not, and for a value that it does not take; `NotSupportedError` for one that
    is reserved.
    """

    def __init__(
        self,
        name: str,
        system: str | None = None,
        spark: SparkSession | None = None,
        config: Mapping[str, Any] | None = None,
        **keys: Any,
    ) -> None:
        super().__init__(name)
        self.session = SessionSlot(spark)
        self.folder: Path | None = None  # of its file, where a command has loaded it: workers import from there
        self.config_folder = _folder_of_maker(self)  # where its `headrace.toml` is looked for
        self.config_arguments = _config_arguments(system, config, keys)
        refuse_reserved(load_config(None, {}, self.config_arguments), is_whole=False)  # at the line that is wrong

    def run(self, until: Literal["caught-up"] | None = None, **options: Unpack[RunOptions]) -> RunStatus:
        """Run until it is stopped, or with `until="caught-up"` until the current end offsets, and what comes of it, is read."""
        _check_options("run", options, ("until", *RunOptions.__annotations__))
        return wiring.run(self, until, **options)

    def start(self, until: Literal["caught-up"] | None = None, **options: Unpack[StartOptions]) -> Job:
        """Start it, and give the running `Job`: `status()`, `wait()`, `stop()`."""
        _check_options("start", options, ("until", *StartOptions.__annotations__))
        return wiring.start(self, until, **options)

    def preview(self, n: int = 20) -> Preview:
        """What each output gets from the first `n` records of each input (of tables: all), as a table; nothing is committed."""
        return self.preview_of(None, n)

    def preview_of(self, part: Displayable | None, n: int) -> Preview:
        """What a stream or a table of this application holds for the first `n` records of each input; None: its outputs."""
        from headrace.wiring.sample_run import preview

        return preview(self, part, n)

    def state(self, name: str) -> StateView:
        """The state of the store `name` as committed: `get(key)`, `to_df()` (pandas), `to_arrow()`."""
        from headrace.client.state_reader import open_state

        return open_state(self, name)

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started if there is none yet."""
        from headrace.wiring.spark_sessions import session_of

        return session_of(self, wiring.config_of(self))[0]


def _folder_of_maker(made: App) -> Path | None:
    """The folder of the file that makes an application; None where it is made in no file, as at a prompt."""
    here = inspect.currentframe()
    frame = None if here is None else here.f_back
    while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is made:  # of subclasses too
        frame = frame.f_back
    file = None if frame is None else frame.f_globals.get("__file__")
    return Path(file).absolute().parent if isinstance(file, str) else None


def _check_options(call: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(known)}"
            key = "; configuration keys are given to App(...)" if name in KEYS else ""
            raise ConfigError(f"{call}({name}={given[name]!r:.40}): there is no such option", hint + key)


def _config_arguments(system: str | None, config: Mapping[str, Any] | None, keys: Mapping[str, Any]) -> dict[str, Any]:
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(f"App(config={config!r}): expected a mapping of keys to values")
    named = dict(keys) if system is None else {"system": system, **keys}
    given = dict(config or {})
    if twice := sorted(set(named) & set(given)):
        raise ConfigError(f"App: {twice[0]!r} is given as an argument and in config", "give it once")
    return given | named
