"""An engine in this process whose containers are at locations, as those of a cluster are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from headrace.exchange.engine import ContainerWork, DriverAddress
from headrace.wiring.worker import entry
from headrace.worker.inline_engine import InlineEngine

LOCATIONS = {"east": 1, "west": 1}
HERE = threading.local()  # its `location`: where what this thread does takes place


class LocatedEngine(InlineEngine):
    """One container at each location. A test has to say that workers take themselves to be at `HERE.location`."""

    slots, driver_address = 2, DriverAddress("127.0.0.1", "127.0.0.1")

    def __init__(self) -> None:
        super().__init__(entry.run_container)

    def locations(self) -> Mapping[str, int]:
        return LOCATIONS

    def at_home(self, work: ContainerWork, program: Any) -> bytes:
        """The answer of a container at its location."""
        HERE.location = work.location
        (answer,) = InlineEngine.run(self, "", "", [[work]], program)
        return answer

    def on_each_machine(self, work: Callable[[], None], within_s: float) -> None:
        for location in LOCATIONS:
            HERE.location = location
            work()
