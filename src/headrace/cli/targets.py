"""What options mean: which application and which system a command is about, and whole numbers."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace import wiring
from headrace.cli.output import fail, say
from headrace.client.job_look import JobLook
from headrace.config.loading import Config, load_config
from headrace.errors import SetupError

_BEYOND = 2**63
_WHOLE = re.compile(r"[+-]?[0-9]{1,100}")

AppArgument = Annotated[str, typer.Argument(metavar="APP", help="FILE.py, or FILE.py:name where it makes several.")]
OptionalAppArgument = Annotated[
    str | None, typer.Argument(metavar="APP", help="FILE.py or FILE.py:name; or use --application. Default: the only one.")
]
DropStoreOption = Annotated[
    list[str] | None,
    typer.Option(
        "--drop-store", metavar="NAME", help="Drop the state of a store that the edited application cannot use. Repeatable."
    ),
]
RenameStoreOption = Annotated[
    list[str] | None,
    typer.Option("--rename-store", metavar="OLD=NEW", help="Rename store OLD to NEW with its state. Repeatable."),
]
CoordinatorOption = Annotated[
    str | None,
    typer.Option(
        "--coordinator",
        metavar="URL",
        help="Run as one processor of a group on several hosts: zookeeper://HOST:PORT/ROOT. Needs --processor-id.",
    ),
]
ProcessorIdOption = Annotated[
    str | None,
    typer.Option("--processor-id", metavar="ID", help="In a group: the name of this processor, kept over restarts."),
]
AppOption = Annotated[str | None, typer.Option("--app", metavar="APP", help="The application's file: FILE.py[:name].")]
ApplicationOption = Annotated[
    str | None, typer.Option("--application", metavar="ID", help="The application's name, where its file is not at hand.")
]
SystemOption = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="URL",
        help="Where the streams are: log:FOLDER or kafka://HOST:PORT. Default: as configured, else log:./data.",
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a configuration key; may be repeated.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not prompt for confirmation.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@dataclass(frozen=True, slots=True)
class Target:
    """The application a command is about. `app` is there if its file was named."""

    application: str
    config: Config
    app: Any = None


_TARGET_OPTIONS: dict[str, Any] = {
    "app_argument": OptionalAppArgument,
    "app": AppOption,
    "application": ApplicationOption,
    "system": SystemOption,
    "set_": SetOption,
}


def with_store_changes(set_: list[str] | None, drop: list[str] | None, rename: list[str] | None) -> list[str]:
    """What `--set` gives, and what `--drop-store` and `--rename-store` do."""
    requests = {"drop_stores": drop, "rename_stores": rename}
    return [*(set_ or ()), *(f"{key}={','.join(given)}" for key, given in requests.items() if given)]


def with_group(overrides: Sequence[str], coordinator: str | None, processor_id: str | None) -> list[str]:
    """What `--coordinator` and `--processor-id` do, behind other overrides."""
    given = {"coordinator": coordinator, "processor_id": processor_id}
    for key, text in given.items():
        if text is not None and not text.strip():
            raise typer.BadParameter(f"--{key.replace('_', '-')}: expected a text, found {text!r}")
    return [*overrides, *(f"{key}={text}" for key, text in given.items() if text is not None)]


def with_options(
    command: Callable[..., None], name: str, options: Mapping[str, Any], made: Callable[..., Any]
) -> Callable[..., None]:
    """Make a command of one that takes a parameter `name`: in its place are these options, None where they are not given, of
    which `made` makes it."""
    signature = inspect.signature(command, eval_str=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [one.replace(kind=keyword) for one in signature.parameters.values() if one.name != name]
    shared = [inspect.Parameter(one, keyword, default=None, annotation=annotation) for one, annotation in options.items()]

    @functools.wraps(command)
    def with_made(**given: Any) -> None:
        taken = {one: given.pop(one) for one in options}
        command(**{name: made(**taken)}, **given)

    required = [parameter for parameter in own if parameter.default is inspect.Parameter.empty]
    others = [parameter for parameter in own if parameter not in required]
    with_made.__signature__ = signature.replace(parameters=[*required, *shared, *others])  # type: ignore[attr-defined]
    return with_made


def about_an_application(command: Callable[..., None], by_argument: bool = True) -> Callable[..., None]:
    """Make a command of one that takes a `target`: `[APP]`, `--app`, `--application`, `--system` and `--set` name it. `[APP]`
    comes behind the command's own arguments; it is left out without `by_argument`, where these are any number."""
    options = {name: one for name, one in _TARGET_OPTIONS.items() if by_argument or name != "app_argument"}

    def made(
        app: str | None, application: str | None, system: str | None, set_: list[str] | None, app_argument: str | None = None
    ) -> Target:
        if app_argument is not None and app is not None:
            raise typer.BadParameter("give the application's file once: as APP, or by --app")
        return target_of(app_argument or app, application, system, set_)

    return with_options(command, "target", options, made)


