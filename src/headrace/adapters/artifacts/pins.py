"""Which jars are used: each by its coordinates and its SHA-256, read from the `*.pins` files of this package.

A file is a list of `GROUP:NAME:VERSION SHA-256`; it is complete, nothing is looked up by dependency.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Pin:
    """One jar: where a repository has it, and the SHA-256 (lower-case hex) of its bytes.

    >>> Pin("org.slf4j", "slf4j-api", "1.7.36", "0" * 64).file_name
    'slf4j-api-1.7.36.jar'
    """

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Jars that are used together; `title` says what they are, for people."""

    title: str
    pins: tuple[Pin, ...]


def parsed(lines: Iterable[str]) -> tuple[Pin, ...]:
    """The pins of a file's lines; `#` begins a comment.

    >>> [str(pin) for pin in parsed(["# the log", "org.slf4j:slf4j-api:1.7.36 " + "0" * 64])]
    ['org.slf4j:slf4j-api:1.7.36']
    """
    found = []
    for line in lines:
        if text := line.partition("#")[0].strip():
            coordinates, sha256 = text.split()
            group, name, version = coordinates.split(":")
            found.append(Pin(group, name, version, sha256))
    return tuple(found)


def connector() -> Artifacts:
    """What Spark needs to read Kafka."""
    return _read("Spark's Kafka connector", "connector")


def kafka_server() -> Artifacts:
    """What a Kafka broker is made of."""
    return _read("the Kafka server", "kafka_server")


def _read(title: str, name: str) -> Artifacts:
    return Artifacts(title, parsed(Path(__file__).with_name(f"{name}.pins").read_text(encoding="utf-8").splitlines()))
