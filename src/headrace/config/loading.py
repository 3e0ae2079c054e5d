"""How the five places that may set a configuration key are read, checked and merged."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from headrace.config.keys import KEYS, PASSED_THROUGH, VARIABLE_PREFIX, Config
from headrace.core.keys.key_layout import SLOTS
from headrace.errors import ConfigError, NotSupportedError

__all__ = ["KEYS", "Config", "load_config", "refuse_reserved"]

FILE_NAME = "headrace.toml"
_SHOWN_MAX = 200
IGNORED_VARIABLE_PREFIXES = ("HEADRACE_TEST_",)  # switches of the test suite, no configuration


def load_config(
    app_dir: Path | None,
    environ: Mapping[str, str],
    app_arguments: Mapping[str, Any],
    overrides: Sequence[str] = (),
) -> Config:
    """The settings of one application, each from the last of these that sets it: the defaults, `headrace.toml` in
    `app_dir`, HEADRACE_* in `environ`, `app_arguments` (names may have dots, values may be tables, None is unset), and
    `overrides` as `key=value`.

    `ConfigError` for an unknown key, a wrong type or value and a file that is no TOML, naming where it was set.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, value, origin, is_text in _settings(app_dir, environ, app_arguments, overrides):
        values[name] = _checked(name, value, origin, is_text)
        origins[name] = origin
    common: dict[str, Any] = {group: {} for group in PASSED_THROUGH}
    own: dict[str, Any] = {}
    for name, value in values.items():
        group, dot, rest = name.partition(".")
        if group in PASSED_THROUGH:
            common[group][rest] = value
        else:
            (own if dot else common)[name] = value
    config = Config(**common, own_values=own, origins=origins)
    _check_elasticity(config)
    _check_autosizing(config)
    return config


def _settings(
    app_dir: Path | None, environ: Mapping[str, str], app_arguments: Mapping[str, Any], overrides: Sequence[str]
) -> Iterator[tuple[str, Any, str, bool]]:
    """What was set, in rising order of precedence: name, value, where, and whether the value is text to be read."""
    if app_dir is not None:
        for name, value in _flat(_table_in(app_dir / FILE_NAME)):
            yield name, value, str(app_dir / FILE_NAME), False
    for variable in sorted(environ):
        if variable.startswith(VARIABLE_PREFIX) and not variable.startswith(IGNORED_VARIABLE_PREFIXES):
            yield _name_of(variable), environ[variable], f"environment variable {variable}", True
    for name, value in _flat(app_arguments):
        if value is not None:
            yield name, value, "App(...)", False
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set {override}: expected KEY=VALUE", "for instance --set max_round_ms=5000")
        yield name.strip(), text.strip(), f"--set {name.strip()}", True


def _table_in(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}", "fix that line, or remove the file") from None
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror or error}",
            "make it readable for the user who runs Headrace, or remove it",
        ) from None


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Tables as dotted names: {"kafka": {"client": {"id": 1}}} gives ("kafka.client.id", 1)."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _name_of(variable: str) -> str:
    """The key that a variable sets: two underscores are a dot. What is in capitals throughout is taken as lower case.

    >>> _name_of("HEADRACE_MAX_ROUND_MS"), _name_of("HEADRACE_SPARK__sql__maxToStringFields")
    ('max_round_ms', 'spark.sql.maxToStringFields')
    """
    group, dot, rest = variable.removeprefix(VARIABLE_PREFIX).replace("__", ".").partition(".")
    return group.lower() + dot + (rest.lower() if rest == rest.upper() else rest)


