"""Which `kafka.*` settings there are, and which client takes each: others are refused, with the nearest name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from headrace.errors import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OWN_KEYS = frozenset({"replication.factor", "wait.s", "transaction.timeout.ms"})  # for us, not for a client
# What exactly-once and the order of records rest on: never a user's to set.
HELD_KEYS = frozenset(
    {
        "isolation.level",
        "group.id",
        "group.instance.id",
        "enable.auto.commit",
        "auto.offset.reset",
        "transactional.id",
        "enable.idempotence",
        "acks",
        "bootstrap.servers",
        "key.serializer",
        "value.serializer",
        "key.deserializer",
        "value.deserializer",
    }
)
TOPIC_PREFIX = "topic."  # kafka.topic.retention.ms and the like: of the topics that a job makes

# What both clients know under one name.
SHARED = frozenset(
    {
        "client.id",
        "client.rack",
        "security.protocol",
        "metadata.max.age.ms",
        "connections.max.idle.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "request.timeout.ms",
        "socket.connection.setup.timeout.ms",
        "sasl.kerberos.service.name",
        "client.dns.lookup",
    }
)
# Those of Spark's reader alone, a consumer in Java: what it reads with beside how it reaches the broker.
READER = frozenset(
    {
        "check.crcs",
        "default.api.timeout.ms",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "interceptor.classes",
        "max.partition.fetch.bytes",
        "max.poll.records",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "security.providers",
        "socket.connection.setup.timeout.max.ms",
    }
)
# Those of what writes alone, in librdkafka's spelling where it has another.
WRITER = {
    "batch.size": "batch.size",
    "compression.level": "compression.level",
    "compression.type": "compression.type",
    "linger.ms": "linger.ms",
    "max.request.size": "message.max.bytes",
    "message.max.bytes": "message.max.bytes",
}
# Who we are and whom we trust: each client has its own way, see below.
SECURITY = frozenset(
    {
        "sasl.jaas.config",
        "sasl.kerberos.keytab",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keymanager.algorithm",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
# librdkafka's own that stand for something of Java's, made below.
MADE = frozenset({"sasl.username", "sasl.password", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"})


def check_known(given: Mapping[str, str], protocol: str) -> None:
    """`ConfigError` for a setting that is ours, that no client has, or that would not be used (credentials)."""
    held = sorted(HELD_KEYS.intersection(given))
    if held:
        raise ConfigError(
            f"kafka.{held[0]} cannot be set: Headrace sets it itself, its guarantees depend on it",
            "the address is in system=; processing_guarantee chooses between exactly_once and at_least_once",
        )
    known = SHARED | READER | WRITER.keys() | OWN_KEYS
    for name in sorted(given):
        if name.startswith(TOPIC_PREFIX) or name in known:
            continue
        if name not in SECURITY:
            near = difflib.get_close_matches(name, [*known, *SECURITY], 1)
            raise ConfigError(
                f"kafka.{name} is no setting that Headrace knows",
                f"did you mean kafka.{near[0]}?" if near else "settings are spelled as Kafka's Java client spells them",
            )
        kind = name.partition(".")[0].upper()
        if kind not in protocol:
            wanted = " or ".join(one for one in PROTOCOLS if kind in one)
            raise ConfigError(
                f"kafka.{name} is set, and kafka.security.protocol is {protocol}: it would not be used",
                f"set kafka.security.protocol to {wanted}",
            )
