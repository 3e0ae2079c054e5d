"""TLS between processors and ZooKeeper, with a real server: who is trusted, who is refused, and in which words."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from headrace.adapters.zookeeper.connection import connection_of
from headrace.adapters.zookeeper.handler import Handler
from headrace.adapters.zookeeper.opening import open_group
from headrace.adapters.zookeeper.tls import Tls, context_of
from headrace.cli.commands import application as commands
from headrace.config.loading import load_config
from headrace.core.group.state import ModelOrigin, Registration
from headrace.errors import ConfigError, SetupError, UnavailableError
from headrace.group.layout import GroupName
from headrace.group.processor_group import ProcessorGroup
from headrace.wiring.group_terms import open_group_of
from support.certificates import Certificates, Secured, certificates
from support.zookeepers import wait_until

ME = Registration("a", "host-1", 2, "code-1", "host-1", 17, "1@1", "boot")
SASL = {"sasl.mechanism": "DIGEST-MD5", "sasl.username": "carol", "sasl.password": "tiger-carol"}
Opened = Callable[..., ProcessorGroup]
APPLICATION = """
import headrace as hr

app = hr.App("through", system="kafka://127.0.0.1:1")
app.stream("a", key=hr.String(), value=hr.String()).to("b")
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module", params=["none"])
def secured(request: pytest.FixtureRequest, files: Certificates) -> Iterator[Secured | str]:
    made = Secured(files, request.param)
    try:
        made.server.start()
    except SetupError as error:
        yield error.message
        return
    yield made
    made.server.stop()


@pytest.fixture
def own_zookeeper(secured: Secured | str, without_server: Callable[[str, str], NoReturn]) -> Secured:
    if isinstance(secured, str):
        without_server("ZooKeeper", secured)
    return secured


@pytest.fixture
def opened(own_zookeeper: Secured) -> Iterator[Opened]:
    groups = []

    def opened(
        settings: Mapping[str, str], host: str = "127.0.0.1", port: int | None = None, root: str = "headrace"
    ) -> ProcessorGroup:
        url = f"zookeeper://{host}:{port or own_zookeeper.port}/{root}"
        groups.append(open_group(url, {"connect.timeout.ms": "20000", **settings}, GroupName("delays")))
        return groups[-1]

    yield opened
    for group in groups:
        group.close()


def test_who_trusts_the_authority_works_through_tls_also_after_a_restart(own_zookeeper: Secured, opened: Opened) -> None:
    group = opened(own_zookeeper.trusting)
    number = group.register(ME)
    for version in range(5):  # answers of some size, one behind the other
        assert group.leading(number).propose(version + 1, b"m" * 100_000, ModelOrigin("code-1", "run-1"))
        assert group.job_model(version + 1) == b"m" * 100_000
    own_zookeeper.server.restart()
    wait_until(lambda: answers(group), "an answer")
    assert group.sequence == number and len(group.state().members) == 1


def test_sasl_logs_in_through_tls_and_its_nodes_are_the_users(own_zookeeper: Secured, opened: Opened) -> None:
    group = opened({**own_zookeeper.trusting, **SASL}, root="of-carol")
    group.register(ME)
    with pytest.raises(ConfigError, match="may not be read or written by anyone without a user"):
        opened(own_zookeeper.trusting, root="of-carol").register(ME)
    with pytest.raises(ConfigError, match="refuses the credentials"):
        opened({**own_zookeeper.trusting, **SASL, "sasl.password": "tiger-wrong"}, root="of-carol")


def test_another_authority_is_refused_in_words_that_name_the_setting(
    own_zookeeper: Secured, opened: Opened, tmp_path: Path
) -> None:
    other = certificates(tmp_path / "theirs")
    refused = opened_with_error(opened, {"ssl.enabled": "true", "ssl.ca.location": str(other.ca)})
    server = f"127.0.0.1:{own_zookeeper.port}"
    assert f"ZooKeeper's certificate at {server} is not trusted by zookeeper.ssl.ca.location" in refused.message
    assert "zookeeper.ssl.ca.location to a PEM file" in refused.hint
    refused = opened_with_error(opened, {"ssl.enabled": "true"})
    assert "is not trusted by this machine: " in refused.message and "zookeeper.ssl.ca.location" in refused.hint


