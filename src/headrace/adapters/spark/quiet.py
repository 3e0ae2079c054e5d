"""Owns what of the JVM's standard error reaches the user: everything but known noise.

Python workers' output comes this way too (a `print` in a user's function), so it is filtered, never hidden.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import IO, Any

_NOISE = ("WARNING: Using incubator modules", "WARNING: package sun.", "Using Spark's default log4j profile")
_AT_THE_END = ("BrokenPipeError", "ConnectionResetError", "EOFError", "OSError")  # of idle workers, when Spark stops


def start_gateway(settings: dict[str, str]) -> None:
    """Start the JVM with its standard error going through `filtered`, unless this process has one already."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    # In a session of its own: a signal to our process group is for us, and we stop Spark in order. Its standard input ends
    # with us, and that ends it.
    gateway: Any = launch_gateway(conf, {"stderr": subprocess.PIPE, "start_new_session": True})
    threading.Thread(target=_pass_on, args=(gateway.proc.stderr,), name="headrace-jvm-errors", daemon=True).start()
    SparkContext._ensure_initialized(gateway=gateway)


def _pass_on(pipe: IO[bytes]) -> None:
    for line in filtered(raw.decode("utf-8", "replace") for raw in pipe):
        sys.stderr.write(line)
        sys.stderr.flush()


def filtered(lines: Iterable[str]) -> Iterator[str]:
    """The lines without known noise: some JVM warnings, and the traceback of a worker daemon whose JVM has gone."""
    trace: list[str] = []
    for line in lines:
        if line.startswith("Traceback (most recent call last)"):
            yield from trace
            trace = [line]
        elif trace:
            trace.append(line)
            if not line.startswith((" ", "\t")):  # the exception: the traceback ends
                if not _is_daemon_noise(trace):
                    yield from trace
                trace = []
        elif not line.startswith(_NOISE):
            yield line
    yield from trace


def _is_daemon_noise(trace: list[str]) -> bool:
    frames = [line for line in trace if line.lstrip().startswith("File ")]
    ours = all("pyspark/daemon.py" in frame or "pyspark/worker" in frame for frame in frames)
    return ours and trace[-1].startswith(_AT_THE_END)
