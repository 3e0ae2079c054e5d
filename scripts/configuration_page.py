"""Writes the page of configuration keys from the keys themselves: `configuration_page.py docs/configuration.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.config.loading import describe_keys

_HEAD = """\
# Configuration

<!-- Made by `make docs` from headrace.config.keys: edit the keys there, not this page. -->

A key may be set in five places. The later one wins:

1. the default below
2. `headrace.toml` in the folder of the application
3. an environment variable: `HEADRACE_` and the key in capitals, with two underscores for a dot
   (`HEADRACE_CONTAINERS__views` is `containers.views`)
4. an argument of `App(...)`, or its `config={"containers.views": 2}` for names with a dot
5. `--set key=value` on the command line

Units are the last part of a name: `_ms` are milliseconds, `_s` seconds. An unknown key is an error that names the
nearest known one and where it was set.

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
`containers.<sub-topology>` and the like hold for one sub-topology; `source` is the one that reads the external inputs,
any other is named as `headrace describe` shows it.

`kafka.*` and `spark.*` are handed on to Kafka's client and to Spark as they are: `kafka.client.id` sets `client.id`,
`spark.driver.memory` sets `spark.driver.memory`. Passwords and other secrets among them are never shown: not in logs, errors
or `status`, and not by Spark's UI and event log.

## `kafka.*`

One set of keys, in the spelling of Kafka's Java client, serves both clients: Spark's reader and librdkafka, which does
the rest. What only one of them knows is made for the other.

| key | meaning |
|---|---|
| `kafka.security.protocol` | `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`. |
| `kafka.sasl.mechanism` | `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`. |
| `kafka.sasl.username`, `kafka.sasl.password` | Who we are; or `kafka.sasl.jaas.config`, as the Java client has it. |
| `kafka.sasl.oauthbearer.token.endpoint.url`, `.client.id`, `.client.secret`, `.scope` | Of `OAUTHBEARER`: where a token comes from. |
| `kafka.ssl.ca.location` | Whom to trust: a file of certificates in PEM. |
| `kafka.ssl.keystore.location`, `.type`, `.password` | Who we are, for a broker that asks for a certificate: `PKCS12` or `PEM`; or `kafka.ssl.certificate.location` and `kafka.ssl.key.location` in PEM. |
| `kafka.transaction.timeout.ms` | How long a container's transaction may stay open, 60000 if unset; a round is cut short at a third of it. The broker's `transaction.max.timeout.ms` is its bound. |
| `kafka.wait.s` | For how many seconds a request is tried again while the cluster does not answer, 30 if unset. A job that runs goes on waiting for 5 minutes, and says so. |
| `kafka.replication.factor` | Of the topics that a job makes; unset: 3, or as many as there are brokers. |
| `kafka.topic.*` | Settings of the topics that a job makes, such as `kafka.topic.retention.ms` or `kafka.topic.min.insync.replicas`. What it rests on stays: `<application>-metadata` and `-checkpoints` are compacted, and of repartition topics nothing goes by age or size: the job purges what was read. |

Any other goes to both as it is, where both know it.

A part of a variable's name after the first dot that is in capitals throughout is taken as lower case; any other keeps
its case, as `HEADRACE_SPARK__sql__maxToStringFields` must.
"""


def page() -> str:
    """The whole page, as Markdown."""
    rows = [
        f"| {_code(row['name'])} | {row['expected'].replace('|', chr(92) + '|')} "
        f"| {'unset' if row['default'] == 'unset' else _code(row['default'])} | {row['meaning']} |\n"
        for row in describe_keys()
    ]
    return _HEAD + "".join(rows) + _TAIL


def _code(text: str) -> str:
    return ", ".join(f"`{part}`" for part in text.split(", "))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    print(f"wrote {sys.argv[1]}")