def test_a_certificate_for_another_host_is_refused_unless_hosts_are_not_checked(own_zookeeper: Secured, opened: Opened) -> None:
    refused = opened_with_error(opened, own_zookeeper.trusting, host="localhost")
    assert f"ZooKeeper's certificate at localhost:{own_zookeeper.port} is for another host" in refused.message
    assert "zookeeper.ssl.endpoint.identification.algorithm=none" in refused.hint
    unchecked = {**own_zookeeper.trusting, "ssl.endpoint.identification.algorithm": "none"}
    assert not opened(unchecked, host="localhost", root="another").is_there()


def test_a_client_without_tls_at_the_port_for_it_and_one_with_tls_at_the_other(own_zookeeper: Secured, opened: Opened) -> None:
    with pytest.raises(UnavailableError) as caught:
        opened({"connect.timeout.ms": "3000"})
    assert f"127.0.0.1:{own_zookeeper.port} closes each connection at once" in caught.value.message
    assert "set zookeeper.ssl.enabled=true" in caught.value.hint
    with pytest.raises(UnavailableError) as caught:
        opened({**own_zookeeper.trusting, "connect.timeout.ms": "3000"}, port=own_zookeeper.server.port)
    assert "in the TLS handshake" in caught.value.message and "zookeeper.ssl.enabled" in caught.value.hint


def test_the_settings_of_an_application_lead_to_tls(own_zookeeper: Secured, tmp_path: Path) -> None:
    """As `headrace run` and `headrace state reset` take them, from a file."""
    lines = [
        'system = "kafka://127.0.0.1:1"',
        f'coordinator = "zookeeper://127.0.0.1:{own_zookeeper.port}/headrace"',
        "zookeeper.ssl.enabled = true",
        f'zookeeper.ssl.ca.location = "{own_zookeeper.files.ca}"',
    ]
    (tmp_path / "headrace.toml").write_text("\n".join(lines))
    group = open_group_of(load_config(tmp_path, {}, {}, []), "elsewhere")
    assert not group.is_there()
    group.close()


@pytest.mark.parametrize("secured", ["need"], indirect=True)
def test_a_server_that_requires_a_certificate_of_clients(own_zookeeper: Secured, opened: Opened, tmp_path: Path) -> None:
    group = opened(own_zookeeper.known)
    group.register(ME)
    assert len(group.state().members) == 1
    stranger = certificates(tmp_path / "theirs", own_zookeeper.files.key_password)
    theirs = {"ssl.certificate.location": str(stranger.client), "ssl.key.location": str(stranger.client_key)}
    for settings in (own_zookeeper.trusting, own_zookeeper.known | theirs):
        with pytest.raises((ConfigError, UnavailableError)) as caught:
            opened({**settings, "connect.timeout.ms": "5000"})
        assert "TLS handshake" in caught.value.message and "sslv3" not in caught.value.message, caught.value
        assert "zookeeper.ssl.certificate.location" in caught.value.hint and "tiger" not in str(caught.value)


@pytest.mark.parametrize("secured", ["need"], indirect=True)
def test_certificates_that_are_renewed_count_from_the_next_connection(
    own_zookeeper: Secured, opened: Opened, tmp_path: Path
) -> None:
    files = own_zookeeper.files
    mine = certificates(tmp_path / "mine", files.key_password)  # of another authority
    theirs = [path.read_bytes() for path in (mine.client, mine.client_key)]
    known = [files.client.read_bytes(), files.client_key.read_bytes()]

    def put(client: bytes, key: bytes) -> None:
        mine.client.write_bytes(client)
        mine.client_key.write_bytes(key)

    put(*known)
    places = {"ssl.certificate.location": str(mine.client), "ssl.key.location": str(mine.client_key)}
    group = opened(own_zookeeper.known | places | {"session.timeout.ms": "20000", "operation.timeout.ms": "1000"})
    number = group.register(ME)
    put(*theirs)
    cut(group)
    wait_until(lambda: not answers(group), "a connection that is refused")
    put(*known)
    wait_until(lambda: answers(group), "an answer")
    assert group.sequence == number


def test_a_run_of_the_command_line_says_what_is_wrong_before_spark_or_kafka(own_zookeeper: Secured, tmp_path: Path) -> None:
    other = certificates(tmp_path / "theirs")
    app = tmp_path / "app.py"
    app.write_text(APPLICATION)
    coordinator = f"zookeeper://127.0.0.1:{own_zookeeper.port}/headrace"
    settings = [f"zookeeper.ssl.ca.location={other.ca}", "zookeeper.ssl.enabled=true"]
    options = [part for one in settings for part in ("--set", one)]
    done = CliRunner().invoke(commands, ["run", str(app), "--coordinator", coordinator, "--processor-id", "a", *options])
    assert done.exit_code == 1
    assert "is not trusted by zookeeper.ssl.ca.location" in done.output and "Traceback" not in done.output, done.output


