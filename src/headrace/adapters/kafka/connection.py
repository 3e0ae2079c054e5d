"""How one set of keys, in librdkafka's spelling, becomes settings of librdkafka and of Spark's reader, a client in Java.

Both clients must reach the same broker with the same rights. Where Java has another name or form for something, it is made
here of what is given. What neither knows, librdkafka refuses by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.core.secrets import Secrets, secret_values
from headrace.errors import ConfigError

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(\d{1,5})")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FOR_US = frozenset({"replication.factor", "wait.s", "transaction.timeout.ms"})  # not for a client
_OF_TOPICS = "topic."  # kafka.topic.retention.ms and the like: of the topics that a job makes
# What exactly-once and the order of records rest on, and what is no text: never a user's to set.
_OWNED = frozenset(
    {
        "acks", "allow.auto.create.topics", "auto.commit.enable", "auto.offset.reset", "bootstrap.servers",
        "default.topic.config", "enable.auto.commit", "enable.auto.offset.store", "enable.idempotence", "enable.partition.eof",
        "group.id", "group.instance.id", "group.protocol", "isolation.level", "key.deserializer", "key.serializer", "logger",
        "metadata.broker.list", "on_commit", "on_delivery", "partition.assignment.strategy", "request.required.acks",
        "transactional.id", "value.deserializer", "value.serializer",
    }
)  # fmt: skip
_FUNCTIONS = "_cb"  # how names of librdkafka's callbacks end
# librdkafka's name of a setting, and Java's.
_IN_JAVA = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "message.max.bytes": "max.request.size",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
}
# Another name of a setting, Java's or an old one, and what to set.
_INSTEAD = {java: f"set kafka.{name}" for name, java in _IN_JAVA.items()} | {
    "compression.codec": "set kafka.compression.type",
    "sasl.jaas.config": "set kafka.sasl.username and kafka.sasl.password; for OAUTHBEARER kafka.sasl.oauthbearer.client.id, "
    ".client.secret and .token.endpoint.url; for GSSAPI kafka.sasl.kerberos.principal and .keytab",
    "sasl.mechanisms": "set kafka.sasl.mechanism",
    "ssl.keystore.certificate.chain": "set kafka.ssl.certificate.location, or the text as kafka.ssl.certificate.pem",
    "ssl.keystore.key": "set kafka.ssl.key.location, or the text as kafka.ssl.key.pem",
    "ssl.truststore.certificates": "set kafka.ssl.ca.location, or the text as kafka.ssl.ca.pem",
    "ssl.truststore.location": "set kafka.ssl.ca.location to the same certificates as PEM (keytool -exportcert -rfc makes it)",
    "ssl.truststore.password": "set kafka.ssl.ca.location to a PEM file, which has none",
    "ssl.truststore.type": "set kafka.ssl.ca.location to a PEM file",
}
# What begins so is for Spark's reader: librdkafka does not know it, or reads little and has values of ours.
_FOR_JAVA = (
    "check.crcs", "default.api.timeout.ms", "fetch.max.bytes", "fetch.message.max.bytes", "fetch.min.bytes",
    "fetch.wait.max.ms", "max.poll.records", "metric.reporters", "metrics.", "sasl.kerberos.ticket.", "sasl.login.",
    "security.providers", "socket.connection.setup.timeout.max.ms", "ssl.enabled.protocols", "ssl.keymanager.algorithm",
    "ssl.keystore.type", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
)  # fmt: skip
# What begins so is for librdkafka: Java's form of it is made below.
_FOR_LIBRDKAFKA = (
    "sasl.oauthbearer.client.", "sasl.oauthbearer.scope", "sasl.password", "sasl.username", "ssl.ca.", "ssl.certificate.",
    "ssl.key.location", "ssl.key.pem",
)  # fmt: skip
_KAFKAS = "org.apache.kafka.common.security"
_LOGIN_MODULES = {
    "PLAIN": f"{_KAFKAS}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_KAFKAS}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_KAFKAS}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_KAFKAS}.oauthbearer.OAuthBearerLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
}
_OAUTH = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}  # in JAAS, behind sasl.oauthbearer.


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
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"kafka.security.protocol {protocol!r} is not known", f"known are {', '.join(_PROTOCOLS)}")
    _check(given, protocol)
    common = {name: value for name, value in given.items() if name not in _FOR_US and not name.startswith(_OF_TOPICS)}
    client = {name: value for name, value in common.items() if not name.startswith(_FOR_JAVA)}
    java = {_IN_JAVA.get(name, name): value for name, value in common.items() if not name.startswith(_FOR_LIBRDKAFKA)}
    client["bootstrap.servers"] = java["bootstrap.servers"] = servers
    if protocol.startswith("SASL"):
        _add_login(client, java)
    if protocol.endswith("SSL"):
        _add_certificates(given, client, java)
    secrets = [*secret_values(given), *secret_values(java), *map(_escaped, secret_values(given))]
    options = {f"kafka.{name}": value for name, value in java.items()}
    options["kafka.group.id"] = _readers_group()
    return Connection(
        servers,
        client,
        options,
        {name.removeprefix(_OF_TOPICS): value for name, value in given.items() if name.startswith(_OF_TOPICS)},
        _number(given, "replication.factor", None),
        _seconds(given, "wait.s", 30.0),
        _number(given, "transaction.timeout.ms", 60_000, 1000) or 60_000,
        Secrets(secrets),
    )


def _check(given: Mapping[str, str], protocol: str) -> None:
    """`ConfigError` for a setting that is ours, that has another name here, or that would not be used (credentials)."""
    for name in sorted(given):
        if name in _OWNED or name.endswith(_FUNCTIONS):
            raise ConfigError(
                f"kafka.{name} cannot be set: Headrace sets it itself, its guarantees depend on it",
                "the address is in system=; processing_guarantee chooses between exactly_once and at_least_once",
            )
        if name in _INSTEAD:
            raise ConfigError(f"kafka.{name} is not read: it has another name here", _INSTEAD[name])
        kind = name.partition(".")[0].upper()
        if kind in ("SASL", "SSL") and kind not in protocol:
            wanted = " or ".join(one for one in _PROTOCOLS if kind in one)
            raise ConfigError(
                f"kafka.{name} is set, and kafka.security.protocol is {protocol}: it would not be used",
                f"set kafka.security.protocol to {wanted}",
            )


def _readers_group() -> str:
    """The group id of Spark's readers, which join no group: executors keep consumers by it, and build one for every read where
    there is none. Each connection has another: with a consumer they keep the records that it has fetched ahead, and know a
    topic by its name only. Under the same id a job would get those of a topic that was deleted and recreated since an earlier
    job of this process. Nor may one id be of two brokers or users: executors refuse it with other settings."""
    return f"headrace-readers-{os.urandom(6).hex()}"


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


def _add_login(client: dict[str, str], java: dict[str, str]) -> None:
    """Java's one line of JAAS, from librdkafka's credentials."""
    mechanism = client.get("sasl.mechanism")
    if mechanism is None:
        raise ConfigError("kafka.security.protocol requires SASL, but kafka.sasl.mechanism is not set", "such as PLAIN")
    if mechanism not in _LOGIN_MODULES:
        raise ConfigError(f"kafka.sasl.mechanism {mechanism!r} is not known", f"known are {', '.join(sorted(_LOGIN_MODULES))}")
    if mechanism == "GSSAPI":
        names = {"principal": "sasl.kerberos.principal", "keyTab": "sasl.kerberos.keytab"}
        login = {option: client[name] for option, name in names.items() if name in client}
        login |= {"useKeyTab": "true", "storeKey": "true"} if "keyTab" in login else {"useTicketCache": "true"}
    elif mechanism == "OAUTHBEARER":
        names = {option: f"sasl.oauthbearer.{name}" for option, name in _OAUTH.items()}
        for name in (names["clientId"], names["clientSecret"], "sasl.oauthbearer.token.endpoint.url"):
            if not client.get(name):
                raise ConfigError(
                    f"kafka.sasl.mechanism is OAUTHBEARER, and kafka.{name} is not set",
                    "set kafka.sasl.oauthbearer.token.endpoint.url, .client.id and .client.secret",
                )
        login = {option: client[name] for option, name in names.items() if client.get(name)}
        client["sasl.oauthbearer.method"] = "oidc"
        handler = f"{_KAFKAS}.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
        java.setdefault("sasl.login.callback.handler.class", handler)
    else:
        login = {name: client.get(f"sasl.{name}", "") for name in ("username", "password")}
        if not all(login.values()):
            raise ConfigError(
                f"kafka.sasl.mechanism is {mechanism}, and there is no {'password' if login['username'] else 'user'}",
                "set kafka.sasl.username and kafka.sasl.password",
            )
    options = "".join(f' {name}="{_escaped(value)}"' for name, value in login.items())
    java["sasl.jaas.config"] = f"{_LOGIN_MODULES[mechanism]} required{options};"


def _escaped(value: str) -> str:
    """A value as written between the quotes of JAAS."""
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _add_certificates(given: Mapping[str, str], client: dict[str, str], java: dict[str, str]) -> None:
    """Whom to trust and who we are. In Java, PEM is a type of store: a file of authorities, a text of a key."""
    if (checked := given.get("ssl.endpoint.identification.algorithm")) is not None:
        client["ssl.endpoint.identification.algorithm"] = checked or "none"
        java["ssl.endpoint.identification.algorithm"] = "" if checked == "none" else checked
    kind = given.get("ssl.keystore.type", "PKCS12").upper()
    if kind != "PKCS12":
        raise ConfigError(
            f"kafka.ssl.keystore.location is a {kind} file, which Python's client cannot read",
            "set kafka.ssl.keystore.type to PKCS12 for a file of that kind, or kafka.ssl.certificate.location and "
            "kafka.ssl.key.location to PEM files",
        )
    has = {part: any(f"ssl.{part}.{form}" in given for form in ("location", "pem")) for part in ("certificate", "key")}
    if has["certificate"] != has["key"]:
        named, missing = ("certificate", "key") if has["certificate"] else ("key", "certificate")
        raise ConfigError(
            f"kafka.ssl.{named}.location is set, and kafka.ssl.{missing}.location is not",
            "a certificate and its key go together",
        )
    for name in ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location"):
        if name in given and not Path(given[name]).is_file():
            raise ConfigError(
                f"kafka.{name}: there is no file {given[name]}",
                "give the path of a file that this user can read; with executors on other hosts it is there too",
            )
    if "ssl.ca.location" in given:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": given["ssl.ca.location"]}
    elif "ssl.ca.pem" in given:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": given["ssl.ca.pem"]}
    if has["key"]:
        java |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _pem(given, "ssl.certificate"),
            "ssl.keystore.key": _pem(given, "ssl.key"),
        }
    elif "ssl.keystore.location" in given:
        java["ssl.keystore.type"] = "PKCS12"


def _pem(given: Mapping[str, str], name: str) -> str:
    """The text of a certificate or a key, which is given itself or in a file."""
    path = given.get(f"{name}.location")
    return given[f"{name}.pem"] if path is None else Path(path).read_text()
