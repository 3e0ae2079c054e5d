"""Local state stores on LMDB: caches of committed state, one environment per task (protocol.md 17-19).

`open_task_store` is the way in. Nothing outside this package imports lmdb.
"""

from headrace.adapters.lmdb.environments import close_idle
from headrace.adapters.lmdb.mark import seal
from headrace.adapters.lmdb.opening import StateReader, open_task_store
from headrace.adapters.lmdb.store import TaskStore

__all__ = ["StateReader", "TaskStore", "close_idle", "open_task_store", "seal"]
