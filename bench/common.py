"""What the benchmarks share: a system of their own to run on, and peers in Python and in Java, with what these need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.adapters.artifacts import cache, pins
from headrace.testing.kafka_server import KafkaServer

PEERS = Path(__file__).with_name("peers")
QUIX_VERSION = "3.28.1"
FAUST_VERSION = "0.15.3"


@contextmanager
def system_of(kind: str, root: Path, heap_mb: int = 1024) -> Iterator[str]:
    """The URL of a new embedded log (`log`) in the folder `root`, or of a Kafka broker there that runs until the end."""
    if kind == "log":
        yield f"log:{root / 'log'}"
        return
    with KafkaServer(folder=root / "broker", heap_mb=heap_mb) as kafka:
        yield f"kafka://{kafka.bootstrap}"


def python_with(package: str, version: str) -> Path:
    """Python with a peer's package, in an environment beside the jars; it is made at first use."""
    folder = cache.folder_of(None, os.environ).parent / f"bench-{package}-{version}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print(f"installing {package} {version} into {folder}, this once", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"{package}=={version}"], check=True)
        (folder / "complete").touch()
    return python


def kafka_streams_jars() -> str:
    """The class path of Kafka Streams and its test driver; the jars are fetched once."""
    wanted = pins.parsed((PEERS / "kafka_streams.pins").read_text(encoding="utf-8").splitlines())
    folder = cache.folder_of(None, os.environ)
    found = cache.jars_of(pins.Artifacts("Kafka Streams", wanted), folder, lambda line: print(line, file=sys.stderr))
    return ":".join(map(str, found))


def kafka_streams_program(name: str, root: Path, heap_mb: int = 1024) -> list[str]:
    """The command of a program on Kafka Streams; it is compiled below `root` at first use."""
    jars, classes = kafka_streams_jars(), root / "classes" / name
    if not classes.exists():
        subprocess.run(["javac", "-cp", jars, "-d", str(classes), str(PEERS / f"{name}.java")], check=True)
    return ["java", f"-Xmx{heap_mb}m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{classes}:{jars}", name]
