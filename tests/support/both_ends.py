"""How `pytest -n N --dist loadfile` spreads the tests: the second process begins at the other end, and they meet.

All but the second begin with the files that need most (Spark, killed processes, brokers), the second with those that need
nothing but the processor. So the waiting of some is the time of others. A file's tests stay in one process, in order.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

FROM_THE_END = "gw1"


class FromBothEnds(LoadFileScheduling):
    """Gives the second process the last file that is left, any other the next one."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # the order of `heaviest_files_first` counts

    def _assign_work_unit(self, node: Any) -> None:
        if node.gateway.id == FROM_THE_END:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
