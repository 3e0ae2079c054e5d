"""One set of keys, in Java's spelling, reaches both clients; and no secret reaches a text."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from headrace.adapters.kafka.connection import connection_of, servers_of
from headrace.adapters.kafka.container_transaction import Lane
from headrace.adapters.kafka.jaas import Jaas, parsed, written
from headrace.adapters.kafka.system import open_system
from headrace.core.secrets import Secrets
from headrace.errors import ConfigError

URL = "kafka://a:9092,b:9093"
PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
TLS = {"security.protocol": "SSL"}
OAUTH = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
}


@pytest.fixture
def pem(tmp_path: Path) -> dict[str, str]:
    """Files that only have to be there, by the key that names each."""
    files = {"ssl.ca.location": "ca.pem", "ssl.certificate.location": "me.pem", "ssl.key.location": "me.key"}
    for name in files.values():
        (tmp_path / name).write_text(f"-----{name} of canary-----")
    return {key: str(tmp_path / name) for key, name in files.items()}


@pytest.mark.parametrize("name", ["isolation.level", "group.id", "acks", "transactional.id", "bootstrap.servers"])
def test_what_the_guarantees_rest_on_cannot_be_set(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.{name} cannot be set"):
        connection_of(URL, {name: "x"})


@pytest.mark.parametrize(("name", "near"), [("sasl.usernme", "sasl.username"), ("compresion.type", "compression.type")])
def test_a_setting_that_nobody_has_is_refused_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.{name} is no setting(.|\n)*did you mean kafka\.{near}"):
        connection_of(URL, {**PLAIN, name: "x"})


@pytest.mark.parametrize(("name", "protocol"), [("sasl.password", "SSL"), ("ssl.ca.location", "SASL_PLAINTEXT")])
def test_credentials_that_would_not_be_used_are_refused(name: str, protocol: str) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.{name} is set, and kafka.security.protocol is {protocol}"):
        connection_of(URL, {"security.protocol": protocol, name: "x"})


def test_what_the_writer_alone_has_reaches_it_in_its_spelling() -> None:
    connection = connection_of(URL, {"compression.type": "zstd", "max.request.size": "2000000", "request.timeout.ms": "9000"})
    assert connection.client["compression.type"] == "zstd"
    assert connection.client["message.max.bytes"] == "2000000"
    assert connection.client["request.timeout.ms"] == connection.spark_options["kafka.request.timeout.ms"] == "9000"
    assert not {"kafka.compression.type", "kafka.max.request.size"} & set(connection.spark_options)
    AdminClient({**connection.client, "log_level": 0})


class TestServers:
    @pytest.mark.parametrize("servers", ["a:9092", "a:9092,b:9093", "[::1]:9092", "10.0.0.1:1"])
    def test_one_or_several(self, servers: str) -> None:
        assert servers_of(f"kafka://{servers}") == servers
        connection = connection_of(f"kafka://{servers}", {})
        assert connection.client["bootstrap.servers"] == connection.spark_options["kafka.bootstrap.servers"] == servers

    @pytest.mark.parametrize("url", ["kafka:a:9092", "kafka://", "log://a:9092", "kafka"])
    def test_other_urls_are_refused(self, url: str) -> None:
        with pytest.raises(ConfigError, match=r"expected kafka://HOST:PORT\n.*localhost:9092"):
            servers_of(url)

    @pytest.mark.parametrize("url", ["kafka://a", "kafka://a:x", "kafka://a:0", "kafka://a:65536", "kafka://a:1,"])
    def test_a_server_is_a_host_and_a_port(self, url: str) -> None:
        with pytest.raises(ConfigError, match=r"is no HOST:PORT(.|\n)*kafka.sasl"):
            servers_of(url)


    def test_a_password_in_an_address_is_not_repeated(self) -> None:
        with pytest.raises(ConfigError, match=r"kafka\.sasl\.username") as caught:
            servers_of("kafka://scott:canary@a:1")
        assert "canary" not in str(caught.value)


class TestMechanisms:
    def test_without_security(self) -> None:
        connection = connection_of(URL, {"client.rack": "r1", "fetch.max.bytes": "9", "topic.retention.ms": "5"})
        assert connection.client == {"bootstrap.servers": "a:9092,b:9093", "client.rack": "r1"}
        options = dict(connection.spark_options)
        assert options.pop("kafka.group.id").startswith("headrace-readers")
        assert options == {
            "kafka.bootstrap.servers": "a:9092,b:9093",
            "kafka.client.rack": "r1",
            "kafka.fetch.max.bytes": "9",
        }
        assert connection.topic_settings == {"retention.ms": "5"}

    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    @pytest.mark.parametrize("spelling", ["python", "java"])
    def test_a_user_and_a_password(self, mechanism: str, spelling: str) -> None:
        name, password = "scott", 'canary "7\\'
        line = written(Jaas("org.example.Login", {"username": name, "password": password}))
        given = {
            "python": {"sasl.username": name, "sasl.password": password, "sasl.mechanisms": mechanism},
            "java": {"sasl.jaas.config": line, "sasl.mechanism": mechanism},
        }[spelling]
        connection = connection_of(URL, {"security.protocol": "SASL_PLAINTEXT", **given})
        client, options = connection.client, connection.spark_options
        assert (client["sasl.username"], client["sasl.password"], client["sasl.mechanism"]) == (name, password, mechanism)
        assert client["security.protocol"] == options["kafka.security.protocol"] == "SASL_PLAINTEXT"
        assert options["kafka.sasl.mechanism"] == mechanism
        read = parsed(options["kafka.sasl.jaas.config"])
        assert read.options == {"username": name, "password": password}
        assert read.module.endswith("PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule")
        assert not {"kafka.sasl.username", "kafka.sasl.password", "kafka.sasl.mechanisms"} & set(options)
        AdminClient({**client, "log_level": 0})  # the very names that librdkafka knows

    @pytest.mark.parametrize("spelling", ["python", "java"])
    def test_oauth(self, spelling: str) -> None:
        line = written(Jaas("org.example.Login", {"clientId": "me", "clientSecret": "canary", "scope": "s"}))
        own = {"client.id": "me", "client.secret": "canary", "scope": "s"}
        given = {
            "python": {f"sasl.oauthbearer.{name}": value for name, value in own.items()},
            "java": {"sasl.jaas.config": line},
        }[spelling]
        connection = connection_of(URL, {**OAUTH, **given})
        assert {name: connection.client[f"sasl.oauthbearer.{name}"] for name in own} == own
        assert connection.client["sasl.oauthbearer.method"] == "oidc"
        read = parsed(connection.spark_options["kafka.sasl.jaas.config"])
        assert read.options == {"clientId": "me", "clientSecret": "canary", "scope": "s"}
        assert connection.spark_options["kafka.sasl.oauthbearer.token.endpoint.url"] == "https://login.example/token"
        assert connection.spark_options["kafka.sasl.login.callback.handler.class"].endswith("OAuthBearerLoginCallbackHandler")
        assert "kafka.sasl.oauthbearer.client.secret" not in connection.spark_options
        assert connection.secrets.cleaned("is canary there") == "is *** there"
        AdminClient({**connection.client, "log_level": 0})

    def test_kerberos_is_left_to_the_ticket(self) -> None:
        given = {
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": "x.Y required;",
            "sasl.kerberos.principal": "me@REALM",
        }
        connection = connection_of(URL, {**PLAIN, "sasl.mechanism": "GSSAPI", **given})
        assert connection.client["sasl.kerberos.principal"] == "me@REALM"
        assert "kafka.sasl.kerberos.principal" not in connection.spark_options  # it is in the JAAS text
        assert connection.client["sasl.kerberos.service.name"] == "kafka"
        assert connection.spark_options["kafka.sasl.jaas.config"] == "x.Y required;"
        assert "sasl.password" not in connection.client

    def test_tls_by_pem_files(self, pem: dict[str, str]) -> None:
        connection = connection_of(URL, {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "", **pem})
        client, options = connection.client, connection.spark_options
        assert {name: client[name] for name in pem} == pem
        assert client["ssl.endpoint.identification.algorithm"] == "none"
        assert options["kafka.ssl.truststore.type"] == "PEM"
        assert options["kafka.ssl.truststore.location"] == pem["ssl.ca.location"]
        assert options["kafka.ssl.keystore.key"] == Path(pem["ssl.key.location"]).read_text()
        assert not {f"kafka.{name}" for name in pem} & set(options)
        assert connection.secrets.cleaned(f"key {options['kafka.ssl.keystore.key']}") == "key ***"

    def test_tls_by_pem_stores_of_java(self, pem: dict[str, str]) -> None:
        stores = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": pem["ssl.ca.location"],
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pem["ssl.key.location"],
            "ssl.key.password": "canary",
        }
        connection = connection_of(URL, {"security.protocol": "ssl", **stores})
        assert connection.client["ssl.ca.location"] == pem["ssl.ca.location"]
        assert connection.client["ssl.key.location"] == connection.client["ssl.certificate.location"] == pem["ssl.key.location"]
        assert connection.client["ssl.key.password"] == "canary"
        assert {f"kafka.{name}": value for name, value in stores.items()}.items() <= connection.spark_options.items()

    def test_tls_by_texts_of_java(self) -> None:
        texts = {"ssl.truststore.certificates": "CA", "ssl.keystore.key": "canary", "ssl.keystore.certificate.chain": "ME"}
        connection = connection_of(URL, {"security.protocol": "SSL", **texts})
        client = connection.client
        assert (client["ssl.ca.pem"], client["ssl.key.pem"], client["ssl.certificate.pem"]) == ("CA", "canary", "ME")

    def test_a_store_of_java_that_both_can_read(self, pem: dict[str, str]) -> None:
        store = {"ssl.keystore.location": pem["ssl.key.location"], "ssl.keystore.type": "PKCS12"}
        connection = connection_of(URL, {"security.protocol": "SSL", "ssl.keystore.password": "canary", **store})
        assert connection.client["ssl.keystore.location"] == store["ssl.keystore.location"]
        assert connection.client["ssl.keystore.password"] == "canary"


class TestMistakes:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"security.protocol": "TLS"}, r"security.protocol 'TLS' is not known\n.*SASL_SSL"),
            ({"security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism is not set"),
            ({**PLAIN, "sasl.mechanism": "plain"}, r"'plain' is not known\n.*SCRAM-SHA-256"),
            (PLAIN, r"there is no user\n.*kafka.sasl.username and kafka.sasl.password"),
            ({**PLAIN, "sasl.username": "scott"}, "there is no password"),
            ({**PLAIN, "sasl.jaas.config": 'a.B required password="canary'}, "kafka.sasl.jaas.config cannot be read"),
            ({**PLAIN, "sasl.jaas.config": "a.B required user=x canary;"}, r"what follows option 1 is no NAME="),
            ({**OAUTH, "sasl.oauthbearer.client.id": "x"}, "clientSecret is not set"),
            ({**PLAIN, "sasl.mechanism": "OAUTHBEARER"}, r"clientId is not set\n.*token.endpoint.url"),
            ({**TLS, "ssl.truststore.location": "t.jks"}, r"a JKS file(.|\n)*kafka.ssl.ca.location"),
            ({**TLS, "ssl.keystore.location": "k.jks"}, r"a JKS file(.|\n)*PKCS12 or PEM"),
            ({**TLS, "ssl.ca.location": "/not/there"}, "kafka.ssl.ca.location: there is no file /not/there"),
            ({**TLS, "ssl.certificate.location": "c"}, "kafka.ssl.key.location is not"),
            ({**TLS, "ssl.key.location": "k"}, "kafka.ssl.certificate.location is not"),
            ({"replication.factor": "0"}, "kafka.replication.factor = '0': expected a number of at least 1"),
            ({"transaction.timeout.ms": "999"}, "kafka.transaction.timeout.ms = '999': expected a number of at least 1000"),
            ({"transaction.timeout.ms": "x"}, "kafka.transaction.timeout.ms = 'x'"),
            ({"wait.s": "soon"}, "kafka.wait.s = 'soon': expected a number of seconds"),
            ({"wait.s": "-1"}, "expected a number of seconds"),
        ],
    )
    def test_each_is_named_with_what_to_do(self, given: dict[str, str], words: str) -> None:
        with pytest.raises(ConfigError, match=words) as raised:
            connection_of(URL, given)
        assert "canary" not in str(raised.value)

    def test_what_librdkafka_refuses_is_a_mistake_of_the_configuration(self) -> None:
        with pytest.raises(ConfigError, match=r"kafka.\* settings are refused.*retry.backoff.ms"):
            open_system("kafka://127.0.0.1:1", {"retry.backoff.ms": "x"})


class TestSecrets:
    def test_none_is_in_what_prints_itself(self) -> None:
        settings = {**PLAIN, "sasl.username": "scott", "sasl.password": 'canary"1'}
        connection = connection_of(URL, settings)
        lane = Lane("app", "source", 0, 1, "1-source-1", connection.client, 60_000)
        login = parsed(connection.spark_options["kafka.sasl.jaas.config"])
        with open_system(URL, settings) as system:
            objects = [connection, connection.secrets, lane, login, system, system.metadata_store("x"), system.job_store("x")]
        assert not [text for text in map(repr, objects) if "canary" in text]
        assert "scott" not in repr(login)

    def test_a_text_is_cleaned_of_all_its_forms(self) -> None:
        connection = connection_of(URL, {**PLAIN, "sasl.username": "scott", "sasl.password": 'canary"1'})
        line = connection.spark_options["kafka.sasl.jaas.config"]
        for text in ('canary"1', 'canary\\"1', line, f"a {line} b"):
            assert "canary" not in connection.secrets.cleaned(text)

    def test_the_longest_goes_first_and_short_ones_guard_nothing(self) -> None:
        assert Secrets(["tiger", "tiger-and-more", "a"]).cleaned("a tiger-and-more, a tiger") == "a ***, a ***"
