"""How one set of keys, in the spelling of Kafka's Java client, becomes settings of librdkafka and of Spark's reader.

Both clients must reach the same broker with the same rights. Where the two differ in what they can read (a trust store of
Java, a file of PEM), one form that both take is made from what is given, or the missing key is named.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.adapters.kafka import jaas
from headrace.adapters.kafka.settings import MADE, OWN_KEYS, PROTOCOLS, SHARED, TOPIC_PREFIX, WRITER, check_known
from headrace.core.secrets import Secrets, secret_values
from headrace.errors import ConfigError

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(\d{1,5})")


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a broker. `client` are librdkafka's settings, `spark_options` those of Spark's reader."""

    servers: str
    client: Mapping[str, str] = field(repr=False)
    spark_options: Mapping[str, str] = field(repr=False)
    topic_settings: Mapping[str, str]
    replication_factor: int | None
    wait_s: float
    transaction_timeout_ms: int
    secrets: Secrets


def servers_of(url: str) -> str:
    """The bootstrap servers in `kafka://host:port,host:port`; `ConfigError` for anything else.

    >>> servers_of("kafka://a:9092,b:9092")
    'a:9092,b:9092'
    """
    scheme, found, rest = url.partition("://")
    names = rest.rstrip("/").split(",")
    if "@" in url:  # not repeated here: the part before it may be a password
        raise ConfigError(
            "system kafka://...@...: an address is HOST:PORT, without a user or a password in it",
            "users and passwords are the settings kafka.sasl.username and kafka.sasl.password",
        )
    if scheme != "kafka" or not found or not rest:
        raise ConfigError(f"system {url!r}: expected kafka://HOST:PORT", "such as kafka://localhost:9092")
    for name in names:
        port = _SERVER.fullmatch(name)
        if port is None or not 0 < int(port[1]) < 65536:
            raise ConfigError(
                f"system {url!r}: {name!r} is no HOST:PORT",
                "such as kafka://localhost:9092,localhost:9093; users and passwords are kafka.sasl.* settings",
            )
    return ",".join(names)


def connection_of(url: str, kafka: Mapping[str, str]) -> Connection:
    """From a system's URL and the `kafka.*` settings, without their prefix; `ConfigError` names what does not fit."""
    servers = servers_of(url)
    given = {name: str(value) for name, value in kafka.items()}
    check_known(given, _protocol(given))
    common = {name: value for name, value in given.items() if name not in OWN_KEYS and not name.startswith(TOPIC_PREFIX)}
    client = {"bootstrap.servers": servers} | {name: value for name, value in common.items() if name in SHARED}
    client |= {WRITER[name]: value for name, value in common.items() if name in WRITER}
    java = {name: value for name, value in common.items() if name not in MADE and name not in WRITER}
    java["bootstrap.servers"] = servers
    secret = list(secret_values(given))
    protocol = _protocol(given)
    if protocol.startswith("SASL"):
        secret += _sasl(given, client, java)
    if protocol.endswith("SSL"):
        secret += _ssl(given, client, java)
    options = {f"kafka.{name}": value for name, value in java.items()}
    options.setdefault("kafka.group.id", _readers_group(options))
    return Connection(
        servers,
        client,
        options,
        {name.removeprefix(TOPIC_PREFIX): value for name, value in given.items() if name.startswith(TOPIC_PREFIX)},
        _number(given, "replication.factor", None),
        _seconds(given, "wait.s", 30.0),
        _number(given, "transaction.timeout.ms", 60_000, 1000) or 60_000,
        Secrets(secret),
    )


_SALT = os.urandom(16)  # the name that is made of settings tells nothing of a password in them


def _readers_group(options: Mapping[str, str]) -> str:
    """The group id of Spark's readers, which join no group: executors keep consumers by it.

    Without one they build a consumer for every read. And they refuse one of the same topic and group with other settings:
    another broker, or another user's.
    """
    text = "\n".join(f"{name}={value}" for name, value in sorted(options.items()))
    return f"headrace-readers-{hashlib.blake2b(text.encode(), key=_SALT, digest_size=6).hexdigest()}"


