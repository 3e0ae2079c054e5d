"""The JVM that Spark runs in: starting one, or taking the one that spark-submit started us from.

A command line is seen by every user of the machine, and an environment is inherited by every process below. So settings
that hold a secret reach the JVM in a file that only this user can read and that is removed once it is read, and the
variables that set them are not handed on."""

from __future__ import annotations

import importlib
import logging
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from headrace.adapters.spark.dead_jvm import end_of, forget_gateway, lost_engine
from headrace.config.keys import handed_on
from headrace.core.secrets import Secrets, holds_secret
from headrace.errors import SetupError
from headrace.exchange.engine import EngineFailure
from headrace.terminal_text import safe_text

Started = TypeVar("Started")
_GATEWAY_PORT, _GATEWAY_SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_DRIVER_OPTIONS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
_LOOK_S = 0.05
_END_S = 2.0  # the pipe ends with the process
_REASON_LINES = 3
_RAISED = re.compile(r'Exception in thread "main" [\w.$]+: (.*)')
_NO_COMMAND = "bad array subscript"
_NOISE = ("WARNING: Using incubator modules", "WARNING: package sun.", "Using Spark's default log4j profile")
_AT_THE_END = ("BrokenPipeError", "ConnectionResetError", "EOFError", "OSError")  # of idle workers, when Spark stops
_jvms: list[subprocess.Popen[bytes]] = []  # that this process has started


def is_submitted() -> bool:
    """Whether spark-submit started this process, from a JVM that waits for us."""
    return _GATEWAY_PORT in os.environ


def submitted_settings() -> dict[str, str]:
    """What spark-submit was given, with its `spark-defaults.conf`; the JVM is connected with this."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def start_gateway(settings: Mapping[str, str], secrets: Secrets) -> None:
    """Start a JVM with these settings and connect with it, unless this process has one already. What it writes comes out on our
    standard error, `filtered`. `SetupError` where it ends before it answers."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        return
    folder = Path(tempfile.mkdtemp(prefix="hr-jvm-"))  # of mode 0700
    try:
        process = _started(settings, secrets, folder)
        _jvms.append(process)
        errors = JvmErrors(process.stdout)  # type: ignore[arg-type]  # it is a pipe
        with suppress(ImportError):  # PySpark does at the first list that it hands to Java; here it waits anyway
            importlib.import_module("pyspark.testing.utils")
        if not _has_started(process, folder / "address"):
            if process.returncode < 0:
                killed = f"Spark's JVM, process {process.pid}, {end_of(process.returncode)} while it started"
                raise SetupError(killed, "start again; is there memory for it?")
            raise SetupError(
                f"Spark's JVM ended while it started, with exit code {process.returncode}: {secrets.cleaned(errors.reason())}",
                "a wrong `spark.*` setting is the usual reason",
            )
        errors.show()
        gateway = _connected((folder / "address").read_bytes())
        gateway.proc = process
        SparkContext._ensure_initialized(gateway=gateway)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def lost_while_starting(error: BaseException) -> EngineFailure | None:
    """That the JVM which this process has started last has ended, where that is why `error` was raised; else None. The next
    start has another one."""
    lost = lost_engine(error, _jvms[-1]) if _jvms else None
    if lost is not None:
        forget_gateway()
    return lost


def _started(settings: Mapping[str, str], secrets: Secrets, folder: Path) -> subprocess.Popen[bytes]:
    from pyspark.find_spark_home import _find_spark_home

    shown, hidden = {}, {}
    for name, value in settings.items():
        if not holds_secret(name, value, secrets):
            shown[name] = value
        else:
            hidden[name] = _in_a_file(value, folder / name) if name in _DRIVER_OPTIONS else value
    command = [str(Path(_find_spark_home()) / "bin" / "spark-submit")]
    command += [word for name, value in shown.items() for word in ("--conf", f"{name}={value}")]
    if hidden:
        properties = folder / "spark.properties"
        properties.touch(mode=0o600)
        properties.write_text("".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in hidden.items()))
        command += ["--properties-file", str(properties), "--load-spark-defaults"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    environment = handed_on(os.environ, secrets)
    environment.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # it prints a command and ends
    environment |= {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / "address")}
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # it ends with us, and that ends the JVM
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,  # a signal to our process group is for us, and we stop Spark in order
    )


def _in_a_file(options: str, file: Path) -> str:
    """Options for Java in a file of arguments, which its launcher reads; what names the file."""
    file.touch(mode=0o600)
    quoted = ['"{}"'.format(option.replace("\\", "\\\\").replace('"', '\\"')) for option in shlex.split(options)]
    file.write_text("\n".join(quoted) + "\n")
    return f"@{file}"


