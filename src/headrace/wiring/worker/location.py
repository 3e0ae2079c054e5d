"""Where this process is, and its local stores: as the configuration says (`location_id`, `local_store_dir`), evaluated in the
process that has the disk."""

from __future__ import annotations

import os
import socket
from functools import cache

from headrace.config.objects import PLACE, loaded
from headrace.core.affinity.locations import LOCATION
from headrace.errors import ConfigError

_EXPECTED = "a class with the method get_location_id(), as hr.LocationIdProvider has"
_FROM_ENVIRONMENT = "env:"


@cache
def location_of(given: str | None) -> str:
    """What `location_id` means here: None the host's name, `env:NAME` a variable of the environment, `MODULE:NAME` what a class
    says, anything else itself. `ConfigError` for what is no location."""
    title = "the host's name" if given is None else f"location_id {given!r}"
    if given is None:
        found: object = socket.gethostname()
    elif given.startswith(_FROM_ENVIRONMENT):
        found = os.environ.get(given.removeprefix(_FROM_ENVIRONMENT))
    elif PLACE.fullmatch(given):
        provider = loaded("location_id", given, "a provider of locations", _EXPECTED)
        found = provider().get_location_id()  # type: ignore[operator]
    else:
        found = given
    if not isinstance(found, str) or not LOCATION.fullmatch(found):
        said = "nothing" if found is None else repr(found)[:200]
        hint = "expected up to 200 letters, digits and any of _.:/@+-"
        raise ConfigError(f"{title} gives {said} on host {socket.gethostname()}", hint)
    return found


def local_folder_of(given: str) -> str:
    """The folder that `local_store_dir` means here: `env:NAME` is a variable of the environment. `ConfigError` where it is not
    set, or gives no absolute path."""
    if not given.startswith(_FROM_ENVIRONMENT):
        return given
    found = os.environ.get(given.removeprefix(_FROM_ENVIRONMENT), "")
    if not os.path.isabs(found):
        said = repr(found)[:200] if found else "nothing"
        raise ConfigError(f"local_store_dir {given!r} gives {said} on host {socket.gethostname()}", "expected an absolute path")
    return found
