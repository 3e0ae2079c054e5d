"""The Spark session: starting one with what Headrace needs, or taking a user's own."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.adapters.spark import required_settings
from headrace.adapters.spark.class_archive import LATER_OPTIMIZED, archive_options
from headrace.adapters.spark.dead_jvm import hide_what_is_raised, keep_quiet
from headrace.adapters.spark.failures import failure_of, is_of_spark
from headrace.adapters.spark.gateway import (
    interruptible,
    is_submitted,
    lost_while_starting,
    start_gateway,
    submitted_settings,
)
from headrace.adapters.spark.required_settings import CLUSTER_SETTINGS, SESSION_SETTINGS, START_SETTINGS
from headrace.core.secrets import Secrets, redaction_pattern, secret_values
from headrace.environment import checked_java
from headrace.errors import NotSupportedError, SetupError
from headrace.exchange.engine import DriverAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession  # noqa: PLC0414 - named here for types elsewhere

LOG = logging.getLogger("headrace")
_PATTERN, _OPTIONS_PATTERN = "spark.redaction.regex", "spark.sql.redaction.options.regex"
_OPTIONS_HIDDEN_BY_SPARK = "(?i:url)"  # the default of the latter
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_DAEMON = "headrace.wiring.worker.daemon"
_SOCKET_FOLDER_MAX = 60  # the path of a Unix socket has 107 bytes, and Spark's names for sockets up to 46
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
logger.procfs.name = org.apache.spark.executor.ProcfsMetricsGetter
logger.procfs.level = off
logger.kafkasource.name = org.apache.spark.sql.kafka010.KafkaSourceProvider
logger.kafkasource.level = error
"""


def slots_of(session: Any) -> int:
    return max(1, int(session.sparkContext.defaultParallelism))


def driver_address_of(session: Any) -> DriverAddress | None:
    """Where executors reach this process, by Spark's settings; None where they are in this process."""
    if is_in_one_process(session.sparkContext.master):
        return None
    settings = session.sparkContext.getConf()
    host = settings.get("spark.driver.host")
    return DriverAddress(host, settings.get("spark.driver.bindAddress", host))


def started(
    settings: Mapping[str, str], application: str, log_dir: Path, python_path: list[str], secrets: Sequence[str] = ()
) -> Any:
    """A session with our settings. `SetupError` without Java, and where Spark cannot be started with them; `NotSupportedError`
    with those that `required_settings` refuses, wherever they are. Logs of the JVM go to `log_dir`/spark.log. `secrets` are
    values that must not be shown, besides those that the names in `settings` tell. A process has one Spark: where one runs
    already this is a session within it. Given back by `released`, not by its `stop`. Where spark-submit started this process,
    what it was given counts before our settings, and after `settings`."""
    java = checked_java(os.environ)
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = SparkContext._active_spark_context
    if running is not None and running._jsc is not None:
        return _used(session_within(SparkSession(running)))

    values = [*secrets, *secret_values(settings)]
    hide_what_is_raised()

    def start() -> Any:
        submitted = submitted_settings() if is_submitted() else {}
        chosen = _chosen(settings, submitted, application, log_dir, values)
        early = {"spark.dynamicAllocation.minExecutors": "1", **chosen}  # a file of Spark's own may say more
        required_settings.check(early.get, on_cluster=not is_in_one_process(chosen["spark.master"]))
        if not submitted:
            given = (archive_options(java.version, os.environ), LATER_OPTIMIZED, chosen[_JAVA_OPTIONS])
            chosen[_JAVA_OPTIONS] = " ".join(filter(None, given))
        _set_environment(python_path, chosen)
        if not is_submitted():
            start_gateway(chosen, Secrets(values))
        builder = SparkSession.builder
        for name, value in chosen.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    try:
        made = _configured(interruptible(start))
        required_settings.check(made.sparkContext.getConf().get, on_cluster=not is_in_one_process(made.sparkContext.master))
    except NotSupportedError:
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        raise
    except Exception as error:
        hint = f"check the `spark.*` settings; {log_dir / 'spark.log'} says more"
        if lost := lost_while_starting(error):
            raise SetupError(f"{lost.message} while it started", "start again; is there memory for it?") from None
        if not is_of_spark(error):
            raise
        said = Secrets(values).cleaned(failure_of(error).message)  # without Java's stack
        raise SetupError(f"Spark cannot be started: {said}", hint) from None
    _users[made.sparkContext.applicationId] = 0
    return _used(made)


