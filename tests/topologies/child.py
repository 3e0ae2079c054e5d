"""A random topology that dies: `python child.py CASE.json` runs it until it has caught up; tests kill it at a step."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import wiring
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from topologies.building import build
from topologies.recording import recording
from topologies.spec import Spec


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    told = os.open(given["told"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(plan: Any) -> None:
        os.write(told, json.dumps(plan).encode() + b"\n")  # in one call: a kill leaves all of it or nothing

    with hr.open_system(given["keys"]["system"]) as system:
        app = build(Spec(**given["spec"]), **given["keys"])
        engine = InlineEngine(recording(run_container, lambda: system, write))
        wiring.start(app, "caught-up", engine=engine).wait(100)


if __name__ == "__main__":
    main()
