"""A processor in a process of its own, for tests that stop and kill it: it reports each moment at which it may work.

    stopped_client.py PORT PROCESSOR_ID TIMEOUT_MS FILE

Lines of FILE: `work SECONDS` by CLOCK_BOOTTIME, and `registered NUMBER SECONDS`.
"""

from __future__ import annotations

import sys
import time

from headrace.adapters.zookeeper.opening import open_group
from headrace.core.group.state import Registration
from headrace.errors import UnavailableError
from headrace.group.layout import GroupName
from headrace.group.lease_keeper import LeaseKeeper


def main(port: str, processor_id: str, timeout_ms: str, file: str) -> None:
    given = {"session.timeout.ms": timeout_ms, "operation.timeout.ms": "1000"}
    group = open_group(f"zookeeper://127.0.0.1:{port}/headrace", given, GroupName("delays"))
    with open(file, "a", encoding="utf-8", buffering=1) as out, LeaseKeeper(group):
        end_s = time.monotonic() + 60
        while time.monotonic() < end_s:
            now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
            if group.lease.holds(now_s):
                out.write(f"work {now_s}\n")
            elif group.sequence is None:
                try:
                    number = group.register(Registration(processor_id, "host-1", 1, "code", "host-1", 1, "1@1", "boot"))
                    out.write(f"registered {number} {time.clock_gettime(time.CLOCK_BOOTTIME)}\n")
                except UnavailableError:
                    pass
            time.sleep(0.005)


if __name__ == "__main__":
    main(*sys.argv[1:])
