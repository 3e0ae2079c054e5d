"""Connecting: servers that do not answer, credentials, the timeout that is granted, and nothing of kazoo's on the terminal."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from headrace.adapters.zookeeper.connection import connection_of
from headrace.adapters.zookeeper.opening import open_group
from headrace.adapters.zookeeper.tree import KazooTree
from headrace.adapters.zookeeper_server.server import SESSION_TIMEOUT_MS_MAX, ZooKeeperServer
from headrace.core.group.state import ModelOrigin, Registration
from headrace.errors import ConfigError, SetupError, UnavailableError
from headrace.group.layout import GroupName
from headrace.group.lease_keeper import LeaseKeeper
from headrace.group.processor_group import ProcessorGroup
from support.zookeepers import WAIT_S_MAX, RealPlace, wait_until

ME = Registration("a", "host-1", 2, "code-1", "host-1", 17, "1@1", "boot")
DELAYS = GroupName("delays")
ALICE, BOB = ({"digest.username": name, "digest.password": f"tiger-{name}"} for name in ("alice", "bob"))


@pytest.fixture
def opened(real_zookeeper: RealPlace) -> Iterator[Callable[..., ProcessorGroup]]:
    groups = []

    def opened(root: str = "headrace", **settings: str) -> ProcessorGroup:
        given = {name.replace("__", "."): value for name, value in settings.items()}
        group = open_group(f"zookeeper://127.0.0.1:{real_zookeeper.server.port}/{root}", given, DELAYS)
        groups.append(group)
        return group

    yield opened
    for group in groups:
        group.close()


def dotted(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace(".", "__"): value for name, value in settings.items()}


def test_a_server_that_is_not_there_is_an_error_in_time_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    began_s = time.monotonic()
    with pytest.raises(UnavailableError) as caught:
        open_group(f"zookeeper://127.0.0.1:{port}/x", {"connect.timeout.ms": "700"}, DELAYS)
    assert time.monotonic() - began_s < 10
    assert f"ZooKeeper at 127.0.0.1:{port} gave no answer within 0.7 s" in caught.value.message and caught.value.hint
    assert caught.value.message.endswith(f" (127.0.0.1:{port}: connection refused)")


def test_a_name_that_cannot_be_resolved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an ensemble each server with its own cause."""
    resolve = socket.getaddrinfo

    def resolved(host: str, *given: Any, **named: Any) -> Any:
        if host == "zk-1.invalid":
            raise socket.gaierror(-2, "Name or service not known")
        return resolve(host, *given, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with pytest.raises(UnavailableError) as caught:
        open_group("zookeeper://zk-1.invalid:2181/x", {"connect.timeout.ms": "300"}, DELAYS)
    assert caught.value.message.endswith(" (zk-1.invalid:2181: its name cannot be resolved)")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnavailableError) as caught:
        open_group(f"zookeeper://zk-1.invalid:2181,127.0.0.1:{port}/x", {"connect.timeout.ms": "300"}, DELAYS)
    causes = f" (127.0.0.1:{port}: connection refused; zk-1.invalid:2181: its name cannot be resolved)"
    assert caught.value.message.endswith(causes)


def test_a_server_that_takes_connections_and_says_nothing_is_one_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began_s = time.monotonic()
        with pytest.raises(UnavailableError):
            open_group(f"zookeeper://127.0.0.1:{silent.getsockname()[1]}/x", {"connect.timeout.ms": "700"}, DELAYS)
        assert time.monotonic() - began_s < 12


def test_a_paused_server_is_an_error_in_time_and_the_lease_ends(real_zookeeper: RealPlace, opened: Any) -> None:
    group = opened(session__timeout__ms="1200", operation__timeout__ms="500")
    group.register(ME)
    real_zookeeper.server.pause()
    try:
        began_s = time.monotonic()
        with pytest.raises(UnavailableError):
            group.state()
        assert time.monotonic() - began_s < 10
        wait_until(lambda: not group.lease.holds(real_zookeeper.clock()), "the end of the lease")
    finally:
        real_zookeeper.server.resume()
    wait_until(lambda: _answers(group), "an answer")


