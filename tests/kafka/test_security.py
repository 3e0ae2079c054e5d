"""One set of kafka.* keys reaches a secured broker with both clients; a secret is in nothing that anyone reads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.adapters.kafka.connection import connection_of
from headrace.cli.commands import application
from headrace.config.loading import load_config
from headrace.errors import HeadraceError
from headrace.testing import KafkaServer

PASSWORD, OTHER = "canary-7d1f-password", "canary-7d1f-other"
SOURCE = Path(hr.__file__).parents[1]
PROGRAM = Path(__file__).with_name("secured_job.py")
pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaServer]:
    with KafkaServer(security="sasl_ssl", users={"alice": PASSWORD}) as kafka:
        yield kafka


def settings_of(server: KafkaServer, **changed: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(server.tls.ca_pem),
        "sasl.oauthbearer.client.secret": OTHER,  # of no use here, and a secret all the same
        "ssl.key.password": OTHER,
        **changed,
    }


def variables(settings: dict[str, str]) -> dict[str, str]:
    return {f"HEADRACE_KAFKA__{name.replace('.', '__')}": value for name, value in settings.items()}


def leaks(folder: Path) -> list[str]:
    """Files in which a secret is."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in (PASSWORD, OTHER)):
            found.append(str(path.relative_to(folder)))
    return found


@pytest.mark.spark
def test_jobs_on_spark_go_through_it_and_show_no_secret(secured: KafkaServer, tmp_path: Path) -> None:
    url, settings, source = f"kafka://{secured.bootstrap}", settings_of(secured), f"s-{uuid.uuid4().hex[:8]}"
    with hr.open_system(url, kafka=settings) as system:
        system.create_stream(source, 2)
        system.produce(source, [(f"k{i % 5}", {"n": i}) for i in range(50)], key=hr.String(), value=hr.Json())
    (tmp_path / "events").mkdir()
    spark = {
        "HEADRACE_SPARK__master": "local[2,4]",
        "HEADRACE_SPARK__ui__port": "0",
        "HEADRACE_SPARK__eventLog__enabled": "true",
        "HEADRACE_SPARK__eventLog__dir": f"file:{tmp_path / 'events'}",
        "HEADRACE_SPARK__eventLog__compress": "false",
    }
    done = subprocess.run(
        [sys.executable, str(PROGRAM), url, source, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, **variables(settings), **spark, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "stdout").write_text(done.stdout)
    (tmp_path / "stderr").write_text(done.stderr)
    with hr.open_system(url, kafka=settings) as system:
        for name in ("scram", "plain"):
            assert sum(1 for _ in system.consume(f"{source}-{name}-copy")) == 50
            counts = system.consume(f"{source}-{name}-counts", key=hr.String(), value=hr.Long())
            assert {record.key: record.value for record in counts} == {f"k{i}": 10 for i in range(5)}
    looked_at = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert {"environment.json", "environment.html", "sql.json", "SQL.html", "spark.log"} <= looked_at
    assert "queries 0" not in done.stdout
    assert list((tmp_path / "events").rglob("*"))
    assert leaks(tmp_path) == []


def test_commands_and_representations_show_no_secret(
    secured: KafkaServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings, url = settings_of(secured), f"kafka://{secured.bootstrap}"
    for name, value in (variables(settings) | {"HEADRACE_SPARK__ssl__keyPassword": OTHER}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    shown = []
    for arguments in (
        ["submit-args", "--set", f"system={url}"],
        ["submit-args", "--json", "--set", f"system={url}"],
        ["doctor"],
        ["stream", "list", "--system", url],
        ["status", "--application", "nobody", "--system", url],
        ["stream", "describe", "nothing", "--system", url],
    ):
        done = CliRunner().invoke(application, arguments)
        shown.append(done.stdout + done.stderr)
    assert "left out, as it is a secret: spark.ssl.keyPassword" in shown[0]
    config = load_config(None, os.environ, {"system": url})
    connection = connection_of(url, settings)
    shown += [repr(config), str(config), repr(connection), repr(hr.App("a", url, kafka=settings)), repr(connection.secrets)]
    with hr.open_system(url, kafka=settings) as system:
        shown.append(repr(system))
    assert [text for text in shown if PASSWORD in text or OTHER in text] == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sasl.password": OTHER}, "_AUTHENTICATION: "),
        ({"sasl.mechanism": "PLAIN", "sasl.password": OTHER}, "_AUTHENTICATION: "),
        ({"sasl.jaas.config": f'x.Login required username="bob" password="{OTHER}";'}, "set kafka.sasl.username"),
        ({"security.protocol": "PLAINTEXT"}, "kafka.security.protocol is PLAINTEXT: it would not be used"),
    ],
)
def test_what_is_wrong_is_said_soon_and_without_the_secret(
    secured: KafkaServer, changed: dict[str, str], words: str, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    began_s = time.monotonic()
    with pytest.raises(HeadraceError) as refused:
        hr.open_system(f"kafka://{secured.bootstrap}", kafka=settings_of(secured, **changed)).streams()
    assert time.monotonic() - began_s < 25
    assert words in str(refused.value)
    out = capfd.readouterr()
    for text in (str(refused.value), repr(refused.value), caplog.text, out.out, out.err):
        assert PASSWORD not in text
        assert OTHER not in text


def test_a_broker_that_asks_for_a_password_is_not_reached_without_one(secured: KafkaServer) -> None:
    with pytest.raises(HeadraceError, match="cannot"):
        hr.open_system(f"kafka://{secured.bootstrap}", kafka={"wait.s": "2"}).streams()


def test_a_client_certificate_opens_a_broker_that_asks_for_one() -> None:
    with KafkaServer(security="ssl") as kafka:
        url = f"kafka://{kafka.bootstrap}"
        shown = {
            "security.protocol": "SSL",
            "ssl.ca.location": str(kafka.tls.ca_pem),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(kafka.tls.client_key_store),
            "ssl.keystore.password": kafka.tls.password,
        }
        with hr.open_system(url, kafka=shown) as system:
            system.create_stream("secured", 1)
            system.produce("secured", [(b"k", b"v")])
            assert [record.value for record in system.consume("secured")] == [b"v"]
        without = {name: value for name, value in shown.items() if "keystore" not in name} | {"wait.s": "3"}
        with pytest.raises(HeadraceError, match=r"cannot list the topics"):
            hr.open_system(url, kafka=without).streams()
