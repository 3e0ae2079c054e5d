"""The address of a group and its settings: what is taken, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.adapters.zookeeper.connection import SETTINGS, connection_of
from headrace.errors import ConfigError

URL = "zookeeper://localhost:2181/headrace"
DIGEST = {"digest.username": "alice", "digest.password": "tiger-7"}
SASL = {"sasl.mechanism": "DIGEST-MD5", "sasl.username": "alice", "sasl.password": "tiger-7"}


def test_an_address_has_servers_and_a_root() -> None:
    made = connection_of("zookeeper://a:2181,10.0.0.7:2182,[::1]:2183/head-race/test_1", {})
    assert (made.servers, made.root) == ("a:2181,10.0.0.7:2182,[::1]:2183", "/head-race/test_1")
    assert (made.session_timeout_s, made.digest, made.sasl, made.is_protected) == (10.0, None, None, False)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("zookeeper:/localhost:2181/x", "expected zookeeper://HOST:PORT/ROOT"),
        ("zk://localhost:2181/x", "expected zookeeper://HOST:PORT/ROOT"),
        ("zookeeper://localhost/x", "'localhost' is no HOST:PORT"),
        ("zookeeper://localhost:0/x", "'localhost:0' is no HOST:PORT"),
        ("zookeeper://localhost:70000/x", "is no HOST:PORT"),
        ("zookeeper://a:1,,b:2/x", "'' is no HOST:PORT"),
        ("zookeeper:///x", "'' is no HOST:PORT"),
        ("zookeeper://localhost:2181", "there is no ROOT"),
        ("zookeeper://localhost:2181/", "there is no ROOT"),
        ("zookeeper://localhost:2181/a//b", "'' in its ROOT"),
        ("zookeeper://localhost:2181/a/", "'' in its ROOT"),
        ("zookeeper://localhost:2181/../b", "'..' in its ROOT"),
        ("zookeeper://localhost:2181/ü", "'ü' in its ROOT"),
        ("zookeeper://localhost:2181/zookeeper/x", "keeps /zookeeper for itself"),
    ],
)
def test_another_address_is_refused_with_what_to_do(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connection_of(url, {})
    assert said in caught.value.message and caught.value.hint


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        connection_of("zookeeper://alice:tiger-7@localhost:2181/x", {})
    assert "tiger-7" not in str(caught.value) and "zookeeper.digest." in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"session.timeout": "1"}, "zookeeper.session.timeout is not known"),
        ({"session.timeout.ms": "10 s"}, "expected a number of milliseconds"),
        ({"session.timeout.ms": "399"}, "of at least 400"),
        ({"session.timeout.ms": "-5"}, "expected a number"),
        ({"digest.username": "alice"}, "zookeeper.digest.password is not set"),
        ({"digest.password": "tiger-7"}, "zookeeper.digest.username is not set"),
        ({"digest.username": "a:b", "digest.password": "tiger-7"}, "colon"),
        ({**DIGEST, **SASL}, "both set"),
        ({"sasl.username": "alice"}, "zookeeper.sasl.mechanism is not"),
        ({**SASL, "sasl.mechanism": "SCRAM"}, "'SCRAM' is not known"),
        ({"sasl.mechanism": "DIGEST-MD5", "sasl.username": "alice"}, "zookeeper.sasl.password is not set"),
    ],
)
def test_settings_that_do_not_fit_are_refused_without_their_secrets(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connection_of(URL, given)
    assert said in caught.value.message and "tiger-7" not in str(caught.value)


@pytest.mark.parametrize("given", [DIGEST, SASL])
def test_a_connection_does_not_show_its_secrets(given: dict[str, str]) -> None:
    made = connection_of(URL, given)
    assert made.is_protected and "tiger-7" not in repr(made)
    assert made.secrets.cleaned("password tiger-7") == "password ***"


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_documented(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert f"`zookeeper.{name}`" in page.read_text(encoding="utf-8")
