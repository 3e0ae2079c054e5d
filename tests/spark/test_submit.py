"""An application that spark-submit runs, as `headrace submit-args` says: its settings count, and its own `app.run()` works."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

import headrace as hr

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
SOURCE = str(Path(hr.__file__).parents[1])
WAIT_S = 150.0
APP = """
import sys

import headrace as hr

app = hr.App("submitted", system="log:./data")
words = app.stream("words", key=hr.String(), value=hr.Json("n int"))
words.filter("value.n > 2").group_by_key().count(store="counts").to_stream().to("counts", value=hr.Long())

if __name__ == "__main__":
    app.run(**({"until": "caught-up"} if "--until-caught-up" in sys.argv else {}))
    with hr.open_system("log:./data") as log:
        print("counts", [record.value for record in log.consume("counts", value=hr.Long())])
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "flights.py").write_text(APP)
    with hr.open_system(f"log:{tmp_path / 'data'}") as log:
        log.create_stream("words", 2)
        log.produce("words", [("k", {"n": n}) for n in range(10)], key=hr.String(), value=hr.Json())
    return tmp_path


def submitted(place: Path, command: str) -> subprocess.Popen[str]:
    """The command in a shell, with `spark-submit` and `headrace` of this environment on its path."""
    scripts = sysconfig.get_path("scripts")
    return subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=place,
        env=os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": SOURCE, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=(place / "errors").open("w"),
        text=True,
        start_new_session=True,
    )


def test_an_application_runs_as_the_help_says(place: Path) -> None:
    process = submitted(place, "spark-submit $(headrace submit-args) flights.py --until-caught-up")
    output = process.communicate(timeout=WAIT_S)[0]
    errors = (place / "errors").read_text()
    assert process.returncode == 0, errors
    assert output.endswith("\ncounts [7]\n")  # spark-submit puts a program's standard error there too
    assert "Traceback" not in output + errors
    assert re.search(r"source: 10 records, .*, lag 0", output)


@pytest.mark.soak
def test_what_spark_submit_is_given_counts_and_so_does_the_configuration(place: Path) -> None:
    (place / "flights.py").write_text(
        APP + '    names = ("master", "app.name", "my.one", "my.two")\n'
        '    print("told", *[app.spark.conf.get(f"spark.{name}") for name in names])\n'
    )
    options = "--master 'local[1,2]' --conf spark.my.one=1 --conf spark.my.two=1"
    command = f"HEADRACE_SPARK__my__two=2 spark-submit {options} $(headrace submit-args) flights.py --until-caught-up"
    process = submitted(place, command)
    output = process.communicate(timeout=WAIT_S)[0]
    assert process.returncode == 0, (place / "errors").read_text()
    assert output.endswith("\ncounts [7]\ntold local[1,2] submitted 1 2\n")


def test_ctrl_c_stops_it_in_order(place: Path) -> None:
    """To the group of processes, as a terminal sends it: the JVM of spark-submit gets it too."""
    process = submitted(place, "exec spark-submit $(headrace submit-args) flights.py")
    until_s = time.monotonic() + WAIT_S
    with hr.open_system(f"log:{place / 'data'}") as log:
        while "counts" not in [stream.name for stream in log.streams()] or not log.end_offsets("counts")[0]:
            assert time.monotonic() < until_s, (place / "errors").read_text()
            time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=WAIT_S)[0]
    assert "Traceback" not in output  # of ours: a worker of Spark's may say one to the JVM's standard error
    with hr.open_system(f"log:{place / 'data'}") as log:
        while log.job_store("submitted").holder() is not None:  # it is given back by the program, which ends after the JVM
            assert time.monotonic() < until_s, output
            time.sleep(0.2)


ASKED = """
import sys
from pathlib import Path
from headrace.adapters.spark import session
session.is_in_one_process = lambda master: False
settings = {"spark.master": "local[1]", "spark.dynamicAllocation.enabled": "true"}
session.started(settings, "asked", Path.cwd(), [])
print("it has started")
"""


@pytest.mark.parametrize("least", [2, pytest.param(0, marks=pytest.mark.soak)])
def test_what_a_file_of_sparks_own_says_of_the_least_executors_counts(place: Path, least: int) -> None:
    (place / "asked.py").write_text(ASKED)
    (place / "spark-defaults.conf").write_text(f"spark.dynamicAllocation.minExecutors {least}\n")
    process = submitted(place, "SPARK_CONF_DIR=$PWD python asked.py")
    output, errors = process.communicate(timeout=WAIT_S)[0], (place / "errors").read_text()
    assert ("it has started" in output) is (least > 0), errors
    assert ("minExecutors is 0" in errors) is (least == 0), errors


@pytest.mark.parametrize(
    "command",
    [
        "headrace run flights.py --until caught-up --set spark.speculation=True",
        "spark-submit $(headrace submit-args) --conf spark.speculation=true flights.py --until-caught-up",
    ],
)
def test_speculation_is_refused(place: Path, command: str) -> None:
    process = submitted(place, command)
    output = process.communicate(timeout=WAIT_S)[0] + (place / "errors").read_text()
    assert process.returncode != 0
    assert "spark.speculation is on" in output
    with hr.open_system(f"log:{place / 'data'}") as log:
        assert "counts" not in [stream.name for stream in log.streams()], "nothing was planned"
