"""The driver's process: it answers each line of JSON with one, keeps one Spark, and runs one job at a time in it."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def serve(applications: Mapping[str, Any], settings: dict[str, str]) -> None:
    from headrace.adapters.artifacts.connector import with_connector
    from headrace.adapters.spark import session
    from headrace.config.loading import Config

    spark = session.started(with_connector(settings, Config().artifact_dir, print), "tests", Path("logs"), [])
    job: Any = None
    answer({"started": True})
    for line in sys.stdin:
        try:
            match json.loads(line):
                case {"start": kind, "until": until, **keys}:
                    job = applications[kind](**keys).start(until=until)
                    answer({"started": True})
                case {"wait": seconds}:
                    job.wait(seconds)
                    answer(job.status())
                case {"executors": _}:
                    answer({"executors": spark.sparkContext._jsc.sc().getExecutorIds().size()})
                case {"call": name, **given}:
                    module, _, function = name.partition(":")
                    answer({"value": getattr(importlib.import_module(module), function)(spark, **given)})
                case {"elasticity": factor}:
                    answer({"id": job.set_elasticity(factor)})
                case {"status": _}:
                    answer(job.status())
                case {"stop": _}:
                    job.stop()
                    answer(job.status())
        except Exception as error:
            logging.getLogger("driver").exception("a command failed")
            answer({"error": f"{type(error).__name__}: {error}"})
    session.released(spark)


def answer(value: dict[str, Any]) -> None:
    print("answer", json.dumps(value, default=str), flush=True)


if __name__ == "__main__":
    logging.basicConfig(filename="driver.log", level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    serve(importlib.import_module(sys.argv[1]).APPLICATIONS, json.loads(sys.argv[2]))
