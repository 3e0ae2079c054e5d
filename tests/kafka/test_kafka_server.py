"""The Kafka server of the test kit: real brokers, real signals, read and written by a client of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from headrace.adapters.kafka_server.answers import brokers_known_to
from headrace.adapters.kafka_server.settings import BrokerPorts, ClusterPlan, as_text, server_properties
from headrace.errors import ConfigError, SetupError
from headrace.testing import KafkaServer
from kafka.clients import errors_of, make_topic, read, write

pytestmark = pytest.mark.kafka
SOURCE = Path(__file__).parents[2] / "src"


def holds_within(seconds: float, condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaServer]:
    """To be killed and paused: the broker of all tests holds thousands of partitions, and takes minutes to come back."""
    with KafkaServer() as kafka:
        yield kafka


def test_it_takes_transactions_and_keeps_them_over_a_kill(own_broker: KafkaServer) -> None:
    settings = own_broker.client_settings()
    topic = make_topic(settings)
    write(settings, topic, b"before")
    pid = own_broker.pids[1]
    address = own_broker.bootstrap
    own_broker.kill()
    assert own_broker.pids == {} and not is_running(pid)
    own_broker.restart()
    assert own_broker.bootstrap == address and own_broker.pids[1] != pid
    write(settings, topic, b"after")
    assert read(settings, topic, 2) == [b"before", b"after"]


def test_a_paused_broker_keeps_its_connections_and_answers_nothing(own_broker: KafkaServer) -> None:
    host, _, port = own_broker.bootstrap.partition(":")
    assert brokers_known_to(host, int(port), 10) == {1}
    own_broker.pause()
    try:
        with socket.create_connection((host, int(port)), 5):
            assert brokers_known_to(host, int(port), 0.5) == set()
    finally:
        own_broker.resume()
    assert holds_within(30, lambda: brokers_known_to(host, int(port), 5) == {1})


def test_a_broker_that_it_does_not_have_is_refused(own_broker: KafkaServer) -> None:
    with pytest.raises(ConfigError, match=r"broker 2 .*expected one of \[1\]"):
        own_broker.kill(2)


@pytest.mark.timeout(300)
def test_of_three_brokers_one_may_die() -> None:
    with KafkaServer(brokers=3) as kafka:
        assert sorted(kafka.pids) == [1, 2, 3] and len(kafka.bootstrap.split(",")) == 3
        settings = kafka.client_settings()
        topic = make_topic(settings, replicas=3)
        write(settings, topic, b"by three")
        kafka.kill(2)
        assert sorted(kafka.pids) == [1, 3]
        write(settings, topic, b"by two")
        kafka.restart(2)
        assert sorted(kafka.pids) == [1, 2, 3]
        assert read(settings, topic, 2) == [b"by three", b"by two"]


def test_a_kept_folder_holds_the_topics_for_the_next_one(tmp_path: Path) -> None:
    with KafkaServer(folder=tmp_path) as kafka:
        topic = make_topic(kafka.client_settings())
        write(kafka.client_settings(), topic, b"kept")
    with KafkaServer(folder=tmp_path) as kafka:  # on other ports
        assert read(kafka.client_settings(), topic, 1) == [b"kept"]


def test_a_property_that_kafka_refuses_is_told_in_its_own_words(tmp_path: Path) -> None:
    kafka = KafkaServer(properties={"log.segment.bytes": "many"})
    with pytest.raises(SetupError) as caught:
        kafka.start()
    assert "log.segment.bytes" in caught.value.message
    assert kafka.pids == {}


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SetupError, match=f"port {port} of 127.0.0.1 is taken"):
            KafkaServer(port=port).start()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks into /proc")
def test_broker_and_folder_go_when_the_process_that_started_them_is_killed() -> None:
    code = (
        "from headrace.testing import KafkaServer; kafka = KafkaServer().start(); kafka.pause()\n"
        "print(kafka.pids[1], kafka._folder, flush=True); import time; time.sleep(600)"
    )
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        pid, folder = process.stdout.readline().split()
        assert is_running(int(pid)) and Path(folder).is_dir()
        process.send_signal(signal.SIGKILL)
    assert holds_within(20, lambda: not is_running(int(pid)))
    assert holds_within(20, lambda: not Path(folder).exists())


# --- with TLS and passwords -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaServer]:
    with KafkaServer(security="sasl_ssl", users={"alice": "canary-of-alice", "bob": "canary-of-bob"}) as kafka:
        yield kafka


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_with_the_password_may(secured: KafkaServer, mechanism: str) -> None:
    settings = secured.client_settings(mechanism)
    topic = make_topic(settings)
    write(settings, topic, b"said")
    bob = {**settings, "sasl.username": "bob", "sasl.password": "canary-of-bob"}
    assert read(bob, topic, 1) == [b"said"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_or_an_unknown_authority_is_refused(secured: KafkaServer, mechanism: str) -> None:
    settings = secured.client_settings(mechanism)
    guessed = {**settings, "sasl.password": "guess"}
    assert KafkaError._AUTHENTICATION in errors_of(guessed, KafkaError._AUTHENTICATION)
    without_authority = {name: value for name, value in settings.items() if name != "ssl.ca.location"}
    assert KafkaError._SSL in errors_of(without_authority, KafkaError._SSL)


def test_no_password_is_in_the_log_or_on_display(secured: KafkaServer) -> None:
    assert "canary" not in repr(secured) and "canary" not in repr(secured._started_plan())
    assert "canary" not in secured.last_lines()


def test_with_certificates_only_who_has_one_may() -> None:
    with KafkaServer(security="ssl") as kafka:
        settings = kafka.client_settings()
        topic = make_topic(settings)
        write(settings, topic, b"said")
        assert read(settings, topic, 1) == [b"said"]
        nameless = {name: value for name, value in settings.items() if not name.startswith("ssl.keystore")}
        # in TLS 1.3 the client learns of it when it is done already: the broker hangs up
        assert KafkaError._ALL_BROKERS_DOWN in errors_of(nameless, KafkaError._ALL_BROKERS_DOWN)


# --- what a broker is told --------------------------------------------------------------------------------------------


def plan_of(brokers: int, **properties: str) -> ClusterPlan:
    ports = {node: BrokerPorts(20_000 + node, 21_000 + node, 22_000 + node) for node in range(1, brokers + 1)}
    return ClusterPlan(ports, "plaintext", {}, None, properties)


def test_the_users_properties_win() -> None:
    told = server_properties(plan_of(1, **{"offsets.topic.num.partitions": "50"}), 1, Path("data"))
    assert told["offsets.topic.num.partitions"] == "50"
    assert told["transaction.state.log.replication.factor"] == "1" and told["transaction.state.log.min.isr"] == "1"


@pytest.mark.soak
def test_three_brokers_replicate_and_know_each_other() -> None:
    told = server_properties(plan_of(3), 2, Path("data"))
    assert told["controller.quorum.voters"] == "1@127.0.0.1:22001,2@127.0.0.1:22002,3@127.0.0.1:22003"
    assert told["transaction.state.log.replication.factor"] == "3" and told["min.insync.replicas"] == "2"
    assert all("127.0.0.1" in one for one in told["listeners"].split(","))


def test_properties_are_one_to_a_line() -> None:
    assert as_text({"a": "b\nadmin=yes", "c": "d\\e"}) == "a=b\\nadmin=yes\nc=d\\\\e\n"


@pytest.mark.parametrize("brokers", [0, 10])
def test_a_number_of_brokers_that_makes_no_sense_is_refused(brokers: int) -> None:
    with pytest.raises(ConfigError, match=f"{brokers} brokers"):
        KafkaServer(brokers=brokers)
