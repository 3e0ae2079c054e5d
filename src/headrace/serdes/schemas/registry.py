"""The way to a schema registry: which schema an id names, and which id a schema has. Confluent's own client speaks.

A registry is a value that travels; its client is made where it is first asked, once per process. Every wait is bounded.
Ids are for ever, so answers are kept. Passwords are in no text that is made here.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from headrace.environment import of_extra
from headrace.errors import ConfigError, RegistryError

T = TypeVar("T")
RETRIES_MAX = 2
RETRY_WAIT_MS_MAX = 2000
REFERENCES_MAX = 1000  # schemas that one schema may refer to, directly or not
_UNKNOWN_KEPT_S = 30.0  # one bad producer must not mean a request per record
_UNKNOWN_MAX = 1000
_DENIED = (401, 403)
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Reference:
    """Another schema that a schema names: its `name` there, and the subject and version where it is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as a registry has it. `kind` is AVRO, PROTOBUF or JSON."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


class UnknownSchemaError(Exception):
    """The registry answers, and has no such schema: the fault of a record or of a subject, not of the registry."""


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """Where schemas are registered: `url` (several with commas), `auth` (user, password), `options` of Confluent's client.

    A user and password in the URL are taken out of it. `timeout_s` bounds each request; three are tried. `options` are
    the client's own, such as `ssl.ca.location`.
    """

    url: str
    auth: tuple[str, str] | None = field(default=None, repr=False)
    timeout_s: float = 10.0
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        urls, found = [], self.auth
        for url in str(self.url).split(","):
            bare, auth = _without_user(url.strip())
            urls.append(bare)
            found = found or auth
        if not self.timeout_s > 0:
            raise ConfigError(f"schema registry {','.join(urls)}: timeout_s is {self.timeout_s}: expected more than 0")
        object.__setattr__(self, "url", ",".join(urls))
        object.__setattr__(self, "auth", None if found is None else tuple(found))

    def __hash__(self) -> int:
        return hash((self.url, self.auth, self.timeout_s))

    @property
    def connection(self) -> Connection:
        return _connection_of(self, os.getpid())


