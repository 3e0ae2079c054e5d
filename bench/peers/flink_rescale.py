"""A running count of keys in Flink's table engine with RocksDB, whose parallelism changes.

    flink_rescale.py FOLDER KEYS PARALLELISMS

It runs in the environment that `elasticity_pause.py` makes, on a cluster of one process: stopped with a savepoint, started from
it with another parallelism, up to the end of the first record's way through the count. A line is printed for each change:
`changed PARALLELISM STOP_S START_S FIRST_S`.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import Request

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

PORT = 28_081
LOOK_S = 0.02
WAIT_S = 900.0


class Count:
    """`SELECT key, COUNT(*)` over files of keys, and what it has counted."""

    def __init__(self, folder: Path) -> None:
        self.inputs, self.savepoints = folder / "inputs", folder / "savepoints"
        self.inputs.mkdir()
        self.folder, self.files = folder, 0
        self.savepoint = ""

    def write(self, start: int, stop: int) -> None:
        """A file with each of these keys once; it appears as a whole."""
        aside = self.folder / "aside"
        aside.write_text("".join(f"key-{number:09d}\n" for number in range(start, stop)))
        self.files += 1
        aside.rename(self.inputs / f"part-{self.files}.csv")

    def start(self, parallelism: int) -> None:
        settings = {
            "rest.port": str(PORT),
            "rest.bind-address": "127.0.0.1",
            "parallelism.default": str(parallelism),
            "taskmanager.numberOfTaskSlots": str(parallelism),
            "taskmanager.memory.managed.size": "512m",
            "state.backend.type": "rocksdb",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.interval": "1s",
            "execution.checkpointing.dir": (self.folder / "checkpoints").as_uri(),
            "metrics.fetcher.update-interval": "50",
            **({"execution.state-recovery.path": self.savepoint} if self.savepoint else {}),
        }
        made = Configuration()
        for name, value in settings.items():
            made.set_string(name, value)
        tables = TableEnvironment.create(
            EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(made).build()
        )
        tables.execute_sql(
            "CREATE TABLE keys (k STRING) WITH ('connector' = 'filesystem', 'format' = 'csv', "
            f"'path' = '{self.inputs.as_uri()}', 'source.monitor-interval' = '50ms')"
        )
        tables.execute_sql("CREATE TABLE counts (k STRING, n BIGINT) WITH ('connector' = 'blackhole')")
        client = tables.execute_sql("INSERT INTO counts SELECT k, COUNT(*) FROM keys GROUP BY k").get_job_client()
        assert client is not None
        self.job, self.job_id = client, str(client.get_job_id())

    def stop(self) -> None:
        """With a savepoint; returns when it is complete and the job has ended."""
        job = f"jobs/{self.job_id}"
        how = {"targetDirectory": self.savepoints.as_uri(), "formatType": "NATIVE", "drain": False}
        request = self.asked(f"{job}/stop", how)["request-id"]
        while (answer := self.asked(f"{job}/savepoints/{request}"))["status"]["id"] != "COMPLETED":
            time.sleep(LOOK_S)
        self.savepoint = answer["operation"]["location"]
        self.job.get_job_execution_result().result()

    def counted(self) -> int:
        """The records that the count has taken since the start, as Flink's metrics have them."""
        try:
            vertices = self.asked(f"jobs/{self.job_id}")["vertices"]
        except OSError:
            return 0
        return sum(int(one["metrics"]["read-records"]) for one in vertices if "GroupAggregate" in one["name"])

    def asked(self, path: str, body: Any = None) -> Any:
        """What its REST interface answers, to a POST where there is a body."""
        url, data = f"http://127.0.0.1:{PORT}/{path}", None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=30) as answer:
            return json.load(answer)

    def wait_for(self, records: int) -> None:
        began_s = time.monotonic()
        while self.counted() < records:
            if time.monotonic() - began_s > WAIT_S:
                raise SystemExit(f"{self.counted()} of {records} records were counted within {WAIT_S:g} s")
            time.sleep(LOOK_S)


def main() -> None:
    folder, keys, parallelisms = Path(sys.argv[1]), int(sys.argv[2]), [int(text) for text in sys.argv[3].split(",")]
    count = Count(folder)
    count.write(0, keys)
    count.start(1)
    count.wait_for(keys)
    for parallelism in parallelisms:
        time.sleep(3)  # a checkpoint or two
        times_s = [time.monotonic()]
        count.stop()
        times_s.append(time.monotonic())
        count.write(0, 1_000)
        count.start(parallelism)
        times_s.append(time.monotonic())
        count.wait_for(1)
        times_s.append(time.monotonic())
        print("changed", parallelism, *(f"{then - now:.2f}" for now, then in pairwise(times_s)), flush=True)
        count.wait_for(1_000)
    count.stop()


if __name__ == "__main__":
    main()
