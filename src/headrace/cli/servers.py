"""`headrace kafka start`, `headrace zookeeper start`: a server in the foreground, to try things without Docker."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.output import fail, print_json, say
from headrace.cli.targets import JsonOption, whole_number
from headrace.wiring.kafka_server import KafkaServer
from headrace.wiring.zookeeper_server import ZooKeeperServer

KAFKA_EXAMPLES = """\
headrace kafka start
headrace kafka start --port 9093 --dir kafka-data"""
ZOOKEEPER_EXAMPLES = """\
headrace zookeeper start
headrace zookeeper start --port 2182 --dir zookeeper-data"""
_LOOK_S = 0.5
_HEAP_MB = 512
_AGAIN = "start it again; with --dir its data are kept"


def start_kafka(
    port: Annotated[
        int, typer.Option(parser=whole_number(1, 65_535), metavar="N", help="The port on 127.0.0.1 for clients.")
    ] = 9092,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Folder that keeps the data; without it they are deleted at the end.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Start a real Kafka broker on this machine, and keep it until Ctrl-C.

    For trials: one broker, no password, reachable from this machine only. Needs Java; fetches Kafka (43 MB) once. With
    --dir a later start continues with the same topics.
    """
    with _kept_until_stopped("Kafka", folder), KafkaServer(port=port, folder=folder, heap_mb=_HEAP_MB, tell=say) as kafka:
        _announce_kafka(kafka, folder, json)
        while kafka.pids:
            time.sleep(_LOOK_S)
        fail(f"the Kafka broker ended. The end of its log:\n{kafka.last_lines()}", _AGAIN)


@contextmanager
def _kept_until_stopped(name: str, folder: Path | None) -> Iterator[None]:
    """Until Ctrl-C, or SIGTERM: both are how it is meant to end."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"{name} is stopped" if folder is None else f"{name} is stopped; its data stay in {folder}")


def _announce_kafka(kafka: KafkaServer, folder: Path | None, json: bool) -> None:
    system = f"kafka://{kafka.bootstrap}"
    if json:
        where = None if folder is None else str(folder.absolute())
        pid = next(iter(kafka.pids.values()))
        print_json({"bootstrap": kafka.bootstrap, "system": system, "dir": where, "pid": pid})
    else:
        print(f"Kafka is at {kafka.bootstrap}; Ctrl-C stops it")
        print("its data go when it stops (--dir DIR keeps them)" if folder is None else f"its data are in {folder}")
        print("In another terminal:")
        print(f"  headrace stream create words --partitions 4 --system {system}")
        print(f"  headrace stream list --system {system}")
        print(f'and in an application: hr.App("words", system="{system}")')
    # a reader of a pipe waits for these lines, and the command keeps running
    sys.stdout.flush()


def start_zookeeper(
    port: Annotated[
        int, typer.Option(parser=whole_number(1, 65_535), metavar="N", help="The port on 127.0.0.1 for clients.")
    ] = 2181,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Folder that keeps the data; without it they are deleted at the end.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Start a real ZooKeeper server on this machine, and keep it until Ctrl-C.

    For trials of standalone groups (docs/groups.md): one server, no password, reachable from this machine only. Needs Java;
    the server is among PySpark's jars.
    """
    with _kept_until_stopped("ZooKeeper", folder), ZooKeeperServer(port=port, folder=folder) as zookeeper:
        _announce_zookeeper(zookeeper, folder, json)
        while zookeeper.pid is not None:
            time.sleep(_LOOK_S)
        fail(f"the ZooKeeper server ended. The end of its log:\n{zookeeper.last_lines()}", _AGAIN)


def _announce_zookeeper(zookeeper: ZooKeeperServer, folder: Path | None, json: bool) -> None:
    coordinator = f"zookeeper://{zookeeper.address}/headrace"
    if json:
        where = None if folder is None else str(folder.absolute())
        print_json({"address": zookeeper.address, "coordinator": coordinator, "dir": where, "pid": zookeeper.pid})
    else:
        print(f"ZooKeeper is at {zookeeper.address}; Ctrl-C stops it")
        print("its data go when it stops (--dir DIR keeps them)" if folder is None else f"its data are in {folder}")
        print("In other terminals, with an id for each:")
        print(f"  headrace run APP --coordinator {coordinator} --processor-id a")
    # a reader of a pipe waits for these lines, and the command keeps running
    sys.stdout.flush()