def not_files(ids: list[str] | None) -> list[str] | None:
    """A callback for arguments that are no files, where one may well be given in the place of `--app`."""
    for one in ids or ():
        if one.endswith(".py"):
            raise typer.BadParameter(f"{one} is a file: name the application by --app {one}")
    return ids


def target_of(app: str | None, application: str | None, system: str | None, overrides: Sequence[str] | None = None) -> Target:
    """The target that the options name; the only application of the system where they name none."""
    given = [*(overrides or ()), *_system_set(system)]
    if app is not None and application is not None:
        raise typer.BadParameter("give either the application's file or --application, not both")
    if app is not None:
        from headrace.cli.app_loading import load_app

        loaded = load_app(app, given, say)
        return Target(loaded.name, wiring.config_of(loaded, given), loaded)
    config = load_config(Path.cwd(), os.environ, {}, given)
    if application is None:
        application = _only_one(config)
    return Target(application, config)


def _only_one(config: Config) -> str:
    try:
        with wiring.open_configured(config, create=False, wait_s=wiring.LOOK_UP_WAIT_S) as system:
            known: list[str] = system.applications()
    except SetupError as error:
        fail(error.message, f"name the application's file; or {error.hint}")
    if not known:
        fail(f"no application has run on {config.system} yet", "run one with `headrace run APP`, or name another --system")
    if len(known) > 1:
        fail(f"{len(known)} applications have run on {config.system}: {', '.join(known)}", "say which: --application ID")
    return known[0]


def looked_up(system: str | None) -> Any:
    """The system of commands that need no application and change nothing, opened."""
    config = load_config(Path.cwd(), os.environ, {}, _system_set(system))
    return wiring.open_configured(config, create=False, wait_s=wiring.LOOK_UP_WAIT_S)


def system_url(system: str | None) -> str:
    """The system of commands that need no application: as requested, else as configured here."""
    return load_config(Path.cwd(), os.environ, {}, _system_set(system)).system


def _system_set(system: str | None) -> list[str]:
    if system == "":
        raise typer.BadParameter("--system: expected a URL such as log:./data or kafka://localhost:9092, found nothing")
    return [] if system is None else [f"system={system}"]


@contextmanager
def opened(target: Target) -> Iterator[JobLook]:
    """The target's job, of an application that has run; else an error that names those that have."""
    with wiring.open_configured(target.config, create=False, wait_s=wiring.LOOK_UP_WAIT_S) as system:
        is_known = system.has_run(target.application)
        look = JobLook(system, target.application)
        if not is_known or look.store.job_model() is None:
            known: list[str] = system.applications()
            near = difflib.get_close_matches(target.application, known, 3) or known
            hint = f"there are: {', '.join(near)}" if near else "run it with `headrace run APP`"
            if is_known:
                hint = "a start of it was refused, or has not come so far: start it with `headrace run APP`, which says why"
            fail(f"application {target.application!r} has not run on {target.config.system} yet", hint)
        yield look


def whole_number(least: int | None = None, most: int | None = None, or_else: str = "") -> Callable[[Any], int]:
    """A parser for an option: a whole number within these bounds, else wrong usage. `or_else`: a word that is taken too.

    >>> whole_number(1)("12")
    12
    """
    bounds = [f", at least {least:,}" if least is not None else "", f", at most {most:,}" if most is not None else ""]
    bounds += [f", or {or_else}" if or_else else ""]

    def parsed(given: Any) -> int:
        text = str(given)  # a default comes as the number that it is
        if not _WHOLE.fullmatch(text):  # int() takes 1_0, and digits of other scripts
            raise typer.BadParameter(f"expected a whole number{''.join(bounds)}, found {text!r}")
        number = int(text)
        if (least is not None and number < least) or (most is not None and number > most):
            raise typer.BadParameter(f"expected a whole number{''.join(bounds)}, found {number}")
        if not -_BEYOND <= number < _BEYOND:  # nothing counts so far
            raise typer.BadParameter(f"expected a whole number{''.join(bounds)}, of 64 bits, found {number}")
        return number

    return parsed
