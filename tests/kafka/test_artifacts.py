"""Jars: fetched once, checked, whole or not at all; with a fetch that is made up, and with the real Ivy on a folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.adapters.artifacts import cache, connector, ivy, pins
from headrace.adapters.artifacts.pins import Artifacts, Pin
from headrace.errors import ArtifactError, SetupError

SOURCE = Path(__file__).parents[2] / "src"


def pin_of(name: str, content: bytes) -> Pin:
    return Pin("a.group", name, "1.0", hashlib.sha256(content).hexdigest())


TWO = Artifacts("two jars", (pin_of("one", b"one"), pin_of("two", b"two")))


class Repository:
    """A fetch that is made up: gives `content` by name, and remembers what it was asked for."""

    def __init__(self, **content: bytes) -> None:
        self.content = content
        self.asked: list[list[str]] = []

    def __call__(self, wanted: Sequence[Pin], folder: Path) -> None:
        self.asked.append([pin.name for pin in wanted])
        for pin in wanted:
            if pin.name in self.content:
                (folder / pin.file_name).write_bytes(self.content[pin.name])


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


def test_the_first_use_fetches_with_a_line_and_the_second_is_silent(tmp_path: Path) -> None:
    repository, said = Repository(one=b"one", two=b"two"), []
    for _ in range(2):
        jars = cache.jars_of(TWO, tmp_path / "jars", said.append, fetch=repository)
        assert [jar.read_bytes() for jar in jars] == [b"one", b"two"]
    assert repository.asked == [["one", "two"]]
    assert said == [f"fetching two jars (2 jars) into {tmp_path / 'jars'}, this once"]
    assert names_in(tmp_path / "jars") == {"one-1.0.jar", "two-1.0.jar"}


def test_only_what_is_missing_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "one-1.0.jar").write_bytes(b"one")
    repository = Repository(two=b"two")
    cache.jars_of(TWO, tmp_path, lambda line: None, fetch=repository)
    assert repository.asked == [["two"]]


def test_a_fetched_jar_of_other_bytes_is_refused_and_none_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        cache.jars_of(TWO, tmp_path, lambda line: None, fetch=Repository(one=b"one", two=b"tampered"))
    assert "two-1.0.jar" in caught.value.message
    assert hashlib.sha256(b"two").hexdigest() in caught.value.message
    assert hashlib.sha256(b"tampered").hexdigest() in caught.value.message
    assert names_in(tmp_path) == set()


def test_a_damaged_jar_is_named_and_left_and_nothing_is_fetched(tmp_path: Path) -> None:
    damaged = tmp_path / "one-1.0.jar"
    damaged.write_bytes(b"o")
    repository = Repository(one=b"one", two=b"two")
    with pytest.raises(ArtifactError) as caught:
        cache.jars_of(TWO, tmp_path, lambda line: None, fetch=repository)
    assert str(damaged) in caught.value.message
    assert hashlib.sha256(b"o").hexdigest() in caught.value.message
    assert "delete the file" in (caught.value.hint or "")
    assert repository.asked == [] and damaged.read_bytes() == b"o"
    damaged.unlink()  # as the hint says
    assert len(cache.jars_of(TWO, tmp_path, lambda line: None, fetch=repository)) == 2


def test_what_a_killed_fetch_left_is_swept(tmp_path: Path) -> None:
    left = tmp_path / ".fetch-old"
    left.mkdir()
    (left / "one-1.0.jar").write_bytes(b"on")
    cache.jars_of(TWO, tmp_path, lambda line: None, fetch=Repository(one=b"one", two=b"two"))
    assert names_in(tmp_path) == {"one-1.0.jar", "two-1.0.jar"}


def test_two_processes_at_once_fetch_once(tmp_path: Path) -> None:
    code = textwrap.dedent(
        """
        import pathlib, sys, time
        from kafka.test_artifacts import TWO, Repository
        from headrace.adapters.artifacts import cache
        repository = Repository(one=b"one", two=b"two")
        def slowly(pins, folder):
            print("fetch", flush=True)
            time.sleep(1)
            repository(pins, folder)
        cache.jars_of(TWO, pathlib.Path(sys.argv[1]), lambda line: None, fetch=slowly)
        print("have")
        """
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(Path(__file__).parents[1])])}
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environ)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[0].split() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert sorted(said, key=len) == [["have"], ["fetch", "have"]]


def test_a_filled_cache_needs_neither_java_nor_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}-1.0.jar").write_bytes(name.encode())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    said: list[str] = []
    assert len(cache.jars_of(TWO, tmp_path, said.append)) == 2
    assert said == []
    (tmp_path / "one-1.0.jar").unlink()
    with pytest.raises(SetupError, match="JAVA_HOME"):  # so that the line above says something
        cache.jars_of(TWO, tmp_path, said.append)


def test_the_folder_is_that_of_the_key_else_of_xdg_else_of_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder_of(None, {}) == tmp_path / ".cache" / "headrace" / "jars"
    assert cache.folder_of(None, {"XDG_CACHE_HOME": "relative"}) == tmp_path / ".cache" / "headrace" / "jars"
    assert cache.folder_of(None, {"XDG_CACHE_HOME": str(tmp_path / "x")}) == tmp_path / "x" / "headrace" / "jars"
    assert cache.folder_of("~/jars", {"XDG_CACHE_HOME": str(tmp_path / "x")}) == tmp_path / "jars"


# --- the real Ivy -----------------------------------------------------------------------------------------------------


def ivy_settings(folder: Path, resolver: str) -> Path:
    file = folder / "ivysettings.xml"
    file.write_text(f'<ivysettings><settings defaultResolver="it"/><resolvers>{resolver}</resolvers></ivysettings>')
    return file


@pytest.mark.kafka
def test_ivy_fetches_from_the_repository_of_a_settings_file(tmp_path: Path) -> None:
    place = tmp_path / "repository" / "a" / "group" / "one" / "1.0"
    place.mkdir(parents=True)
    (place / "one-1.0.jar").write_bytes(b"one")
    (place / "one-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>a.group</groupId><artifactId>one</artifactId>"
        "<version>1.0</version><dependencies><dependency><groupId>a.group</groupId><artifactId>absent</artifactId>"
        "<version>1.0</version></dependency></dependencies></project>"
    )
    resolver = f'<ibiblio name="it" m2compatible="true" root="{(tmp_path / "repository").as_uri()}/"/>'
    jars = cache.jars_of(
        Artifacts("one jar", TWO.pins[:1]),
        tmp_path / "jars",
        lambda line: None,
        settings_file=ivy_settings(tmp_path, resolver),
    )
    assert [jar.read_bytes() for jar in jars] == [b"one"]
    assert names_in(tmp_path / "jars") == {"one-1.0.jar"}


@pytest.mark.kafka
def test_offline_the_error_says_which_jar_and_why(tmp_path: Path) -> None:
    nobody = '<ibiblio name="it" m2compatible="true" root="http://127.0.0.1:9/"/>'
    with pytest.raises(ArtifactError) as caught:
        cache.jars_of(TWO, tmp_path / "jars", lambda line: None, settings_file=ivy_settings(tmp_path, nobody))
    assert "2 of 2 jars could not be fetched, among them a.group:one:1.0" in caught.value.message
    assert "refused" in caught.value.message
    assert names_in(tmp_path / "jars") == set()


def test_pyspark_is_found_without_being_imported() -> None:
    code = "import sys; from headrace.adapters.artifacts import ivy; print(ivy.pyspark_folder(), 'pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
    )
    folder, imported = done.stdout.split()
    assert list((Path(folder) / "jars").glob("ivy-*.jar")) and imported == "False"


# --- whose connector --------------------------------------------------------------------------------------------------


def test_the_pinned_jars_are_those_of_this_pyspark() -> None:
    names = {pin.name: pin.version for pin in pins.connector().pins}
    assert set(names) == {
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "commons-pool2",
    }
    spark = next((ivy.pyspark_folder() / "jars").glob("spark-sql_2.13-*.jar")).stem.rpartition("-")[2]
    assert names["spark-sql-kafka-0-10_2.13"].split(".")[:2] == spark.split(".")[:2]


@pytest.mark.parametrize(
    "own",
    [
        {"spark.jars": "/opt/jars/other.jar,/opt/jars/spark-sql-kafka-0-10_2.13-4.2.0.jar"},
        {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"},
    ],
)
def test_with_a_connector_of_the_users_nothing_is_fetched_or_changed(own: dict[str, str], tmp_path: Path) -> None:
    said: list[str] = []
    assert connector.with_connector(own, str(tmp_path / "jars"), said.append) == own
    assert said == [] and not (tmp_path / "jars").exists()


def test_ours_is_added_to_the_users_other_jars() -> None:
    given = {"spark.jars": "/opt/jars/other.jar", "spark.ui.enabled": "false"}
    made = connector.with_connector(given, None, lambda line: None)
    jars = made["spark.jars"].split(",")
    assert jars[0] == "/opt/jars/other.jar" and made["spark.ui.enabled"] == "false"
    assert [Path(jar).name for jar in jars[1:]] == [pin.file_name for pin in pins.connector().pins]
    assert all(Path(jar).is_file() for jar in jars[1:])