def _without_user(url: str) -> tuple[str, tuple[str, str] | None]:
    """The URL without its user and password, and these."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError
    except ValueError:
        raise ConfigError(  # the text itself might hold a password
            "schema registry: expected a URL such as http://host:8081, found another text",
            "give user and password as auth=(user, password)",
        ) from None
    bare = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    auth = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
    return bare, auth


class Connection:
    """The client of one process, and what it has learned. Its methods raise `UnknownSchemaError` where the registry has no such
    schema, and `RegistryError` where it does not say."""

    def __init__(self, registry: SchemaRegistry) -> None:
        with of_extra("registry", "a schema registry"):
            import confluent_kafka.schema_registry as schema_registry
        self._library = schema_registry
        self._registry = registry
        settings = {
            "url": registry.url,
            "timeout": registry.timeout_s,
            "max.retries": RETRIES_MAX,
            "retries.wait.ms": 100,
            "retries.max.wait.ms": RETRY_WAIT_MS_MAX,
            **registry.options,
        }
        if registry.auth is not None:
            settings["basic.auth.user.info"] = ":".join(registry.auth)
        try:
            self._client = schema_registry.SchemaRegistryClient(settings)
        except (ValueError, TypeError, OSError) as error:
            raise ConfigError(
                f"schema registry {registry.url}: {self._without_secrets(str(error))}",
                "check the URL, and what options= gives the client",
            ) from None
        self._schemas: dict[int, SchemaText] = {}
        self._unknown: dict[int, float] = {}
        self._ids: dict[tuple[str, SchemaText], int] = {}

    def schema_of(self, schema_id: int) -> SchemaText:
        """The schema of an id."""
        if (found := self._schemas.get(schema_id)) is not None:
            return found
        now = time.monotonic()
        if self._unknown.get(schema_id, 0.0) > now:
            raise UnknownSchemaError(f"the registry {self._registry.url} has no schema {schema_id}")
        try:
            found = _text_of(self._ask(f"schema {schema_id}", lambda client: client.get_schema(schema_id)))
        except UnknownSchemaError:
            if len(self._unknown) >= _UNKNOWN_MAX:
                self._unknown.clear()
            self._unknown[schema_id] = now + _UNKNOWN_KEPT_S
            raise
        self._schemas[schema_id] = found
        return found

    def latest(self, subject: str) -> SchemaText:
        """The newest schema of a subject."""
        return _text_of(self._ask(f"subject {subject!r}", lambda client: client.get_latest_version(subject)).schema)

    def version(self, reference: Reference) -> SchemaText:
        """The schema that a reference means."""
        subject, version = reference.subject, reference.version
        what = f"version {version} of subject {subject!r}"
        return _text_of(self._ask(what, lambda client: client.get_version(subject, version)).schema)

    def id_of(self, subject: str, schema: SchemaText, *, register: bool) -> int:
        """The id of a schema under a subject, which is registered there first if `register` is set."""
        if (known := self._ids.get((subject, schema))) is not None:
            return known
        try:
            if register:
                made = self._schema(schema)
                found = self._ask(f"the schema under subject {subject!r}", lambda client: client.register_schema(subject, made))
            else:
                found = self._registered(subject, schema).schema_id
        except UnknownSchemaError as error:
            hint = None if register else "register it before the job runs, or let the job do so: auto_register=True"
            raise RegistryError(str(error), hint) from None
        self._ids[subject, schema] = int(found)
        return int(found)

    def version_of(self, subject: str, schema: SchemaText) -> int:
        """The version that a registered schema has in its subject."""
        return int(self._registered(subject, schema).version)

    def _registered(self, subject: str, schema: SchemaText) -> Any:
        made = self._schema(schema)
        return self._ask(f"the schema under subject {subject!r}", lambda client: client.lookup_schema(subject, made))

    def _schema(self, schema: SchemaText) -> Any:
        references = [self._library.SchemaReference(each.name, each.subject, each.version) for each in schema.references]
        return self._library.Schema(schema.text, schema.kind, references)

    def _ask(self, what: str, request: Callable[[Any], T]) -> T:
        url = self._registry.url
        try:
            return request(self._client)
        except self._library.SchemaRegistryError as error:
            status, text = error.http_status_code, self._without_secrets(str(error.error_message))
            if status == _NOT_FOUND:
                raise UnknownSchemaError(f"the registry {url} has no {what.removeprefix('the ')}") from None
            hint = "check auth=(user, password) of the registry" if status in _DENIED else None
            raise RegistryError(f"schema registry {url}: the request for {what} failed with {status}: {text}", hint) from None
        except Exception as error:  # of the client's transport, whichever that is
            reason = f"{type(error).__name__}: {self._without_secrets(str(error))}".removesuffix(": ")
            raise RegistryError(
                f"schema registry {url}: no readable answer to the request for {what}: {reason}",
                f"is it running and reachable from here? Each request waits {self._registry.timeout_s:g} s (timeout_s)",
            ) from None

    def _without_secrets(self, text: str) -> str:
        secrets = [str(each) for key, each in self._registry.options.items() if "location" not in key and key != "proxy"]
        if self._registry.auth is not None:
            pair = ":".join(self._registry.auth)
            secrets += [self._registry.auth[1], base64.b64encode(pair.encode()).decode()]  # as its header has it
        for secret in secrets:
            if len(secret) > 1:
                text = text.replace(secret, "***")
        return text[:500]


@lru_cache(maxsize=32)
def _connection_of(registry: SchemaRegistry, process: int) -> Connection:
    """One per process: after a fork a socket belongs to the parent."""
    return Connection(registry)


def _text_of(schema: Any) -> SchemaText:
    references = tuple(Reference(each.name, each.subject, each.version) for each in schema.references or ())
    return SchemaText(schema.schema_type or "AVRO", schema.schema_str or "", references)
