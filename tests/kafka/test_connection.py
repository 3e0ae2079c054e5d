"""One set of keys, in librdkafka's spelling, reaches both clients; and no secret reaches a text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from headrace.adapters.kafka.connection import connection_of, servers_of
from headrace.adapters.kafka.container_transaction import Lane
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


def login_of(line: str) -> tuple[str, dict[str, str]]:
    """The login module and the options of a line of JAAS."""
    module, _, options = line.removesuffix(";").partition(" required")
    found = re.findall(r' (\w+)="((?:[^"\\]|\\.)*)"', options)
    return module, {name: re.sub(r"\\(.)", r"\1", value) for name, value in found}


@pytest.fixture
def pem(tmp_path: Path) -> dict[str, str]:
    """Files that only have to be there, by the key that names each."""
    files = {"ssl.ca.location": "ca.pem", "ssl.certificate.location": "me.pem", "ssl.key.location": "me.key"}
    for name in files.values():
        (tmp_path / name).write_text(f"-----{name} of canary-----")
    return {key: str(tmp_path / name) for key, name in files.items()}


@pytest.mark.parametrize(
    "name",
    [
        "isolation.level",
        "group.id",
        "acks",
        "request.required.acks",
        "enable.idempotence",
        "enable.auto.commit",
        "auto.offset.reset",
        "transactional.id",
        "bootstrap.servers",
        "metadata.broker.list",
        "error_cb",
    ],
)
def test_what_the_guarantees_rest_on_cannot_be_set(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.{name} cannot be set"):
        connection_of(URL, {name: "x"})


@pytest.mark.parametrize("name", ["client.idd", "compresion.type"])
def test_a_setting_that_nobody_has_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=rf'kafka.\* settings are refused(.|\n)*"{name}"'):
        open_system("kafka://127.0.0.1:1", {name: "x"})


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("sasl.jaas.config", "kafka.sasl.username and kafka.sasl.password"),
        ("sasl.mechanisms", "kafka.sasl.mechanism"),
        ("compression.codec", "kafka.compression.type"),
        ("fetch.max.wait.ms", "kafka.fetch.wait.max.ms"),
        ("max.request.size", "kafka.message.max.bytes"),
        ("ssl.truststore.location", "kafka.ssl.ca.location"),
        ("ssl.keystore.key", "kafka.ssl.key.location"),
    ],
)
def test_another_name_of_a_setting_is_refused_with_what_to_set(name: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.{name} is not read: (.|\n)*set {instead}") as raised:
        connection_of(URL, {"security.protocol": "SASL_SSL", name: "canary"})
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(("name", "protocol"), [("sasl.password", "SSL"), ("ssl.ca.location", "SASL_PLAINTEXT")])
def test_credentials_that_would_not_be_used_are_refused(name: str, protocol: str) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.{name} is set, and kafka.security.protocol is {protocol}"):
        connection_of(URL, {"security.protocol": protocol, name: "x"})


def test_other_settings_reach_both_clients_each_in_its_spelling() -> None:
    given = {"request.timeout.ms": "9000", "compression.type": "zstd", "socket.send.buffer.bytes": "70000"}
    connection = connection_of(URL, {**given, "fetch.wait.max.ms": "7", "max.poll.records": "5"})
    options = {name.removeprefix("kafka."): value for name, value in connection.spark_options.items()}
    assert connection.client == {**given, "bootstrap.servers": "a:9092,b:9093"}
    assert options["request.timeout.ms"] == "9000"
    assert (options["fetch.max.wait.ms"], options["send.buffer.bytes"], options["max.poll.records"]) == ("7", "70000", "5")
    assert not {"fetch.wait.max.ms", "socket.send.buffer.bytes"} & set(options)
    AdminClient({**connection.client, "log_level": 0})


def test_each_job_of_a_process_has_readers_of_its_own() -> None:
    """Executors would give it what they have fetched for the job before, of a topic that was deleted and recreated since."""
    groups = {connection_of(URL, {}).spark_options["kafka.group.id"] for _ in range(3)}
    assert len(groups) == 3
    assert all(group.startswith("headrace-readers-") for group in groups)


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
        assert options.pop("kafka.group.id").startswith("headrace-readers-")
        assert options == {
            "kafka.bootstrap.servers": "a:9092,b:9093",
            "kafka.client.rack": "r1",
            "kafka.fetch.max.bytes": "9",
        }
        assert connection.topic_settings == {"retention.ms": "5"}

    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_a_user_and_a_password(self, mechanism: str) -> None:
        name, password = "scott", 'canary "7\\'
        given = {"sasl.username": name, "sasl.password": password, "sasl.mechanism": mechanism}
        connection = connection_of(URL, {"security.protocol": "SASL_PLAINTEXT", **given})
        client, options = connection.client, connection.spark_options
        assert (client["sasl.username"], client["sasl.password"], client["sasl.mechanism"]) == (name, password, mechanism)
        assert client["security.protocol"] == options["kafka.security.protocol"] == "SASL_PLAINTEXT"
        assert options["kafka.sasl.mechanism"] == mechanism
        module, login = login_of(options["kafka.sasl.jaas.config"])
        assert login == {"username": name, "password": password}
        assert module.endswith("PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule")
        assert not {"kafka.sasl.username", "kafka.sasl.password"} & set(options)
        AdminClient({**client, "log_level": 0})  # the very names that librdkafka knows

    def test_oauth(self) -> None:
        own = {"client.id": "me", "client.secret": "canary", "scope": "s"}
        connection = connection_of(URL, {**OAUTH, **{f"sasl.oauthbearer.{name}": value for name, value in own.items()}})
        assert {name: connection.client[f"sasl.oauthbearer.{name}"] for name in own} == own
        assert connection.client["sasl.oauthbearer.method"] == "oidc"
        _, login = login_of(connection.spark_options["kafka.sasl.jaas.config"])
        assert login == {"clientId": "me", "clientSecret": "canary", "scope": "s"}
        assert connection.spark_options["kafka.sasl.oauthbearer.token.endpoint.url"] == "https://login.example/token"
        assert connection.spark_options["kafka.sasl.login.callback.handler.class"].endswith("OAuthBearerLoginCallbackHandler")
        assert "kafka.sasl.oauthbearer.client.secret" not in connection.spark_options
        assert connection.secrets.cleaned("is canary there") == "is *** there"
        AdminClient({**connection.client, "log_level": 0})

    def test_kerberos_by_a_key_tab_or_by_the_ticket(self) -> None:
        given = {**PLAIN, "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"}
        given["sasl.kerberos.principal"] = "me@REALM"
        connection = connection_of(URL, given)
        assert connection.client["sasl.kerberos.principal"] == "me@REALM"
        assert connection.client["sasl.kerberos.service.name"] == connection.spark_options["kafka.sasl.kerberos.service.name"]
        module, login = login_of(connection.spark_options["kafka.sasl.jaas.config"])
        assert module.endswith("Krb5LoginModule")
        assert login == {"principal": "me@REALM", "useTicketCache": "true"}
        with_tab = connection_of(URL, {**given, "sasl.kerberos.keytab": "me.tab"})
        _, login = login_of(with_tab.spark_options["kafka.sasl.jaas.config"])
        assert (login["keyTab"], login["useKeyTab"], login["principal"]) == ("me.tab", "true", "me@REALM")
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

    def test_tls_by_pem_texts(self) -> None:
        texts = {"ssl.ca.pem": "CA", "ssl.key.pem": "canary", "ssl.certificate.pem": "ME"}
        connection = connection_of(URL, {"security.protocol": "SSL", **texts})
        options = connection.spark_options
        assert texts.items() <= connection.client.items()
        assert options["kafka.ssl.truststore.certificates"] == "CA"
        assert (options["kafka.ssl.keystore.key"], options["kafka.ssl.keystore.certificate.chain"]) == ("canary", "ME")
        assert options["kafka.ssl.keystore.type"] == options["kafka.ssl.truststore.type"] == "PEM"
        assert connection.secrets.cleaned("is canary there") == "is *** there"

    def test_a_store_of_java_that_both_can_read(self, pem: dict[str, str]) -> None:
        store = {"ssl.keystore.location": pem["ssl.key.location"], "ssl.keystore.type": "PKCS12"}
        connection = connection_of(URL, {"security.protocol": "SSL", "ssl.keystore.password": "canary", **store})
        assert connection.client["ssl.keystore.location"] == store["ssl.keystore.location"]
        assert connection.client["ssl.keystore.password"] == "canary"
        assert "ssl.keystore.type" not in connection.client
        assert {f"kafka.{name}": value for name, value in store.items()}.items() <= connection.spark_options.items()
        del store["ssl.keystore.type"]
        assert connection_of(URL, {"security.protocol": "SSL", **store}).spark_options["kafka.ssl.keystore.type"] == "PKCS12"


class TestMistakes:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"security.protocol": "TLS"}, r"security.protocol 'TLS' is not known\n.*SASL_SSL"),
            ({"security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism is not set"),
            ({**PLAIN, "sasl.mechanism": "plain"}, r"'plain' is not known\n.*SCRAM-SHA-256"),
            (PLAIN, r"there is no user\n.*kafka.sasl.username and kafka.sasl.password"),
            ({**PLAIN, "sasl.username": "scott"}, "there is no password"),
            ({**PLAIN, "sasl.jaas.config": 'a.B required password="canary";'}, "set kafka.sasl.username"),
            ({**OAUTH, "sasl.oauthbearer.client.id": "x"}, "kafka.sasl.oauthbearer.client.secret is not set"),
            ({**PLAIN, "sasl.mechanism": "OAUTHBEARER"}, r"client.id is not set\n.*token.endpoint.url"),
            ({**TLS, "ssl.truststore.location": "t.jks"}, "kafka.ssl.ca.location"),
            ({**TLS, "ssl.keystore.type": "JKS"}, r"a JKS file(.|\n)*PKCS12(.|\n)*PEM files"),
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
        with open_system(URL, settings) as system:
            objects = [connection, connection.secrets, lane, system, system.metadata_store("x"), system.job_store("x")]
        assert not [text for text in map(repr, objects) if "canary" in text]

    def test_a_text_is_cleaned_of_all_its_forms(self) -> None:
        connection = connection_of(URL, {**PLAIN, "sasl.username": "scott", "sasl.password": 'canary"1'})
        line = connection.spark_options["kafka.sasl.jaas.config"]
        for text in ('canary"1', 'canary\\"1', line, f"a {line} b"):
            assert "canary" not in connection.secrets.cleaned(text)

    def test_the_longest_goes_first_and_short_ones_guard_nothing(self) -> None:
        assert Secrets(["tiger", "tiger-and-more", "a"]).cleaned("a tiger-and-more, a tiger") == "a ***, a ***"