# --- without a server -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ssl.ca.location": "ca"}, "zookeeper.ssl.ca.location is set, and zookeeper.ssl.enabled is not"),
        ({"ssl.enabled": "false", "ssl.key.password": "tiger"}, "zookeeper.ssl.key.password is set, and zookeeper.ssl.enabled"),
        ({"ssl.enabled": "yes"}, "zookeeper.ssl.enabled = 'yes': expected true or false"),
        ({"ssl.enabled": "true", "ssl.endpoint.identification.algorithm": "no"}, "expected https or none"),
        ({"ssl.enabled": "true", "ssl.ca.location": "none.pem"}, "zookeeper.ssl.ca.location: there is no file none.pem"),
        ({"ssl.enabled": "true", "ssl.key.location": "k"}, "zookeeper.ssl.certificate.location is not"),
        ({"ssl.enabled": "true", "ssl.certificate.location": "c"}, "zookeeper.ssl.key.location is not"),
        ({"ssl.enabled": "true", "ssl.key.password": "tiger"}, "zookeeper.ssl.key.location is not"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connection_of("zookeeper://localhost:2181/headrace", given)
    assert said in caught.value.message and caught.value.hint and "tiger" not in str(caught.value)


def test_files_that_cannot_be_used_are_named(files: Certificates, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(ConfigError, match=r"zookeeper.ssl.ca.location: \S+empty.pem cannot be used"):
        context_of(tls_of("ssl.ca.location", str(empty)))
    keys = {"ssl.certificate.location": str(files.client), "ssl.key.location": str(files.client_key)}
    for password in ({}, {"ssl.key.password": "tiger-wrong"}):
        with pytest.raises(ConfigError) as caught:
            context_of(tls_of(**keys, **password))
        assert "zookeeper.ssl.key.password" in caught.value.hint and "tiger" not in str(caught.value)
    other = certificates(tmp_path / "other", files.key_password)
    mixed = {**keys, "ssl.key.location": str(other.client_key), "ssl.key.password": files.key_password}
    with pytest.raises(ConfigError, match="key values mismatch"):
        context_of(tls_of(**mixed))


def test_the_password_of_a_key_is_not_shown(files: Certificates) -> None:
    keys = {"ssl.certificate.location": str(files.client), "ssl.key.location": str(files.client_key)}
    made = connection_of("zookeeper://localhost:2181/x", {"ssl.enabled": "true", **keys, "ssl.key.password": "tiger-key"})
    assert "tiger" not in repr(made) and made.secrets.cleaned("it is tiger-key") == "it is ***"


def test_what_is_decrypted_already_is_readable(files: Certificates) -> None:
    """Two answers may be in one record of TLS: kazoo takes the first, and would wait for the other at the empty socket."""
    near, far = socket.socketpair()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.server)

    def serve() -> None:
        with server.wrap_socket(far, server_side=True) as connection:
            connection.sendall(b"onetwo")
            connection.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with context_of(tls_of("ssl.ca.location", str(files.ca))).wrap_socket(near, server_hostname="127.0.0.1") as connection:
        assert connection.recv(3) == b"one"
        readable, _, _ = Handler(None, lambda: 1.0).select([connection], [], [], 20.0)
        assert readable == [connection] and connection.recv(3) == b"two"
        connection.sendall(b".")
    thread.join(20)


def tls_of(*pair: str, **given: str) -> Tls:
    settings = {"ssl.enabled": "true", **given, **({pair[0]: pair[1]} if pair else {})}
    found = connection_of("zookeeper://localhost:2181/headrace", settings).tls
    assert found is not None
    return found


def opened_with_error(opened: Opened, settings: Mapping[str, str], **where: str) -> ConfigError:
    """Refused at once: it does not wait for `connect.timeout.ms`."""
    with pytest.raises(ConfigError) as caught:
        opened({**settings, "connect.timeout.ms": "600000"}, **where)
    return caught.value


def cut(group: ProcessorGroup) -> None:
    """End its connection."""
    handler = group._tree._client.handler  # type: ignore[attr-defined]
    handler.cut(handler.connection)


def answers(group: ProcessorGroup) -> bool:
    try:
        group.confirm()
    except UnavailableError:
        return False
    return True
