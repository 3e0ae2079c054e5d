"""Hosts for processors of a group: each has a name, a boot id and a folder of local stores of its own, in namespaces of this
machine. Brokers and ZooKeeper are reached from all of them by loopback."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cluster.machines import BOOT_ID, unshare
from groups.group import Group
from support.children import Children

SCRIPT = Path(__file__).with_name("child.py")
_ENTER = f"""
set -e
mount --make-rprivate /
for folder in $OWN; do mkdir -p "$folder" && mount -t tmpfs -o size=256m none "$folder"; done
mount --bind "$BOOT" {BOOT_ID}
hostname "$NAME"
exec "$@"
"""


@contextmanager
def hosts_of(group: Group, names: Sequence[str], own: Sequence[str] = ("stores",)) -> Iterator[None]:
    """Processors of the group are on the host whose name their id begins with: `host-a.1` on `host-a`. The folders `own`, below
    the group's, are empty on each host at first, and another one on each."""
    group.sees_state = "state" not in own
    with ExitStack() as stack:
        for name in names:
            folder = group.folder / name
            folder.mkdir()
            (folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
            environment = {
                "OWN": " ".join(str(group.folder / one) for one in own),
                "BOOT": str(folder / "boot_id"),
                "NAME": name,
            }
            enter = [*unshare(), "sh", "-c", _ENTER, "sh"]
            group.hosts[name] = stack.enter_context(Children(folder, SCRIPT, enter, environment))
        try:
            yield
        finally:
            group.hosts.clear()


def host_of(id_: str) -> str:
    """The host of a processor.

    >>> host_of("host-a.1")
    'host-a'
    """
    return id_.partition(".")[0]