def _escaped(text: str) -> str:
    r"""A name or a value as a file of Java's properties has it.

    >>> _escaped("a=b c"), _escaped("é")
    ('a\\u003db\\u0020c', '\\u00e9')
    """
    units = (unit for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")))
    return "".join(chr(unit) if chr(unit).isascii() and chr(unit).isalnum() else f"\\u{unit:04x}" for unit in units)


def _has_started(process: subprocess.Popen[bytes], file: Path) -> bool:
    """Whether the JVM has written where it is, which it does at once and whole; False once it has ended without that."""
    while not file.exists():
        if process.poll() is not None:
            return file.exists()
        time.sleep(_LOOK_S)
    return True


def _connected(address: bytes) -> Any:
    """Connect with a running JVM, as PySpark does where these variables are set. `address`: its port and the length of the word
    that it wants, 4 bytes each, and the word."""
    from pyspark.java_gateway import launch_gateway

    port, length = struct.unpack(">II", address[:8])
    os.environ |= {_GATEWAY_PORT: str(port), _GATEWAY_SECRET: address[8 : 8 + length].decode()}
    try:
        return launch_gateway()
    finally:
        del os.environ[_GATEWAY_PORT], os.environ[_GATEWAY_SECRET]


def interruptible(start: Callable[[], Started]) -> Started:
    """What `start` gives. A signal that comes meanwhile ends the JVM that is being started, and is raised then. Interrupted
    halfway, PySpark leaves a JVM that waits for ever for a program that has ended; and in the main thread it would put in a
    handler for Ctrl-C that calls the JVM from within another call to it. So Spark is started in another thread."""
    if threading.current_thread() is not threading.main_thread():
        return start()
    result: Future[Started] = Future()

    def work() -> None:
        try:
            result.set_result(start())
        except BaseException as error:
            result.set_exception(error)

    came: list[int] = []

    def on_signal(number: int, frame: Any) -> None:
        logging.disable(logging.CRITICAL)  # py4j logs each call that a JVM which is ended does not answer
        came.append(number)

    thread = threading.Thread(target=work, name="headrace-spark-start", daemon=True)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, on_signal)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
            if came:
                _end_jvms()
    finally:
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)
    if came:
        _end_jvms()
        forget_gateway()
        logging.disable(logging.NOTSET)
        signal.raise_signal(came[0])
    return result.result()


def _end_jvms() -> None:
    for process in _jvms:
        process.kill()


class JvmErrors:
    """The standard error of a JVM, read in a thread: held back while the JVM starts, shown from `show` on, without known noise.
    Python workers' output comes this way too (a `print` in a user's function), so it is filtered, never hidden."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._lock = pipe, threading.Lock()
        self._held: list[str] | None = []
        self._thread = threading.Thread(target=self._read, name="headrace-jvm-errors", daemon=True)
        self._thread.start()

    def show(self) -> None:
        with self._lock:
            held, self._held = self._held or [], None
            for line in held:
                _write(line)

    def reason(self) -> str:
        """Why a JVM that has ended did not start, in a line, without Java's stack."""
        self._thread.join(_END_S)
        with self._lock:
            lines = [line.strip() for line in self._held or () if line.strip() and not line.startswith("\tat ")]
        raised = [found[1] for line in lines if (found := _RAISED.match(line))]
        if any(_NO_COMMAND in line for line in lines):  # Spark's script had none from the Java that is to print it
            return "its launcher, another Java, could not run or was killed"
        return raised[0] if raised else "; ".join(lines[:_REASON_LINES]) or "it said nothing"

    def _read(self) -> None:
        for line in filtered(raw.decode("utf-8", "replace") for raw in self._pipe):
            with self._lock:
                if self._held is None:
                    _write(line)
                else:
                    self._held.append(line)


def _write(line: str) -> None:
    sys.stderr.write(safe_text(line))
    sys.stderr.flush()


def filtered(lines: Iterable[str]) -> Iterator[str]:
    """The lines without known noise: some JVM warnings, and the traceback of a worker daemon whose JVM has ended."""
    trace: list[str] = []
    for line in lines:
        if line.startswith("Traceback (most recent call last)"):
            yield from trace
            trace = [line]
        elif trace:
            trace.append(line)
            if not line.startswith((" ", "\t")):  # the exception: the traceback ends
                frames = [line for line in trace if line.lstrip().startswith("File ")]
                is_daemons = all("pyspark/daemon.py" in frame or "pyspark/worker" in frame for frame in frames)
                if not is_daemons or not trace[-1].startswith(_AT_THE_END):
                    yield from trace
                trace = []
        elif not line.startswith(_NOISE):
            yield line
    yield from trace
