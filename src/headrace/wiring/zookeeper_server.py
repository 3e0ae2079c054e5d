"""The ZooKeeper server for trials, for commands."""

from headrace.adapters.zookeeper_server.server import ZooKeeperServer

__all__ = ["ZooKeeperServer"]
