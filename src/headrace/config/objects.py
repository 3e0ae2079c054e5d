"""Objects of users' own that the configuration names, as MODULE:NAME."""

from __future__ import annotations

import importlib
import re
from typing import Any

from headrace.core.job_plan.grouper_calls import raised_text
from headrace.errors import ConfigError

PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def loaded(key: str, place: str, what: str, expected: str) -> object:
    """The object at `place`, which the configuration key `key` names. `what` it is to be and what is `expected` of it are for
    messages; `ConfigError` where there is no such module or name, and where importing it ends the process."""
    module_name, _, path = place.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # it is there, and what it imports is not
        raise ConfigError(
            f"{key} {place!r}: there is no module {error.name!r}",
            "name it as an import statement would; the folder of the application's file is looked through too",
        ) from None
    except SystemExit as error:
        raise ConfigError(
            f"{key} {place!r}: importing module {module_name!r} raised {raised_text(error)}",
            f"a module with {what} must not end the process: put what it does as a program under __name__ == '__main__'",
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"{key} {place!r}: module {module_name!r} has no {path!r}", f"expected {expected}")
        found = getattr(found, name)
    return found
