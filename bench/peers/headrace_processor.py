"""A processor of the group of bench/groups.py: NAME ENGINE BEGUN TERMS.

It counts keys, exactly once, and says of each count which process it comes from: its id, its process, the count. ENGINE:
`inline` runs that in this process, `spark` in a local Spark. When the program is loaded the file BEGUN gets the time, of
CLOCK_MONOTONIC in s. TERMS are the configuration, as JSON. It runs until it is killed, gets SIGTERM, or its parent ends.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import headrace as hr
from headrace import wiring
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine


def signed_counts(words: Any, who: str) -> Any:
    """The counts of the keys of a stream, each with `who` before it."""

    def signed(batch: Any) -> Any:
        return pc.binary_join_element_wise(pa.scalar(who), pc.cast(batch.column("value"), pa.string()), pa.scalar(" "))

    return words.group_by_key().count(store="counts").to_stream().map_values(hr.batch(signed), value=hr.String())


def counting(name: str, app: hr.App, who: str) -> None:
    signed_counts(app.stream(f"{name}-in", key=hr.Bytes(), value=hr.Bytes()), who).to(f"{name}-out")


def main(build: Callable[[str, hr.App, str], None]) -> None:
    """`build`: adds to the application of that name what it does."""
    name, engine, begun, terms = sys.argv[1:]
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("headrace").setLevel(logging.INFO)
    stopped, parent = threading.Event(), os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    Path(begun).write_text(str(time.monotonic()))
    config = json.loads(terms) | ({"spark.master": "local[1]"} if engine == "spark" else {})
    app = hr.App(name, config=config)
    build(name, app, f"{config['processor_id']} {os.getpid()}")
    job = wiring.start(app, engine=None if engine == "spark" else InlineEngine(run_container))
    while job.is_running and not stopped.wait(0.1) and os.getppid() == parent:
        pass
    if job.is_running:
        job.stop()
    job.wait(0)


if __name__ == "__main__":
    main(counting)
