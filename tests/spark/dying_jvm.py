"""A job whose JVM is killed in the middle of a round, and another in the same process: prints what came of them.

`python dying_jvm.py FOLDER`; one JSON line. In a process of its own: its Spark is nobody else's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import headrace as hr


def main(folder: Path) -> None:
    began = folder / "began"
    url = f"log:{folder / 'data'}"

    def slow_at_first(record: Any) -> int:
        if not began.exists():
            began.touch()
            time.sleep(30)
        return int(record.value)

    def kill_jvm() -> None:
        from pyspark import SparkContext

        while not began.exists():
            time.sleep(0.02)
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)

    def run() -> str:
        app = hr.App("job", url, local_store_dir=str(folder / "stores"), config={"spark.master": "local[2,4]"})
        stream = app.stream("in", key=hr.String(), value=hr.Json())
        stream.map_values(slow_at_first, value=hr.Json()).to("out")
        try:
            app.start(until="caught-up").wait(90)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "caught up"

    with hr.open_system(url) as system:
        system.create_stream("in", 2)
        system.produce("in", [(b"k%d" % (number % 3), b"%d" % number) for number in range(20)])
        threading.Thread(target=kill_jvm, daemon=True).start()
        ends = [run(), run()]
        values = sorted(record.value for record in system.consume("out", key=hr.String(), value=hr.Json()))
    print(json.dumps({"ends": ends, "values": values}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
