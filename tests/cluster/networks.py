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
    if shutil.which("ip") is None:
        raise NoNetworksError("there is no command `ip`: install iproute2")
    names = [f"hr-{os.getpid()}-{side}" for side in "ab"]
    cables = [f"hr{side}{os.getpid() % 100_000}" for side in "ab"]
    made: list[str] = []
    try:
        for name in names:
            _ip("netns", "add", name)
            made.append(name)
        _ip("link", "add", cables[0], "netns", names[0], "type", "veth", "peer", "name", cables[1], "netns", names[1])
        for name, cable, address in zip(names, cables, ADDRESSES, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/30", "dev", cable)
            _ip("-n", name, "link", "set", cable, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        here, there = (
            Network(address, ("ip", "netns", "exec", name)) for name, address in zip(names, ADDRESSES, strict=True)
        )
        yield here, there
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoNetworksError(f"`ip {' '.join(words)}`: {done.stderr.strip()}")