def _number(given: Mapping[str, str], name: str, default: int | None, least: int = 1) -> int | None:
    text = given.get(name)
    if text is None:
        return default
    if not text.isdigit() or int(text) < least:
        raise ConfigError(f"kafka.{name} = {text!r}: expected a number of at least {least}")
    return int(text)


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    text = given.get(name, str(default))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ConfigError(f"kafka.{name} = {text!r}: expected a number of seconds")
    return seconds


def _protocol(given: Mapping[str, str]) -> str:
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"kafka.security.protocol {protocol!r} is not known", f"known are {', '.join(PROTOCOLS)}")
    return protocol


def _sasl(given: Mapping[str, str], client: dict[str, str], java: dict[str, str]) -> list[str]:
    """Credentials, in both spellings; what of them is secret."""
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms")
    if mechanism is None:
        raise ConfigError("kafka.security.protocol requires SASL, but kafka.sasl.mechanism is not set", "such as PLAIN")
    java.pop("sasl.mechanisms", None)
    java["sasl.mechanism"] = client["sasl.mechanism"] = mechanism
    if mechanism == "GSSAPI":
        kerberos = {name: given[name] for name in ("sasl.kerberos.principal", "sasl.kerberos.keytab") if name in given}
        client |= kerberos  # Java's has them in its JAAS text, or from the ticket
        for name in kerberos:
            java.pop(name, None)
        return []
    login = jaas.parsed(given["sasl.jaas.config"]) if "sasl.jaas.config" in given else None
    if mechanism == "OAUTHBEARER":
        return _oauth(given, login, client, java)
    if mechanism not in jaas.MODULES:
        raise ConfigError(f"kafka.sasl.mechanism {mechanism!r} is not known", f"known are {', '.join(sorted(jaas.MODULES))}")
    user = given.get("sasl.username") or (login.options.get("username") if login else None)
    password = given.get("sasl.password") or (login.options.get("password") if login else None)
    if not user or not password:
        raise ConfigError(
            f"kafka.sasl.mechanism is {mechanism}, and there is no {'password' if user else 'user'}",
            "set kafka.sasl.username and kafka.sasl.password, or kafka.sasl.jaas.config",
        )
    client |= {"sasl.username": user, "sasl.password": password}
    java["sasl.jaas.config"] = jaas.written(jaas.Jaas(jaas.MODULES[mechanism], {"username": user, "password": password}))
    return [password, java["sasl.jaas.config"], jaas.escaped(password)]


def _oauth(
    given: Mapping[str, str], login: jaas.Jaas | None, client: dict[str, str], java: dict[str, str]
) -> list[str]:
    """The client-credentials flow, which both clients have."""
    options = dict(login.options) if login else {}
    wanted = {
        "clientId": given.get("sasl.oauthbearer.client.id") or options.get("clientId"),
        "clientSecret": given.get("sasl.oauthbearer.client.secret") or options.get("clientSecret"),
    }
    scope = given.get("sasl.oauthbearer.scope") or options.get("scope")
    endpoint = given.get("sasl.oauthbearer.token.endpoint.url")
    missing = [name for name, value in {**wanted, "kafka.sasl.oauthbearer.token.endpoint.url": endpoint}.items() if not value]
    if missing:
        raise ConfigError(
            f"kafka.sasl.mechanism is OAUTHBEARER, and {missing[0]} is not set",
            "set kafka.sasl.oauthbearer.token.endpoint.url, .client.id and .client.secret",
        )
    settings = {name: str(value) for name, value in wanted.items()} | ({"scope": scope} if scope else {})
    client |= {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": settings["clientId"],
        "sasl.oauthbearer.client.secret": settings["clientSecret"],
        "sasl.oauthbearer.token.endpoint.url": str(endpoint),
        **({"sasl.oauthbearer.scope": scope} if scope else {}),
    }
    for name in ("client.id", "client.secret", "scope"):
        java.pop(f"sasl.oauthbearer.{name}", None)
    java["sasl.jaas.config"] = jaas.written(jaas.Jaas(jaas.MODULES["OAUTHBEARER"], settings))
    java.setdefault(
        "sasl.login.callback.handler.class",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    )
    return [settings["clientSecret"], java["sasl.jaas.config"], jaas.escaped(settings["clientSecret"])]


