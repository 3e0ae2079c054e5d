"""Two network namespaces, each with an address, and a cable in between: loopback of one is not loopback of the other."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

ADDRESSES = ("10.213.77.1", "10.213.77.2")


class NoNetworksError(Exception):
    """There is no command `ip`, or this user may not make networks."""


@dataclass(frozen=True)
class Network:
    """`enter`: a command that runs its arguments there."""

    address: str
    enter: Sequence[str]


@contextmanager
def two_networks() -> Iterator[tuple[Network, Network]]:
    """`NoNetworksError` where they cannot be made."""
    cables = [f"hr{side}{os.getpid() % 100_000}" for side in "ab"]
    with made_networks("a", "b") as names:
        run_ip("link", "add", cables[0], "netns", names[0], "type", "veth", "peer", "name", cables[1], "netns", names[1])
        for name, cable, address in zip(names, cables, ADDRESSES, strict=True):
            run_ip("-n", name, "addr", "add", f"{address}/30", "dev", cable)
            run_ip("-n", name, "link", "set", cable, "up")
        here, there = (
            Network(address, ("ip", "netns", "exec", name)) for name, address in zip(names, ADDRESSES, strict=True)
        )
        yield here, there


@contextmanager
def made_networks(*sides: str) -> Iterator[list[str]]:
    """The names of network namespaces with a loopback each, which no cable leaves. `NoNetworksError` where there are none."""
    if shutil.which("ip") is None:
        raise NoNetworksError("there is no command `ip`: install iproute2")
    made: list[str] = []
    try:
        for side in sides:
            name = f"hr-{os.getpid()}-{side}"
            run_ip("netns", "add", name)
            made.append(name)
            run_ip("-n", name, "link", "set", "lo", "up")
        yield made
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


def run_ip(*words: str) -> None:
    """`NoNetworksError` where the command fails."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoNetworksError(f"`ip {' '.join(words)}`: {done.stderr.strip()}")
