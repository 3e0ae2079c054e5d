"""A job of `jobs` in a process of its own that tests kill: `python child.py serve`. It runs as those of `expansion/child.py`
do; `build` is the job's shape."""

from __future__ import annotations

import importlib

import headrace as hr
from chaos.forking import serve
from expansion.child import RUN_S_MAX, Run, finish, keys_of, prepare
from headrace.driver import job
from rewinds.jobs import SETTINGS, SHAPES, TIDY_S


def application(run: Run) -> hr.App:
    return SHAPES[run.build](hr.App(run.name, run.url, **{**keys_of(run), **SETTINGS}))


def prepare_often(run: Run) -> None:
    """It keeps versions as often as tests have patience for, too."""
    job.LOOK_S, job.TIDY_S = 0.05, TIDY_S
    prepare(run)


if __name__ == "__main__":
    importlib.import_module("headrace.wiring.launch")  # here, not in each run: a kill is to cost a fork
    serve(Run, prepare_often, lambda run: finish(run, application), RUN_S_MAX + 10)