def _checked(name: str, value: Any, origin: str, is_text: bool) -> Any:
    """`value` as the key's own type."""
    group, dot, rest = name.partition(".")
    if dot and rest and group in PASSED_THROUGH:
        return _passed_on(name, value, origin)
    key = KEYS.get(group)
    if key is None or (dot and not (rest and key.per_sub_topology)):
        _refuse_unknown(name, origin)
    if key.takes and (callable(value) or hasattr(value, key.method)):  # the driver checks it
        return value
    if is_text and key.type is not str:
        value = _number(value, key.type)
    if key.type is float and type(value) is int:
        value = float(value)
    fits = type(value) is key.type and value != ""  # not isinstance: True is an int, and no count
    fits = fits and not (isinstance(value, str) and "\0" in value)  # no path and no address has one
    fits = fits and not (key.type is float and not math.isfinite(value))
    if not fits or (key.choices and value not in key.choices) or (key.least is not None and value < key.least):
        close = difflib.get_close_matches(str(value), key.choices, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"{key.name}: {key.meaning}"
        raise ConfigError(f"{name} ({origin}): expected {key.expected}, found {_shown(value)}", hint)
    if key.type is not str and value > key.most:
        expected = f"expected at most {key.most:,}"
        raise ConfigError(f"{name} ({origin}): {expected}, found {_shown(value)}", f"{key.name}: {key.meaning}")
    return value


def _shown(value: Any) -> str:
    """A refused value, short enough for a message."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}… ({len(text):,} characters)"


def _number(text: str, kind: type) -> Any:
    """`text` as a number, or as it is where it is none: the check that follows reports it."""
    try:
        return kind(text)
    except ValueError:
        return text


def _passed_on(name: str, value: Any, origin: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() if re.search("[\0\ud800-\udfff]", value):
            raise ConfigError(f"{name} ({origin}): found bytes that are no UTF-8, or a null", "write it as UTF-8 text")
        case str() | int() | float():
            return str(value)
    # the value is not shown: it may be a secret
    raise ConfigError(f"{name} ({origin}): expected a text, a number or true/false, found {type(value).__name__}")


def _refuse_unknown(name: str, origin: str) -> NoReturn:
    group, dot, rest = name.partition(".")
    if dot and group in KEYS:
        able = ", ".join(f"{key.name}.<sub-topology>" for key in KEYS.values() if key.per_sub_topology)
        raise ConfigError(f"{name} ({origin}): {group} has no value for one sub-topology", f"these have: {able}")
    if name in PASSED_THROUGH or (group in PASSED_THROUGH and not rest):
        raise ConfigError(f"{name} ({origin}): expected a setting of {group}'s own, as {group}.NAME")
    close = difflib.get_close_matches(group.lower(), [*KEYS, *PASSED_THROUGH], 1, cutoff=0.5)
    hint = f"did you mean {close[0] + dot + rest!r}?" if close else f"the keys are {', '.join(KEYS)}"
    raise ConfigError(f"{name} ({origin}): there is no such configuration key", hint)


def _origin(config: Config, key: str) -> str:
    return config.origins.get(key, "default")


_FACTORS = ("elasticity_factor", "autosizing_factor_min", "autosizing_factor_max")


def _check_elasticity(config: Config) -> None:
    for name in config:
        if name.partition(".")[0] not in _FACTORS:
            continue
        factor, where = config[name], _origin(config, name)
        if factor & (factor - 1):
            low = 1 << (factor.bit_length() - 1)
            hint = f"the nearest are {low} and {2 * low}"
            raise ConfigError(f"{name} ({where}): expected a power of two, found {factor}", hint)
        if factor > SLOTS:
            raise ConfigError(f"{name} ({where}): expected at most {SLOTS:,}, found {factor:,}", "give a power of two")


def _check_autosizing(config: Config) -> None:
    """Each sub-topology with a value of its own has bounds of its own."""
    for sub_topology in sorted({"", *(name.partition(".")[2] for name in config.own_values)}):
        for low, high in (("factor_min", "factor_max"), ("containers_min", "containers_max")):
            names = [f"autosizing_{name}.{sub_topology}" for name in (low, high)]
            shown = [name if name in config.own_values else name.partition(".")[0] for name in names]
            least, most = (config[name] for name in shown)
            if most is not None and least > most:
                raise ConfigError(
                    f"{shown[0]} ({_origin(config, shown[0])}): expected at most {shown[1]}, {most}, found {least}",
                    f"change it, or {shown[1]} ({_origin(config, shown[1])})",
                )


def refuse_reserved(config: Config, *, is_whole: bool) -> None:
    """`NotSupportedError` for a key that is reserved so far and is set. `is_whole`: all places that set keys were read. If they
    were not, the job's system may be said elsewhere, and a metadata store in another system is refused only where `config` says
    both, or where it is no system at all."""
    if config.check_partitioning != "off":
        raise NotSupportedError(
            f"check_partitioning = {config.check_partitioning!r} ({_origin(config, 'check_partitioning')}): jobs do not "
            "sample keys",
            "remove it; `headrace stream check NAME [APP]` samples the keys of a stream, whether a job runs or not",
        )
    store = config.metadata_store
    knows_system = is_whole or "system" in config.origins
    if (knows_system or not isinstance(store, str)) and store not in (None, config.system):
        expected = f"unset, or {config.system!r}" if knows_system else "unset"
        raise NotSupportedError(
            f"metadata_store = {store!r} ({_origin(config, 'metadata_store')}): expected {expected}: one "
            "transaction of the job's own system holds job model and checkpoints together",
            "leave it unset; startpoint_metadata_store says where startpoints are requested, a class of your own too",
        )