def test_a_handshake_that_is_never_answered_does_not_cost_the_session(real_zookeeper: RealPlace) -> None:
    """A server that has just started does this now and then."""
    tree = real_zookeeper.tree(4.0)
    group = ProcessorGroup(tree, "/headrace", DELAYS, real_zookeeper.clock)
    number = group.register(ME)
    real_zookeeper.silence(tree, 1)
    real_zookeeper.cut(tree)
    real_zookeeper.heal(tree)
    wait_until(lambda: _answers(group), "an answer")
    assert group.confirm() and group.sequence == number


def test_a_shorter_timeout_that_the_server_grants_counts(opened: Any) -> None:
    group = opened(session__timeout__ms=str(2 * SESSION_TIMEOUT_MS_MAX))
    group.register(ME)
    assert group.lease.timeout_s == SESSION_TIMEOUT_MS_MAX / 1000


def test_a_client_that_connects_at_once_is_heard(real_zookeeper: RealPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former one has given up; the thread that makes the next one is not run for a moment."""
    tree: Any = KazooTree(connection_of(f"zookeeper://127.0.0.1:{real_zookeeper.server.port}/x", {}))
    start = KazooClient.start_async

    def started(client: KazooClient) -> Any:
        found = start(client)
        wait_until(lambda: client.connected, "a connection")
        time.sleep(0.5)
        return found

    try:
        tree.open()
        monkeypatch.setattr(KazooClient, "start_async", started)
        tree._client.handler.has_ended, tree._session = True, None
        assert tree.read("/zookeeper") is not None
    finally:
        tree.close()


def test_a_keeper_extends_the_lease_until_it_is_stopped(opened: Any, real_zookeeper: RealPlace) -> None:
    group = opened(session__timeout__ms="1200")
    group.register(ME)
    with LeaseKeeper(group):
        end_s = time.monotonic() + 3
        while time.monotonic() < end_s:
            assert group.lease.holds(real_zookeeper.clock()) or group.confirm()
            time.sleep(0.05)
        assert group.lease.ends_s > real_zookeeper.clock(), "twice the timeout has passed"
    kept = group.lease
    time.sleep(0.5)
    assert group.lease == kept


def test_nodes_are_for_the_user_who_made_them(opened: Any, real_zookeeper: RealPlace) -> None:
    group = opened(**dotted(ALICE))
    number = group.register(ME)
    group.rest(1)
    assert group.leading(number).propose(1, b"model", ModelOrigin("code-1", "run-1")) and group.join_barrier(1)
    client = KazooClient(f"127.0.0.1:{real_zookeeper.server.port}", auth_data=[("digest", "alice:tiger-alice")])
    client.start(WAIT_S_MAX)
    try:
        paths = list(_below(client, "/headrace"))
        assert len(paths) > 15
        acls = {(acl.id.scheme, acl.id.id.partition(":")[0]) for path in paths for acl in client.get_acls(path)[0]}
    finally:
        client.stop()
        client.close()
    assert acls == {("digest", "alice")}
    for settings in ({}, BOB):
        with pytest.raises(ConfigError) as caught:
            opened(**dotted(settings)).register(ME)
        assert "may not be read or written" in caught.value.message and "tiger" not in str(caught.value)
    assert len(opened(**dotted(ALICE)).state().members) == 1


def test_open_nodes_are_refused_where_there_are_credentials(opened: Any) -> None:
    opened().register(ME)
    with pytest.raises(ConfigError, match="can be changed by anyone"):
        opened(**dotted(ALICE))
    opened(root="other", **dotted(ALICE)).register(ME)


def test_each_node_that_anyone_may_change_is_refused(opened: Any, real_zookeeper: RealPlace) -> None:
    """Who changes what is to be kept, or who was stopped, takes part in the group as much as who registers."""
    group = opened(**dotted(ALICE))
    group.register(ME)
    client = KazooClient(f"127.0.0.1:{real_zookeeper.server.port}", auth_data=[("digest", "alice:tiger-alice")])
    client.start(WAIT_S_MAX)
    try:
        paths = [group.paths.root, *(f"{group.paths.root}/{name}" for name in client.get_children(group.paths.root))]
        assert len(paths) == 10
        for path in paths:
            own, _ = client.get_acls(path)
            client.set_acls(path, OPEN_ACL_UNSAFE)
            with pytest.raises(ConfigError, match=f"{path} can be changed by anyone"):
                opened(**dotted(ALICE))
            client.set_acls(path, own)
    finally:
        client.stop()
        client.close()
    opened(**dotted(ALICE))


def test_a_root_may_be_below_a_node_that_its_user_may_not_read(opened: Any, real_zookeeper: RealPlace) -> None:
    admin, alice = make_digest_acl("admin", "secret", all=True), make_digest_acl("alice", "tiger-alice", all=True)
    both = [("digest", "admin:secret"), ("digest", "alice:tiger-alice")]
    client = KazooClient(f"127.0.0.1:{real_zookeeper.server.port}", auth_data=both)
    client.start(WAIT_S_MAX)
    client.create("/prod", acl=[admin])
    client.create("/prod/headrace", acl=[alice, admin])
    group = opened("prod/headrace", **dotted(ALICE))
    try:
        assert group.register(ME) == 0
        with pytest.raises(ConfigError, match="/prod/headrace may not be read or written"):
            opened("prod/headrace/bobs", **dotted(BOB)).register(ME)
    finally:
        group.close()
        client.delete("/prod", recursive=True)
        client.stop()
        client.close()


def test_without_credentials_there_is_a_warning(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        opened(root="other", **dotted(ALICE))
        assert not caplog.records
        opened()
    assert "read and written by anyone" in caplog.text and "zookeeper.digest.username" in caplog.text


@pytest.fixture
def own_zookeeper(without_server: Callable[[str, str], NoReturn]) -> Iterator[ZooKeeperServer]:
    """A server with a user of its own."""
    try:
        server = ZooKeeperServer(users={"carol": "tiger-carol"}).start()
    except SetupError as error:
        without_server("ZooKeeper", error.message)
    yield server
    server.stop()


def test_sasl_logs_in_and_a_wrong_password_is_refused(own_zookeeper: ZooKeeperServer) -> None:
    server = own_zookeeper
    given = {"sasl.mechanism": "DIGEST-MD5", "sasl.username": "carol", "session.timeout.ms": "2000"}
    url = f"zookeeper://{server.address}/headrace"
    group = open_group(url, {**given, "sasl.password": "tiger-carol"}, DELAYS)
    group.register(ME)
    with pytest.raises(ConfigError) as caught:
        open_group(url, {**given, "sasl.password": "tiger-wrong"}, DELAYS)
    assert "refuses the credentials" in caught.value.message and "tiger" not in str(caught.value)
    with pytest.raises(ConfigError, match="may not be read or written"):
        open_group(url, {}, DELAYS).register(ME)
    server.restart()
    wait_until(lambda: _answers(group), "an answer, after it has logged in again")
    assert len(group.state().members) == 1
    group.close()


TALKATIVE = """
import logging, os, signal, sys, time
logging.basicConfig(level=0, stream=sys.stderr)
from headrace.adapters.zookeeper.connection import connection_of
from headrace.adapters.zookeeper.opening import open_group
from headrace.adapters.zookeeper.tree import KazooTree
from headrace.errors import HeadraceError
from headrace.group.layout import GroupName
server, port = int(sys.argv[1]), sys.argv[2]
given = {"digest.username": "alice", "digest.password": "tiger-alice"}
given |= {"session.timeout.ms": "1000", "operation.timeout.ms": "300"}
group = open_group(f"zookeeper://127.0.0.1:{port}/headrace", given, GroupName("delays"))
os.kill(server, signal.SIGKILL)
try:
    group.state()
except HeadraceError as error:
    print(f"told: {error}")
time.sleep(2)
group.close()
"""


def test_nothing_of_the_client_and_no_secret_is_on_the_terminal(real_zookeeper: RealPlace) -> None:
    """A connection that is lost and does not come back, with the loudest logging there is."""
    server = real_zookeeper.server
    done = subprocess.run(
        [sys.executable, "-c", TALKATIVE, str(server.pid), str(server.port)],
        capture_output=True, text=True, check=False, timeout=90, env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "told: ZooKeeper at" in said
    for word in ("tiger", "kazoo", "Traceback", "org.apache", "Connection dropped"):
        assert word not in said, said


def _below(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for name in client.get_children(path):
        yield from _below(client, f"{path}/{name}")


def _answers(group: ProcessorGroup) -> bool:
    try:
        group.confirm()
    except UnavailableError:
        return False
    return True
