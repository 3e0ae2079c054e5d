"""How `pytest -n 2 --dist loadfile` spreads the tests: the two processes begin at opposite ends, and meet.

The first begins with the files that need most (Spark, killed processes, brokers), the other with those that need nothing but
the processor. So one process's waiting is the other's time, and for most of a run two Sparks do not share the processor. A
file's tests stay in one process, in order.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

FIRST = "gw0"


class FromBothEnds(LoadFileScheduling):
    """Gives the first process the next file, any other process the last one that is left."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # the order of `heaviest_files_first` counts

    def _assign_work_unit(self, node: Any) -> None:
        if node.gateway.id != FIRST:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