def _chosen(
    settings: Mapping[str, str], submitted: Mapping[str, str], application: str, log_dir: Path, secrets: Sequence[str]
) -> dict[str, str]:
    """All settings of a Spark that is to be started, each from the last of: ours, spark-submit's, the user's. The master is
    spark-submit's, whatever the user's settings say: its JVM and its files are for that one."""
    cores = os.cpu_count() or 1
    local = f"local[{cores},4]"  # a dead Python worker costs one Spark task, not the round
    master = {"spark.master": local, **settings, **submitted}["spark.master"]
    if settings.get("spark.master", master) != master:
        LOG.warning("spark.master is %s, as spark-submit was given; %s is ignored", master, settings["spark.master"])
    ours = {
        "spark.app.name": application,
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ui.retainedExecutions": "50",
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "100",
    }
    if is_in_one_process(master):
        ours["spark.driver.host"] = ours["spark.driver.bindAddress"] = "127.0.0.1"
        ours["spark.python.unix.domain.socket.dir"] = str(_folder(_SOCKET_FOLDER_MAX))
        ours["spark.sql.shuffle.partitions"] = str(cores)
        ours["spark.python.daemon.module"] = _DAEMON  # elsewhere an executor may find Headrace only after its daemon has begun
    else:
        ours |= CLUSTER_SETTINGS
    given = dict(submitted)
    if submitted.get("spark.app.name") == Path(sys.argv[0]).name:  # by default it is the program's
        del given["spark.app.name"]
    chosen = {**ours, **START_SETTINGS, **SESSION_SETTINGS, **given, **settings, "spark.master": master}
    if not submitted:
        chosen.setdefault("spark.driver.memory", "1g")
        java = f"-Dlog4j2.configurationFile=file:{_log4j(log_dir)} -XX:+UseParallelGC"
        chosen[_JAVA_OPTIONS] = f"{java} {settings.get(_JAVA_OPTIONS, '')}".strip()
    chosen[_PATTERN] = redaction_pattern(secrets, chosen.get(_PATTERN))
    chosen[_OPTIONS_PATTERN] = redaction_pattern((), chosen.get(_OPTIONS_PATTERN, _OPTIONS_HIDDEN_BY_SPARK))
    return chosen


def _folder(length_max: int = 4096) -> Path:
    """A folder that goes with this process. Where the path is longer than `length_max` bytes, it is made in /tmp."""
    made = Path(tempfile.mkdtemp(prefix="hr-"))
    if len(os.fsencode(made)) > length_max:
        made.rmdir()
        made = Path(tempfile.mkdtemp(prefix="hr-", dir="/tmp"))
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a process that was forked from it ends too
            shutil.rmtree(made, ignore_errors=True)

    atexit.register(remove)
    return made


def _log4j(log_dir: Path) -> Path:
    log_dir.mkdir(parents=True, exist_ok=True)
    file = _folder() / "log4j2.properties"
    file.write_text(_LOG4J.format(file=(log_dir / "spark.log").absolute()))
    return file


def _set_environment(python_path: list[str], chosen: Mapping[str, str]) -> None:
    """What Spark and its Python workers go by: the Python, and where modules are."""
    if is_in_one_process(chosen["spark.master"]):
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # the UI and all ports stay on this machine
    elif not is_submitted():
        # An executor that has no such Python is rejected by the name of its host.
        os.environ.setdefault("PYSPARK_PYTHON", chosen.get("spark.pyspark.python", sys.executable))
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([path for path in [*python_path, *known] if path])


_users: dict[str, int] = {}  # Spark applications that were started here: how many sessions of ours are in use


