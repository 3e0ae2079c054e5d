"""`headrace zookeeper start`: a ZooKeeper server in the foreground, to try standalone groups."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.output import fail, print_json, say
from headrace.cli.targets import JsonOption, whole_number
from headrace.wiring.zookeeper_server import ZooKeeperServer

START_EXAMPLES = """\
headrace zookeeper start
headrace zookeeper start --port 2182 --dir zookeeper-data"""
_LOOK_S = 0.5


def start(
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
    try:
        with ZooKeeperServer(port=port, folder=folder) as zookeeper:
            _announce(zookeeper, folder, json)
            while zookeeper.pid is not None:
                time.sleep(_LOOK_S)
            fail(f"the ZooKeeper server ended. The end of its log:\n{zookeeper.last_lines()}")
    except KeyboardInterrupt:  # SIGTERM too: both are how it is meant to end
        say("ZooKeeper is stopped" if folder is None else f"ZooKeeper is stopped; its data stay in {folder}")


def _announce(zookeeper: ZooKeeperServer, folder: Path | None, json: bool) -> None:
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
