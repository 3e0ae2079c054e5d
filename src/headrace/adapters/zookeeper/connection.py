"""How to reach ZooKeeper: `zookeeper://HOST:PORT,.../ROOT` and the settings `zookeeper.*` become what the client needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.adapters.zookeeper.tls import SETTINGS as TLS_SETTINGS
from headrace.adapters.zookeeper.tls import Tls, tls_of
from headrace.core.secrets import Secrets, secret_values
from headrace.errors import ConfigError

SCHEME = "zookeeper"
SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS_MIN = 10_000, 400
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(\d{1,5})")
_PART = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,200}")
_EXAMPLE = "such as zookeeper://localhost:2181/headrace, or zookeeper://a:2181,b:2181,c:2181/headrace for an ensemble"
_MECHANISMS = ("DIGEST-MD5", "GSSAPI", "PLAIN")
SETTINGS = (
    "connect.timeout.ms", "digest.password", "digest.username", "operation.timeout.ms", "sasl.mechanism", "sasl.password",
    "sasl.principal", "sasl.service", "sasl.username", "session.timeout.ms", *TLS_SETTINGS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach ZooKeeper. `digest`: `user:password`; `sasl`: what kazoo's client takes. Neither: nodes are open to all.
    `tls` None: none of what is sent is encrypted."""

    servers: str
    root: str
    session_timeout_s: float
    connect_timeout_s: float
    operation_timeout_s: float
    digest: str | None = field(default=None, repr=False)
    sasl: Mapping[str, str] | None = field(default=None, repr=False)
    secrets: Secrets = field(default_factory=Secrets)
    tls: Tls | None = None

    @property
    def is_protected(self) -> bool:
        return self.digest is not None or self.sasl is not None


def connection_of(url: str, zookeeper: Mapping[str, str]) -> Connection:
    """From a group's address and the `zookeeper.*` settings, without their prefix; `ConfigError` names what does not fit."""
    servers, root = _address(url)
    for name in sorted(zookeeper):
        if name not in SETTINGS:
            known = ", ".join(f"zookeeper.{one}" for one in SETTINGS)
            raise ConfigError(f"zookeeper.{name} is not known", f"known are {known}")
    digest, sasl = _digest(zookeeper), _sasl(zookeeper)
    if digest is not None and sasl is not None:
        raise ConfigError(
            "zookeeper.digest.username and zookeeper.sasl.mechanism are both set",
            "choose one: nodes can be read and written by the user who has made them",
        )
    return Connection(
        servers,
        root,
        _milliseconds(zookeeper, "session.timeout.ms", SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS_MIN) / 1000,
        _milliseconds(zookeeper, "connect.timeout.ms", 15_000, 100) / 1000,
        _milliseconds(zookeeper, "operation.timeout.ms", 5_000, 100) / 1000,
        digest,
        sasl,
        Secrets([*secret_values(zookeeper), *([digest] if digest is not None else [])]),
        tls_of(zookeeper),
    )


def _address(url: str) -> tuple[str, str]:
    """The servers and the root.

    >>> _address("zookeeper://a:2181,b:2181/headrace/test")
    ('a:2181,b:2181', '/headrace/test')
    """
    if "@" in url:  # not repeated here: the part before it may be a password
        raise ConfigError(
            "coordinator zookeeper://...@...: an address is HOST:PORT, without a user or a password in it",
            "users and passwords are the settings zookeeper.digest.* or zookeeper.sasl.*",
        )
    scheme, found, rest = url.partition("://")
    if scheme != SCHEME or not found:
        raise ConfigError(f"coordinator {url!r}: expected zookeeper://HOST:PORT/ROOT", _EXAMPLE)
    servers, _, root = rest.partition("/")
    for name in servers.split(","):
        port = _SERVER.fullmatch(name)
        if port is None or not 0 < int(port[1]) < 65536:
            raise ConfigError(f"coordinator {url!r}: {name!r} is no HOST:PORT", _EXAMPLE)
    if not root:
        raise ConfigError(f"coordinator {url!r}: there is no ROOT, the node below which groups are kept", _EXAMPLE)
    parts = root.split("/")
    for part in parts:
        if _PART.fullmatch(part) is None:
            raise ConfigError(
                f"coordinator {url!r}: {part!r} in its ROOT is no name of a node",
                "use letters, digits and any of `_.-`, with one slash between two names and none at the end",
            )
    if parts[0] == "zookeeper":
        raise ConfigError(f"coordinator {url!r}: ZooKeeper keeps /zookeeper for itself", "choose another ROOT")
    return servers, f"/{root}"


def _digest(given: Mapping[str, str]) -> str | None:
    user, password = given.get("digest.username", ""), given.get("digest.password", "")
    if not user and not password:
        return None
    if not user or not password:
        raise ConfigError(
            f"zookeeper.digest.{'password' if user else 'username'} is not set, and the other one is",
            "set zookeeper.digest.username and zookeeper.digest.password",
        )
    if ":" in user:
        raise ConfigError("zookeeper.digest.username holds a colon, which ends a name in ZooKeeper", "choose another user")
    return f"{user}:{password}"


def _sasl(given: Mapping[str, str]) -> dict[str, str] | None:
    mechanism = given.get("sasl.mechanism")
    options = {name.removeprefix("sasl."): value for name, value in given.items() if name.startswith("sasl.")}
    if mechanism is None:
        if options:
            raise ConfigError(
                f"zookeeper.sasl.{min(options)} is set, and zookeeper.sasl.mechanism is not", "such as DIGEST-MD5"
            )
        return None
    if mechanism not in _MECHANISMS:
        raise ConfigError(f"zookeeper.sasl.mechanism {mechanism!r} is not known", f"known are {', '.join(_MECHANISMS)}")
    if mechanism != "GSSAPI" and not (options.get("username") and options.get("password")):
        missing = "password" if options.get("username") else "username"
        raise ConfigError(
            f"zookeeper.sasl.mechanism is {mechanism}, and zookeeper.sasl.{missing} is not set",
            "set zookeeper.sasl.username and zookeeper.sasl.password",
        )
    return options


def _milliseconds(given: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ConfigError(
            f"zookeeper.{name} = {text!r}: expected a number of milliseconds of at least {least}", f"unset it is {default}"
        )
    return int(text)
