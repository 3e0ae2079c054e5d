"""Which jars are used: each by its coordinates and its SHA-256, read from the `*.pins` files of this package.

A file is a list of `GROUP:NAME:VERSION SHA-256`; it is complete, nothing is looked up by dependency.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PART = re.compile(r"[A-Za-z0-9_.\-]+")


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

    def __post_init__(self) -> None:
        assert all(_PART.fullmatch(part) for part in (self.group, self.name, self.version)), self
        assert _SHA256.fullmatch(self.sha256), self

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

    def __post_init__(self) -> None:
        names = [pin.file_name for pin in self.pins]
        assert names and len(set(names)) == len(names), f"{self.title}: two jars of one name in one folder"


def parsed(lines: Iterable[str]) -> tuple[Pin, ...]:
    """The pins of a file's lines; `#` begins a comment.

    >>> [str(pin) for pin in parsed(["# the log", "org.slf4j:slf4j-api:1.7.36 " + "0" * 64])]
    ['org.slf4j:slf4j-api:1.7.36']
    """
    found = []
    for line in lines:
        text = line.partition("#")[0].strip()
        if text:
            coordinates, sha256 = text.split()
            group, name, version = coordinates.split(":")
            found.append(Pin(group, name, version, sha256))
    return tuple(found)


@functools.cache
def connector() -> Artifacts:
    """What Spark needs to read Kafka."""
    return Artifacts("Spark's Kafka connector", _read("connector"))


@functools.cache
def kafka_server() -> Artifacts:
    """What a Kafka broker is made of."""
    return Artifacts("the Kafka server", _read("kafka_server"))


def _read(name: str) -> tuple[Pin, ...]:
    file = Path(__file__).with_name(f"{name}.pins")
    return parsed(file.read_text(encoding="utf-8").splitlines())
