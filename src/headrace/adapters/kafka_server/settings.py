"""A broker's settings: the text of its `server.properties`. Pure: folders, ports and users come as arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Security = Literal["plaintext", "sasl_ssl", "ssl"]
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
HOST = "127.0.0.1"  # nothing here is ever reached from another machine
_LOGIN_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """The loopback ports of one broker: for clients, for its fellows (never secured), and of the controller."""

    client: int
    internal: int
    controller: int


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of a listener with TLS, and the password that opens its stores; `ca_pem` is whom clients are to trust."""

    ca_pem: Path
    key_store: Path
    trust_store: Path
    client_key_store: Path
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What all brokers of a cluster have in common; `ports` by node id, from 1."""

    ports: Mapping[int, BrokerPorts]
    security: Security
    users: Mapping[str, str] = field(repr=False)  # name to password
    tls: TlsFiles | None
    properties: Mapping[str, str]


def server_properties(plan: ClusterPlan, node_id: int, data_dir: Path) -> dict[str, str]:
    """The properties of one broker, which is a controller too; `plan.properties` win over all of ours."""
    ports = plan.ports[node_id]
    replicas = str(min(3, len(plan.ports)))
    least_in_sync = "2" if len(plan.ports) >= 3 else "1"
    voters = ",".join(f"{node}@{HOST}:{one.controller}" for node, one in sorted(plan.ports.items()))
    reached = f"CLIENT://{HOST}:{ports.client},INTERNAL://{HOST}:{ports.internal}"
    ours = {
        "node.id": str(node_id),
        "process.roles": "broker,controller",
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listeners": f"{reached},CONTROLLER://{HOST}:{ports.controller}",
        "advertised.listeners": reached,
        "listener.security.protocol.map": f"CLIENT:{plan.security.upper()},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data_dir),
        "log.retention.ms": "-1",  # by the time of records: a week, Kafka's own, would take what was recorded last year
        "auto.create.topics.enable": "false",  # a name with a slip in it is an error, not a new topic
        "default.replication.factor": replicas,
        "min.insync.replicas": least_in_sync,
        # few partitions and no waits: a topic of 50 partitions takes seconds to come up on a small machine
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": least_in_sync,
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": least_in_sync,
        "group.initial.rebalance.delay.ms": "0",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # a killed broker may come back as soon as its old session has ended
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
        # each open segment has two indexes of this size: at Kafka's own 10 MB a thousand partitions map 20 GB
        "log.index.size.max.bytes": str(1 << 20),
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "4",
    }
    return ours | _listener_properties(plan) | dict(plan.properties)


def as_text(properties: Mapping[str, str]) -> str:
    """In Java's form: a backslash would begin an escape, a line break a new property.

    >>> as_text({"log.dirs": "/tmp/a", "x": "a\\\\b"})
    'log.dirs=/tmp/a\\nx=a\\\\\\\\b\\n'
    """
    escaped = {name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in properties.items()}
    return "".join(f"{name}={value}\n" for name, value in escaped.items())


def scram_arguments(users: Mapping[str, str]) -> Sequence[str]:
    """The arguments of the storage's `format`, so that the users are there before the first start."""
    return [
        argument
        for name, password in sorted(users.items())
        for mechanism in SCRAM_MECHANISMS
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]


def _listener_properties(plan: ClusterPlan) -> dict[str, str]:
    if plan.tls is None:
        return {}
    prefix = "listener.name.client"
    found = {
        f"{prefix}.ssl.keystore.type": "PKCS12",
        f"{prefix}.ssl.keystore.location": str(plan.tls.key_store),
        f"{prefix}.ssl.keystore.password": plan.tls.password,
        f"{prefix}.ssl.truststore.type": "PKCS12",
        f"{prefix}.ssl.truststore.location": str(plan.tls.trust_store),
        f"{prefix}.ssl.truststore.password": plan.tls.password,
        f"{prefix}.ssl.client.auth": "required" if plan.security == "ssl" else "none",
    }
    if plan.security == "sasl_ssl":
        users = " ".join(f'user_{name}="{password}"' for name, password in sorted(plan.users.items()))
        found[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(("PLAIN", *SCRAM_MECHANISMS))
        found[f"{prefix}.plain.sasl.jaas.config"] = f"{_LOGIN_MODULES}.plain.PlainLoginModule required {users};"
        for mechanism in SCRAM_MECHANISMS:
            name = f"{prefix}.{mechanism.lower()}.sasl.jaas.config"
            found[name] = f"{_LOGIN_MODULES}.scram.ScramLoginModule required;"
    return found
