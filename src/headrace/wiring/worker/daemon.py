"""Spark's daemon of Python workers, with what a container needs loaded. With Spark's own each worker imports that for itself,
for half a second of a processor, and each Spark task that follows a failed one begins with a new worker.

Spark runs it on the machine of the workers, by the setting `spark.python.daemon.module`. What is imported here has to survive a
fork: of the threads that the allocators of pyarrow and numpy have, each child has its own."""

from headrace.adapters.spark.in_worker import fork_workers
from headrace.wiring.worker import engine_rows  # noqa: F401 - loaded for the workers

if __name__ == "__main__":
    fork_workers()
