"""A process that forks a run for each request: it imports everything once, so that a kill costs a fork and not an import.

It answers one JSON line with one JSON line: `{"start": RUN}` gives `{"pid": PID}`; `{"wait": PID}` gives
`{"code": EXIT CODE}`, negative for a signal.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.exchange import fault_injection as steps


def serve(run_of: Callable[..., Any], prepare: Callable[[Any], None], finish: Callable[[Any], int], bound_s: float) -> None:
    """`run_of` makes a run of a request; in the forked process `prepare` is called with it, then `finish`, which gives the
    exit code. One that takes longer than `bound_s`, or the run's own `run_s` where it has one, tells where it is, and ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            answer = {"pid": _forked(run_of(**request["start"]), prepare, finish, bound_s)}
        else:
            answer = {"code": os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])}
        print(json.dumps(answer), flush=True)


def trap_steps(run: Any) -> None:
    """Have this process act at the numbered steps that the run names."""
    os.environ["HEADRACE_TEST_STEPS"], os.environ["HEADRACE_TEST_STEPS_LOG"] = run.traps, run.steps_log
    steps._traps = steps._traps_of(os.environ)


def report_end(run: Any, work: Callable[[], dict[str, Any]]) -> int:
    """The exit code of a run that does this work: 1 if it ended with an error. What it gives is in the report, or the error."""
    try:
        report = {"error": None, **work()}
    except BaseException as error:
        report = {"error": type(error).__name__, "message": str(error)}
    Path(run.report).write_text(json.dumps(report))
    return int(report["error"] is not None)


def print_to_file(run: Any) -> None:
    """What the process prints, its JVM included, goes to the file `said_by`, and what Headrace logs to the run's log."""
    said = os.open(said_by(run), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    log = logging.getLogger("headrace")  # of its own; what others log is printed, as in a program without settings
    log.setLevel(logging.INFO)
    handler = logging.FileHandler(f"{run.report}.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    log.addHandler(handler)
    log.propagate = False


def said_by(run: Any) -> Path:
    """The file of what a run printed."""
    return Path(f"{run.report}.said")


def _forked(run: Any, prepare: Callable[[Any], None], finish: Callable[[Any], int], bound_s: float) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 2
    try:
        os.setpgid(0, 0)
        prepare(run)
        faulthandler.dump_traceback_later(bound_s if not hasattr(run, "run_s") else run.run_s + bound_s, exit=True)
        code = finish(run)
    finally:
        sys.stderr.flush()
        os._exit(code)
