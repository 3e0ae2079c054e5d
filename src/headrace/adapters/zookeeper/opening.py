"""A processor's group, on the ZooKeeper of an address."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.adapters.zookeeper.connection import connection_of
from headrace.adapters.zookeeper.tree import KazooTree
from headrace.coordination import Clock, boot_time_s
from headrace.group.layout import GroupName
from headrace.group.processor_group import ProcessorGroup


def open_group(url: str, zookeeper: Mapping[str, str], name: GroupName, clock: Clock = boot_time_s) -> ProcessorGroup:
    """The group of `name` at `zookeeper://HOST:PORT,.../ROOT`, with the settings `zookeeper.*` without their prefix. Connected:
    `UnavailableError` if no server answers within `connect.timeout.ms`; `ConfigError` for what is wrong with the address, the
    settings or the credentials, and for nodes that are open to anyone though there are credentials."""
    connection = connection_of(url, zookeeper)
    tree = KazooTree(connection)
    try:
        tree.open()
        group = ProcessorGroup(tree, connection.root, name, clock)
        tree.refuse_open_nodes((group.paths.root, *group.paths.fixed))
    except BaseException:
        tree.close()
        raise
    return group
