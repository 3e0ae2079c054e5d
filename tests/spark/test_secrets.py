"""A secret among Spark's settings is in nothing that others see: event log, UI, REST answers, logs, and other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headrace as hr
from headrace.adapters.spark.gateway import _escaped
from headrace.config.keys import handed_on
from headrace.core.secrets import Secrets

SOURCE = str(Path(hr.__file__).parents[1])
PROGRAM = Path(__file__).with_name("secrets_shown.py")
MARK = "canary-4b7e"
SETTINGS = f"""
[kafka]
"sasl.password" = "{MARK}-kafka"

[spark]
"master" = "local[2,4]"
"ui.port" = "0"
"eventLog.enabled" = true
"eventLog.compress" = false
"hadoop.fs.azure.account.key.ACCOUNT.dfs.core.windows.net" = "{MARK}-azure=="
"hadoop.fs.azure.sas.box.ACCOUNT.blob.core.windows.net" = "sv=2024&sig={MARK}-sas"
"my.apiKey" = "{MARK}-api"
"my.dbPwd" = "{MARK}-pwd \\\\ 'with' \\"all\\"\\nof é"
"my.other" = "the key {MARK}-api once more"
"my.address" = "jdbc:postgresql://scott:{MARK}-user@host/db"
"driver.extraJavaOptions" = "-Dmy.trustStorePassword={MARK}-java '-Dmy.words=a \\\\ b'"
"""


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_secret_is_in_nothing_that_others_see(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "headrace.toml").write_text(SETTINGS + f'"eventLog.dir" = "file:{tmp_path / "events"}"\n')
    variables = {
        "HEADRACE_SPARK__hadoop__fs__s3a__secret__key": f"{MARK}-s3",
        "HEADRACE_KAFKA__sasl__jaas__config": f'x required password="{MARK}-jaas";',
    }
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path), MARK],
        cwd=tmp_path,
        env={**os.environ, **variables, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    java, settings = done.stdout.splitlines()[0], done.stdout.split("settings", 1)[1]
    assert java == f"java {MARK}-java | a \\ b", "they count all the same"
    for value in ("azure==", "sas", "api", "pwd \\ 'with' \"all\"\nof é", "s3", "user@host/db"):
        assert f"{MARK}-{value}" in settings
    assert MARK not in done.stderr
    assert (tmp_path / "processes").read_text() == ""
    (tmp_path / "headrace.toml").unlink()
    looked_at = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"spark.log", "page-0", "page-3"} <= {path.name for path in looked_at}
    assert any("events" in path.parts for path in looked_at)
    assert [str(path) for path in looked_at if MARK.encode() in path.read_bytes()] == []


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_setting_that_spark_refuses_is_an_error_without_its_value_and_without_java(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        'import headrace as hr\napp = hr.App("a", system="log:./data")\napp.stream("in").filter("true").to("out")\n'
    )
    with hr.open_system(f"log:{tmp_path / 'data'}") as log:
        log.create_stream("in", 1)
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "run", "app.py", "--until", "caught-up"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCE, "HEADRACE_SPARK__master": f"none[{MARK}]", "HEADRACE_SPARK__my__key": MARK},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1
    assert "error: Spark" in done.stderr and "hint: " in done.stderr
    assert "Traceback" not in done.stderr and "\tat " not in done.stderr
    assert MARK not in done.stderr


def test_variables_that_hold_secrets_are_not_handed_on_and_all_others_are() -> None:
    environ = {
        "HEADRACE_KAFKA__SASL__PASSWORD": "a",
        "HEADRACE_SPARK__hadoop__fs__azure__account__key__ACCOUNT": "b",
        "HEADRACE_SPARK__my__other": "a tiger here",
        "HEADRACE_MAX_ROUND_MS": "5",
        "AWS_SECRET_ACCESS_KEY": "for Hadoop's own way to find it",
        "PATH": "/bin",
    }
    assert list(handed_on(environ, Secrets(["tiger"]))) == ["HEADRACE_MAX_ROUND_MS", "AWS_SECRET_ACCESS_KEY", "PATH"]


def test_a_value_in_a_file_of_javas_properties() -> None:
    assert _escaped("a=b c\n\\é😀") == r"a\u003db\u0020c\u000a\u005c\u00e9\ud83d\ude00"
