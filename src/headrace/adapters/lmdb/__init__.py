"""Local state stores on LMDB: caches of committed state, one environment per task (protocol.md 17-19).
`open_task_store` is the way in. Nothing outside this package imports lmdb."""

from headrace.adapters.lmdb.environments import close_idle
from headrace.adapters.lmdb.former_stores import remove_store
from headrace.adapters.lmdb.opening import open_task_store, prepare_task_store
from headrace.adapters.lmdb.store import TaskStore
from headrace.adapters.lmdb.store_status import seal

__all__ = ["TaskStore", "close_idle", "open_task_store", "prepare_task_store", "remove_store", "seal"]