def _used(session: Any) -> Any:
    application = session.sparkContext.applicationId
    if application in _users:
        _users[application] += 1
    return session


def released(session: Any) -> None:
    """Give back a session that `started` gave; the last one of a Spark that was started there stops it. Nothing where somebody
    has stopped that Spark already."""
    if session.sparkContext._jsc is None:
        return
    application = session.sparkContext.applicationId
    if application not in _users:
        return
    _users[application] -= 1
    if _users[application] <= 0:
        del _users[application]
        session.stop()


def session_within(given: Any) -> Any:
    """A session of our own within the user's Spark application."""
    if "connect" in type(given).__module__:
        raise NotSupportedError(
            "a Spark Connect session was given: its driver is elsewhere, and rounds cannot be placed or cancelled from here",
            "give a classic SparkSession, or none",
        )
    context = given.sparkContext
    required_settings.check(context.getConf().get, on_cluster=not is_in_one_process(context.master))
    session = given.newSession()
    session.conf.set(_OPTIONS_PATTERN, redaction_pattern((), session.conf.get(_OPTIONS_PATTERN)))
    return _configured(session)


def settings_of(session: Any) -> dict[str, str]:
    return dict(session.sparkContext.getConf().getAll())


_added_jars: dict[str, set[str]] = {}  # by Spark application: the names of jars that its executors were sent
_of_their_own: set[str] = set()  # Spark applications whose own class loader alone has the jars


def add_jars(session: Any, jars: Sequence[Path]) -> None:
    """Give jars to a Spark that runs already; a thread that uses them calls `see_added_jars` first."""
    quiet = session._jvm.org.apache.logging.log4j
    # It warns at every load of a group id, which here never joins anything: some lines per round.
    quiet.core.config.Configurator.setLevel("org.apache.spark.sql.kafka010.KafkaSourceProvider", quiet.Level.ERROR)
    loader = _loader_of_all(session)
    if loader is not None:
        there = {Path(url.getPath()).name for url in loader.getURLs()}
        for jar in jars:
            if jar.name not in there:
                loader.addURL(session._jvm.java.io.File(str(jar)).toURI().toURL())
    else:
        _of_their_own.add(session.sparkContext.applicationId)
    if loader is None or not is_in_one_process(session.sparkContext.master):
        _send(session, jars)


def is_in_one_process(master: str) -> bool:
    """Whether a master means that Spark tasks run in the driver's JVM."""
    return master == "local" or master.startswith("local[")


def _loader_of_all(session: Any) -> Any:
    """The class loader under those of every Spark in this JVM, which spark-submit makes; None where there is none. A class of
    the connector must be loaded once per JVM: it registers its settings by their names when it is loaded, and a second Spark
    that loads it again (each has class loaders of its own for added jars) fails on names that are taken."""
    loader, found = session._jvm.java.lang.Thread.currentThread().getContextClassLoader(), None
    while loader is not None:
        if loader.getClass().getName() == "org.apache.spark.util.MutableURLClassLoader":
            found = loader
        loader = loader.getParent()
    return found


def _send(session: Any, jars: Sequence[Path]) -> None:
    # Not what LIST JARS says: in a JVM that ran another Spark before, `spark.jars` is listed and cannot be loaded.
    known = _added_jars.setdefault(session.sparkContext.applicationId, set())
    for jar in jars:
        if jar.name not in known:
            known.add(jar.name)
            quoted = str(jar).replace("'", "\\'")
            session.sql(f"ADD JAR '{quoted}'").collect()


def see_added_jars(session: Any) -> None:
    """Let this thread's calls find what is in added jars: the JVM asks the thread's own class loader for it."""
    if session.sparkContext.applicationId in _of_their_own:
        thread = session._jvm.java.lang.Thread.currentThread()
        thread.setContextClassLoader(session._jsparkSession.sharedState().jarClassLoader())


def _configured(session: Any) -> Any:
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they print Java's stack beside the exception that is raised
    keep_quiet(session.sparkContext)
    for name, value in SESSION_SETTINGS.items():
        session.conf.set(name, value)
    return session
