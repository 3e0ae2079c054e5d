"""`headrace doctor` and `headrace submit-args`: what is said, and when the exit code is 1."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.adapters.artifacts import cache, pins
from headrace.adapters.spark.required_settings import NEEDED
from headrace.cli import doctor

SOURCE = Path(__file__).parents[2] / "src"


def looked(fresh: Any, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = fresh("doctor", "--json", *arguments)
    return done.exit_code, json.loads(done.stdout)


def finding(found: dict[str, Any], what: str) -> dict[str, Any]:
    return next(one for one in found["findings"] if one["what"] == what)


def test_a_machine_that_can_run_headrace_is_well(fresh: Any, tmp_path: Path) -> None:
    code, found = looked(fresh, "--set", f"artifact_dir={tmp_path / 'none'}")
    assert code == 0 and found["ok"] is True
    assert finding(found, "Java")["state"] == "ok" and finding(found, "pyspark")["found"].startswith("4.2")
    # jars that were never needed are no fault, and looking fetches nothing
    missing = finding(found, "Kafka connector jars")
    assert missing["state"] == "note" and missing["found"] == f"0 of 4 in {tmp_path / 'none'}"
    assert not (tmp_path / "none").exists()


def test_what_differs_in_a_session_of_ones_own_is_said_with_its_cost(fresh: Any) -> None:
    done = fresh("doctor")
    assert done.exit_code == 0
    assert "40 ms for a delayed acknowledgement" in done.stdout and "submit-args" in done.stdout


def test_a_jar_of_other_bytes_is_wrong(fresh: Any, tmp_path: Path) -> None:
    pin = pins.connector().pins[0]
    (tmp_path / pin.file_name).write_bytes(b"tampered")
    code, found = looked(fresh, "--set", f"artifact_dir={tmp_path}")
    assert code == 1 and found["ok"] is False
    wrong = finding(found, "Kafka connector jars")
    assert wrong["state"] == "wrong" and pin.file_name in wrong["found"] and pin.sha256 in wrong["found"]


def test_a_missing_java_is_wrong(fresh: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    code, found = looked(fresh)
    assert code == 1 and finding(found, "Java")["state"] == "wrong" and "install Java" in finding(found, "Java")["advice"]


def test_a_missing_or_unfit_package_is_wrong(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"pyspark": "4.3.0", "pandas": "2.3.3", "pyarrow": "18.0.0", "lmdb": "3.0.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise doctor.importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    code, found = looked(fresh)
    assert code == 1
    states = {one["what"]: one["state"] for one in found["findings"]}
    assert (states["pyspark"], states["pandas"], states["confluent-kafka"]) == ("wrong", "ok", "wrong")


def test_a_connector_of_ones_own_is_said(fresh: Any) -> None:
    _, found = looked(fresh, "--set", "spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0")
    assert finding(found, "Kafka connector")["found"] == "your own, by spark.jars.packages"


def test_speculation_is_wrong_and_another_override_is_a_note(fresh: Any) -> None:
    code, found = looked(fresh, "--set", "spark.locality.wait=5s")
    assert code == 0
    row = next(one for one in found["settings"] if one["name"] == "spark.locality.wait")
    assert (row["own_session"], row["state"]) == ("5s", "note")
    assert looked(fresh, "--set", "spark.speculation=true")[0] == 1


def test_the_defaults_of_an_installed_spark_are_read(fresh: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.scheduler.mode   FAIR\nspark.locality.wait=3s\n\nalone\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    rows = {one["name"]: one for one in looked(fresh)[1]["settings"]}
    assert rows["spark.scheduler.mode"]["state"] == rows["spark.locality.wait"]["state"] == "ok"
    assert rows["spark.shuffle.reduceLocality.enabled"]["other_session"] == "true"


def test_submit_args_has_every_setting_that_is_needed(fresh: Any) -> None:
    words = fresh("submit-args").stdout.split()
    assert words[::2] == ["--conf"] * len(NEEDED)
    assert set(words[1::2]) == {f"{one.name}={one.value}" for one in NEEDED}


def test_submit_args_gives_words_for_a_shell_and_leaves_out_what_it_would_split(fresh: Any) -> None:
    settings = ["spark.master=local[2,4]", "spark.driver.extraJavaOptions=-Da=b -Dc=d", "spark.hadoop.x.account.key.y=tiger"]
    options = [word for setting in settings for word in ("--set", setting)]
    done = fresh("submit-args", *options)
    words = done.stdout.split()
    assert words[::2] == ["--conf"] * (len(NEEDED) + 1) and words[-1] == "spark.master=local[2,4]"
    assert "left out, as a shell would split it at its spaces: spark.driver.extraJavaOptions" in done.stderr
    assert "left out, as it is a secret: spark.hadoop.x.account.key.y" in done.stderr
    assert "tiger" not in done.output
    assert json.loads(fresh("submit-args", "--json", *options).stdout)["spark.driver.extraJavaOptions"] == "-Da=b -Dc=d"


def test_submit_args_for_kafka_names_the_jars_and_what_the_user_sets_wins(fresh: Any) -> None:
    done = fresh("submit-args", "--kafka", "--json", "--set", "spark.locality.wait=5s")
    arguments = json.loads(done.stdout)
    assert arguments["spark.locality.wait"] == "5s"
    jars = [Path(jar) for jar in arguments["spark.jars"].split(",")]
    assert [jar.name for jar in jars] == [pin.file_name for pin in pins.connector().pins] and all(map(Path.is_file, jars))


def test_a_filled_cache_may_be_copied_to_a_machine_that_is_offline(
    fresh: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = cache.jars_of(pins.connector(), cache.folder_of(None, {}), lambda line: None)
    copied = tmp_path / "copied"
    copied.mkdir()
    for jar in jars:
        shutil.copy(jar, copied)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))  # so that nothing could be fetched
    done = fresh("submit-args", "--kafka", "--json", "--set", f"artifact_dir={copied}")
    assert done.exit_code == 0 and str(copied) in json.loads(done.stdout)["spark.jars"]


def test_looking_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom headrace.cli import main\ntry: main(['doctor', '--json'])\nexcept SystemExit: pass\n"
        "print(*[name for name in ('pyspark', 'pyarrow', 'numpy', 'confluent_kafka') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout)["findings"] and done.stderr.split() == []


class TestALog:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """A log with three records, of whose catalog there is an older copy, with one, beside it."""
        import headrace as hr

        with hr.open_system(f"log:{tmp_path / 'data'}") as system:
            system.create_stream("s", 1)
            system.produce("s", [(b"k", b"1")])
        shutil.copy(tmp_path / "data" / "catalog.sqlite", tmp_path / "older.sqlite")
        with hr.open_system(f"log:{tmp_path / 'data'}") as system:
            system.produce("s", [(b"k", b"2"), (b"k", b"3")])
        return tmp_path / "data"

    def consumed(self, fresh: Any) -> list[str]:
        done = fresh("stream", "consume", "s", "--value", "string")
        return [json.loads(line)["value"] for line in done.stdout.splitlines()]

    def test_one_that_is_whole(self, fresh: Any, folder: Path) -> None:
        done = fresh("doctor", "--system", f"log:{folder}")
        assert done.exit_code == 0, done.output
        assert "1 stream, 3 records" in done.stdout and "Java" not in done.stdout
        assert fresh("doctor", "--system", f"log:{folder}", "--rebuild", "--yes").stdout.endswith("nothing to do\n")
        code, found = looked(fresh, "--system", "log:./data")
        assert (code, found["ok"], found["records"]) == (0, True, 3)

    def test_an_older_catalog_is_said_and_taken_if_asked(self, fresh: Any, folder: Path) -> None:
        shutil.copy(folder.parent / "older.sqlite", folder / "catalog.sqlite")
        done = fresh("doctor", "--system", "log:./data")
        assert done.exit_code == 1
        assert "an older copy: its newest commit is 2, that of the data files is 3" in done.stdout
        assert "the unknown data files hold records of: s 2" in done.stdout and "--quarantine" in done.stdout
        refused = fresh("doctor", "--system", "log:./data", "--quarantine")
        assert refused.exit_code == 2 and "add --yes" in refused.stderr
        assert looked(fresh, "--system", "log:./data")[0] == 1
        done = fresh("doctor", "--system", "log:./data", "--quarantine", "--yes")
        assert done.exit_code == 0 and "moved 1 file to " in done.stdout
        assert self.consumed(fresh) == ["1"]
        assert looked(fresh, "--system", "log:./data")[0] == 0

    def test_a_lost_catalog_is_rebuilt(self, fresh: Any, folder: Path) -> None:
        (folder / "catalog.sqlite").unlink()
        for command in (
            ("stream", "create", "t"),
            ("stream", "list"),
            ("stream", "produce", "s"),
            ("stream", "consume", "s"),
            ("stream", "delete", "s", "--yes"),
            ("status",),
            ("tasks",),
        ):
            done = fresh(*command, stdin="")
            assert done.exit_code == 1 and "catalog.sqlite is missing, but" in done.stderr, command
        assert looked(fresh, "--system", "log:./data")[1]["catalog"] == "it is missing"
        assert fresh("doctor", "--system", "log:./data", "--quarantine", "--yes").exit_code == 1
        done = fresh("doctor", "--system", "log:./data", "--rebuild", "--yes", "--json")
        assert done.exit_code == 0 and json.loads(done.stdout)["repaired"]["added"] == {"s": 3}
        assert self.consumed(fresh) == ["1", "2", "3"]

    def test_what_is_no_log(self, fresh: Any, tmp_path: Path) -> None:
        assert "there is no log in" in fresh("doctor", "--system", f"log:{tmp_path}/none").stderr
        assert not (tmp_path / "none").exists()
        assert "expected log: and a folder" in fresh("doctor", "--system", "kafka://localhost:9092").stderr
        assert fresh("doctor", "--rebuild").exit_code == 2
        assert fresh("doctor", "--system", "log:x", "--rebuild", "--quarantine").exit_code == 2
