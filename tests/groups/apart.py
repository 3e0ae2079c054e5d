"""Two networks: in one are Kafka, ZooKeeper and who tests, and from the other each of the servers is reached by a cable of its
own, which can be pulled."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster.networks import NoNetworksError, made_networks, run_ip
from headrace.adapters.kafka_server.settings import BrokerPorts
from headrace.adapters.zookeeper_server.server import ZooKeeperServer
from headrace.testing import KafkaServer

KAFKA, ZOOKEEPER = ("10.213.79.1", 19_092), ("10.213.79.2", 12_181)
_CABLES = {"kafka": ("10.213.78.1", "10.213.78.2"), "zookeeper": ("10.213.78.5", "10.213.78.6")}  # here, there
_SERVERS = {"kafka": KAFKA, "zookeeper": ZOOKEEPER}
_PORTS = BrokerPorts(client=KAFKA[1], internal=KAFKA[1] + 1, controller=KAFKA[1] + 2)
_CLONE_NEWNET = 0x4000_0000


@dataclass(frozen=True)
class Apart:
    """`enter`: a command that runs its arguments in the other network. This thread, and what it starts, is in the first one."""

    kafka: KafkaServer
    zookeeper: ZooKeeperServer
    enter: Sequence[str]
    here: str

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*KAFKA)

    @property
    def coordinator(self) -> str:
        return "zookeeper://{}:{}/headrace".format(*ZOOKEEPER)

    def pull(self, server: str) -> None:
        """The other network does not reach the server any more: nothing is refused, nothing arrives."""
        run_ip("-n", self.here, "link", "set", _cable(server), "down")

    def plug(self, server: str) -> None:
        run_ip("-n", self.here, "link", "set", _cable(server), "up")
        run_ip("-n", self.here, "route", "replace", f"{_CABLES[server][1]}/32", "dev", _cable(server))


@contextmanager
def networks_apart() -> Iterator[Apart]:
    """`NoNetworksError` where they cannot be made."""
    with ExitStack() as stack:
        here, there = stack.enter_context(made_networks("here", "there"))
        for address, _ in _SERVERS.values():
            run_ip("-n", here, "addr", "add", f"{address}/32", "dev", "lo")
        for server, (near, far) in _CABLES.items():
            cable = _cable(server)
            run_ip("link", "add", cable, "netns", here, "type", "veth", "peer", "name", cable, "netns", there)
            for network, address in ((here, near), (there, far)):
                run_ip("-n", network, "addr", "add", f"{address}/30", "dev", cable)
                run_ip("-n", network, "link", "set", cable, "up")
            run_ip("-n", there, "route", "add", f"{_SERVERS[server][0]}/32", "via", near)
        stack.enter_context(_inside(here))
        kafka = stack.enter_context(_Kafka(properties=_listeners()))
        zookeeper = stack.enter_context(ZooKeeperServer(port=ZOOKEEPER[1], settings={"clientPortAddress": "0.0.0.0"}))
        yield Apart(kafka, zookeeper, ("ip", "netns", "exec", there), here)


class _Kafka(KafkaServer):
    """Its ports are known before it starts: all are free in a network that was just made."""

    def _free_ports(self) -> dict[int, BrokerPorts]:
        return {1: _PORTS}


def _listeners() -> dict[str, str]:
    """Clients are told an address that both networks reach."""
    internal, controller = f"INTERNAL://127.0.0.1:{_PORTS.internal}", f"CONTROLLER://127.0.0.1:{_PORTS.controller}"
    return {
        "listeners": f"CLIENT://0.0.0.0:{_PORTS.client},{internal},{controller}",
        "advertised.listeners": "CLIENT://{}:{},".format(*KAFKA) + internal,
    }


def _cable(server: str) -> str:
    return f"hr{server[0]}{os.getpid() % 100_000}"


@contextmanager
def _inside(network: str) -> Iterator[None]:
    """This thread, with the threads and processes that it begins, is in a network."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    other = os.open(Path("/run", "netns", network), os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if libc.setns(other, _CLONE_NEWNET):
            raise NoNetworksError(f"setns: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            assert libc.setns(own, _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(own)
        os.close(other)
