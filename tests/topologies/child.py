"""A random topology that dies: `python child.py SPEC.json` runs it until it has caught up; tests kill it at a step."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headrace import wiring
from headrace.runtime.inline_engine import InlineEngine
from headrace.wiring.worker import run_container
from topologies.topology import Spec, build


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    app = build(Spec(**given["spec"]), **given["keys"])
    wiring.start(app, "caught-up", engine=InlineEngine(run_container)).wait(100)


if __name__ == "__main__":
    main()
