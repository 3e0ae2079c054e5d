"""Writes the page of configuration keys from the keys themselves: `configuration_page.py docs/configuration.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.config.key_form import Key
from headrace.config.keys import KEYS

_HEAD = """\
# Configuration

<!-- Made by `make docs` from headrace.config.keys: edit the keys there, not this page. -->

A key may be set in five places. The later one wins:

1. the default below
2. `headrace.toml` in the folder of the application: that of the file that makes the `App`, or that a command is given
3. an environment variable: `HEADRACE_` and the key in capitals, with two underscores for a dot
   (`HEADRACE_CONTAINERS__views` is `containers.views`)
4. an argument of `App(...)`, or its `config={"containers.views": 2}` for names with a dot
5. `--set key=value` on the command line

The last part of a name is the unit: `_ms` is milliseconds, `_s` seconds. An unknown key is an error that names the
closest known key and where the unknown one was set.

```toml
# headrace.toml
system = "log:./data"
max_round_ms = 10_000
"containers.by-carrier" = 2

[spark.driver]
memory = "2g"
```

| key | values | default | meaning |
|---|---|---|---|
"""

_TAIL = """
`containers.<sub-topology>` and the like apply to one sub-topology: `source` is the one that reads the external inputs,
`headrace describe` shows the names of the others.

`kafka.*` and `spark.*` are passed to Kafka's clients and to Spark: `kafka.client.id` sets `client.id`,
`spark.driver.memory` sets `spark.driver.memory`; `zookeeper.*` is for [groups](#zookeeper). Passwords and other secrets are never shown: not in logs, errors, `status`,
Spark's UI or Spark's event log.

## `kafka.*`

One set of keys, in the spelling of [librdkafka](https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md),
configures both clients: librdkafka, and Spark's reader (Java). Headrace translates a key that Java spells differently.

| key | meaning |
|---|---|
| `kafka.security.protocol` | `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`. |
| `kafka.sasl.mechanism` | `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`. |
| `kafka.sasl.username`, `kafka.sasl.password` | The user's credentials. Java's `sasl.jaas.config` is made of them. |
| `kafka.sasl.oauthbearer.token.endpoint.url`, `.client.id`, `.client.secret`, `.scope` | For `OAUTHBEARER`: the token endpoint and its credentials. |
| `kafka.ssl.ca.location` | CA certificates that are trusted: a PEM file. |
| `kafka.ssl.keystore.location`, `.password` | The client's certificate, for brokers that require one: a PKCS12 file; or `kafka.ssl.certificate.location` and `kafka.ssl.key.location` in PEM, with `kafka.ssl.key.password`. |
| `kafka.transaction.timeout.ms` | How long a container's transaction may stay open; default 60000. A round ends early at a third of it. The maximum is the broker's `transaction.max.timeout.ms`. |
| `kafka.wait.s` | How many seconds a request is retried while the cluster does not answer; default 30. A running job keeps waiting for 5 minutes and logs it. |
| `kafka.replication.factor` | Replication factor of the topics that a job creates; default: 3, or the number of brokers if lower. |
| `kafka.topic.*` | Settings of the topics that a job creates, such as `kafka.topic.retention.ms` or `kafka.topic.min.insync.replicas`. Some cannot be changed: `<application>-metadata` and `-checkpoints` are compacted, and repartition topics have no retention by age or size, because the job purges records once they are read. |

Any other key is passed to both clients; one that librdkafka does not know is an error. What the guarantees depend on, such as `acks`,
`isolation.level` or `transactional.id`, cannot be set.

## `zookeeper.*`

How a processor of a group reaches the ensemble that `coordinator` names. Any other name below `zookeeper.` is an error.

| key | meaning |
|---|---|
| `zookeeper.session.timeout.ms` | How long a processor may be silent until its session ends and its tasks move; default 10000, at least 400. The server may grant another within its own bounds. A processor without an answer stops working after two thirds of it. |
| `zookeeper.connect.timeout.ms` | How long a start waits for a server; default 15000. |
| `zookeeper.operation.timeout.ms` | How long a request waits for its answer; default 5000. |
| `zookeeper.digest.username`, `zookeeper.digest.password` | The user who alone may read and write the nodes of the group, by ZooKeeper's scheme `digest`. |
| `zookeeper.sasl.mechanism` | `DIGEST-MD5`, `GSSAPI` or `PLAIN`: the same by SASL, instead of `zookeeper.digest.*`. |
| `zookeeper.sasl.username`, `zookeeper.sasl.password` | The credentials, for `DIGEST-MD5` and `PLAIN`. |
| `zookeeper.sasl.principal`, `zookeeper.sasl.service` | The client's principal, and the service of the servers' principal, for `GSSAPI`. |
| `zookeeper.ssl.enabled` | `true`: by TLS, at the servers' `secureClientPort`; unset: nothing is encrypted. |
| `zookeeper.ssl.ca.location` | CA certificates that are trusted, and no others: a PEM file; unset: those that this machine trusts. |
| `zookeeper.ssl.endpoint.identification.algorithm` | `https`, the default: the certificate of a server must be for its host in `coordinator`; `none`: any host's. |
| `zookeeper.ssl.certificate.location`, `zookeeper.ssl.key.location`, `zookeeper.ssl.key.password` | The client's certificate and its key in PEM, for servers that require one (ZooKeeper's default, `ssl.clientAuth=need`), and the password of an encrypted key. |

## Names of variables

In a variable's name, a part after the first dot that is all capitals is read as lower case; any other part keeps its case,
as `HEADRACE_SPARK__sql__maxToStringFields` requires.
"""


def page() -> str:
    """The whole page, as Markdown."""
    return _HEAD + "".join(map(_row, KEYS.values())) + _TAIL


def _row(key: Key) -> str:
    name = f"{key.name}, {key.name}.<sub-topology>" if key.per_sub_topology else key.name
    expected = key.expected.replace("|", chr(92) + "|")
    default = "unset" if key.default is None else _code(str(key.default))
    return f"| {_code(name)} | {expected} | {default} | {key.meaning} |\n"


def _code(text: str) -> str:
    return ", ".join(f"`{part}`" for part in text.split(", "))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    print(f"wrote {sys.argv[1]}")
