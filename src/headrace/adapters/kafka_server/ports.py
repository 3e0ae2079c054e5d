"""The choice of free loopback ports. Below the range that the system gives to connections: a broker that was
killed must find its ports free when it comes back."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

_LOWEST, _HIGHEST = 20_000, 32_000
_TRIES = 2_000


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(host: str) -> Iterator[int]:
    """Different free ports, at random, so that two processes hardly try the same; ends after `_TRIES`."""
    for port in random.SystemRandom().sample(range(_LOWEST, _HIGHEST), _TRIES):
        if is_free(host, port):
            yield port
