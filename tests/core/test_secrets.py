"""Which settings are secrets, by the parts of their names, and what Spark's redaction finds of them."""

from __future__ import annotations

import re

import pytest

from headrace.core.secrets import Secrets, holds_secret, is_secret, redaction_pattern, secret_values

SECRET = [
    "spark.hadoop.fs.azure.account.key.flights.dfs.core.windows.net",
    "spark.hadoop.fs.azure.sas.box.flights.blob.core.windows.net",
    "spark.hadoop.fs.azure.sas.fixed.token.flights.dfs.core.windows.net",
    "spark.hadoop.fs.azure.account.oauth2.client.secret.flights",
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.session.token",
    "spark.hadoop.fs.s3a.bucket.flights.access.key",
    "spark.hadoop.fs.gs.auth.service.account.private.key.id",
    "spark.ssl.keyPassword",
    "spark.ssl.keyStorePassword",
    "spark.ssl.ui.trustStorePassword",
    "spark.authenticate.secret",
    "spark.my.apiKey",
    "spark.my.api_key.flights",
    "spark.my.api-key",
    "spark.my.apikey",
    "spark.my.APIKEY",
    "spark.my.sharedAccessSas.flights",
    "spark.my.dbPwd",
    "spark.my.pwd.flights",
    "spark.my.caPem",
    "kafka.sasl.jaas.config",
    "kafka.sasl.password",
    "kafka.ssl.keystore.key",
    "kafka.ssl.key.pem",
    "kafka.sasl.oauthbearer.client.secret",
    "kafka.sasl.oauthbearer.config",
    "spark.executorEnv.DB_PASS",
    "spark.executorEnv.PGPASS",
    "spark.my.pass",
    "spark.my.pass.flights",
    "spark.my.dbPass",
    "spark.db.userpass",
    "spark.my.auth",
    "spark.my.basicAuth",
    "spark.executorEnv.NPM_AUTH",
    "spark.my.basic.auth.user.info",
    "spark.slack.webhook.secret.url",
    "spark.slack.webhook.url",
    "spark.my.webhookUrl",
]
NONE = [
    "max_round_ms",
    "system",
    "spark.master",
    "spark.sql.shuffle.partitions",
    "spark.hadoop.fs.s3a.endpoint",
    "spark.my.keyboard",
    "spark.my.keyed.rows",
    "kafka.sasl.mechanism",
    "kafka.sasl.username",
    "kafka.ssl.key.location",
    "kafka.ssl.keystore.location",
    "kafka.sasl.oauthbearer.token.endpoint.url",
    "spark.ssl.keyStore",
    "spark.io.encryption.keySize",
    "spark.my.passenger.rows",
    "spark.my.PASSENGERS",
    "spark.my.passive",
    "spark.authenticate",
    "spark.my.author",
    "spark.hadoop.fs.azure.account.auth.type",
    "spark.hadoop.fs.azure.account.auth.type.flights.dfs.core.windows.net",
    "spark.ssl.needClientAuth",
    "kafka.ssl.client.auth",
    "spark.my.pass.file",
    "spark.my.oauth2.endpoint.url",
]


@pytest.mark.parametrize("name", SECRET)
def test_the_name_of_a_secret(name: str) -> None:
    assert is_secret(name)
    assert re.search(redaction_pattern(()), name)


@pytest.mark.parametrize("name", NONE)
def test_a_name_that_is_none(name: str) -> None:
    assert not is_secret(name)


def test_a_list_of_jars_is_no_secret_for_a_word_in_the_name_of_one() -> None:
    assert not holds_secret("spark.jars", "/jars/spark-token-provider-kafka-0-10_2.13.jar", Secrets())


@pytest.mark.parametrize(
    ("value", "is_found"),
    [
        ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abc==", True),
        ("https://a.blob.core.windows.net/box?sv=2020&sig=abc", True),
        ("jdbc:postgresql://scott:tiger@host/db", True),
        ("-Djavax.net.ssl.keyStorePassword=tiger", True),
        ("-Ddb.pass=tiger -Dx=y", True),
        ("-Dmy.auth=tiger", True),
        ("OAuth", False),
        ("-Dpassengers=3 -Dauthor=me", False),
        ("kafka://host:9092,other:9092", False),
        ("/home/monkey/keys-of-doors/x.jar", False),
        ("org.apache.spark.serializer.KryoSerializer", False),
    ],
)
def test_a_value_that_holds_one(value: str, is_found: bool) -> None:
    assert holds_secret("spark.x", value, Secrets()) is is_found
    assert (re.search(redaction_pattern(()), value) is not None) is is_found


def test_a_secret_value_is_found_under_any_name_and_the_pattern_finds_itself() -> None:
    value = r"t(i[g.e*r\d+$"
    pattern = redaction_pattern(secret_values({"a.password": value, "b.token.on": "true", "c.pwd": "abc"}), "users own")
    for text in (f"x {value} y", pattern, "a password", "users own"):
        assert re.search(pattern, text)
    for text in ("true", "abc", "ti"):
        assert not re.search(pattern, text)
    assert holds_secret("spark.x", f"x{value}", Secrets([value]))
