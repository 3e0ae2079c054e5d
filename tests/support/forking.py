"""A process that forks a run for each request: it imports everything once, so that a kill costs a fork and not an import.

It answers one JSON line with one JSON line: `{"start": RUN}` gives `{"pid": PID}`; `{"wait": PID}` gives
`{"code": EXIT CODE}`, negative for a signal.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from collections.abc import Callable
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