def _ssl(given: Mapping[str, str], client: dict[str, str], java: dict[str, str]) -> list[str]:
    """Whom to trust and who we are, in both spellings; what of it is secret."""
    if "ssl.endpoint.identification.algorithm" in given:
        client["ssl.endpoint.identification.algorithm"] = given["ssl.endpoint.identification.algorithm"] or "none"
    _trust(given, client, java)
    return _identity(given, client, java)


def _trust(given: Mapping[str, str], client: dict[str, str], java: dict[str, str]) -> None:
    authority = given.get("ssl.ca.location")
    store, kind = given.get("ssl.truststore.location"), given.get("ssl.truststore.type", "JKS").upper()
    if authority is None and store is not None and kind == "PEM":
        authority = store
    if authority is None and store is not None:
        raise ConfigError(
            f"kafka.ssl.truststore.location is a {kind} file, which Python's client cannot read",
            "set kafka.ssl.ca.location to the same certificates as PEM (keytool -exportcert -rfc makes it)",
        )
    if authority is None:
        if "ssl.truststore.certificates" in given:
            client["ssl.ca.pem"] = given["ssl.truststore.certificates"]
        return
    client["ssl.ca.location"] = _file("ssl.ca.location", authority)
    if store is None:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}


def _identity(given: Mapping[str, str], client: dict[str, str], java: dict[str, str]) -> list[str]:
    certificate, key = given.get("ssl.certificate.location"), given.get("ssl.key.location")
    store, kind = given.get("ssl.keystore.location"), given.get("ssl.keystore.type", "JKS").upper()
    password = given.get("ssl.key.password")
    if (certificate is None) != (key is None):
        named, missing = ("ssl.certificate", "ssl.key") if key is None else ("ssl.key", "ssl.certificate")
        raise ConfigError(
            f"kafka.{named}.location is set, and kafka.{missing}.location is not", "a certificate and its key go together"
        )
    if certificate is not None and key is not None:
        client |= {"ssl.certificate.location": _file("ssl.certificate.location", certificate)}
        client |= {"ssl.key.location": _file("ssl.key.location", key)}
        if password is not None:
            client["ssl.key.password"] = password
        if store is None:
            java |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": Path(certificate).read_text(),
                "ssl.keystore.key": Path(key).read_text(),
            }
            return [java["ssl.keystore.key"]]
        return []
    if store is None and "ssl.keystore.key" in given:
        client |= {"ssl.key.pem": given["ssl.keystore.key"]}
        client |= {"ssl.certificate.pem": given.get("ssl.keystore.certificate.chain", "")}
        if password is not None:
            client["ssl.key.password"] = password
        return []
    if store is None:
        return []
    if kind == "PKCS12":
        client["ssl.keystore.location"] = _file("ssl.keystore.location", store)
        client["ssl.keystore.password"] = given.get("ssl.keystore.password", "")
    elif kind == "PEM":
        client |= {"ssl.certificate.location": _file("ssl.keystore.location", store), "ssl.key.location": store}
        if password is not None:
            client["ssl.key.password"] = password
    else:
        raise ConfigError(
            f"kafka.ssl.keystore.location is a {kind} file, which Python's client cannot read",
            "set kafka.ssl.keystore.type to PKCS12 or PEM for a file of that kind, or kafka.ssl.certificate.location and "
            "kafka.ssl.key.location to PEM files",
        )
    return []


def _file(name: str, path: str) -> str:
    if not Path(path).is_file():
        raise ConfigError(f"kafka.{name}: there is no file {path}")
    return path
