"""The checks of the machine, against machines that are made up: `java` is a script that prints what a Java would."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from headrace import environment as setup_check
from headrace.environment import checked_folder, checked_java, java_major
from headrace.errors import SetupError

ROOT = Path(__file__).parents[2]
ANSWERS = {  # what `java -version` prints first, whether it is new enough, and the number that counts
    'openjdk version "17.0.15" 2025-04-15': 17,
    'openjdk version "21-ea" 2023-09-19': 21,
    'java version "25" 2025-09-16 LTS': 25,
    'java version "1.8.0_392"': 8,
    'openjdk version "11.0.21" 2023-10-17': 11,
    'openjdk version "16" 2021-03-16': 16,
}


def make_java(folder: Path, text: str, status: int = 0) -> Path:
    """A JAVA_HOME whose `java` prints `text` on the error stream."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\nexit {status}\n")
    java.chmod(0o755)
    return folder


def environ_of(home: Path | None = None, path: str = "/usr/bin:/bin") -> dict[str, str]:
    return {"PATH": path} | ({} if home is None else {"JAVA_HOME": str(home)})


def shell_check(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(ROOT / "scripts" / "need_java.sh")], env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("answer", "major"), ANSWERS.items())
def test_java_17_or_newer_is_accepted_in_python_and_in_the_shell(tmp_path: Path, answer: str, major: int) -> None:
    home = make_java(tmp_path / "java home", answer)
    done = shell_check(environ_of(home))
    if major >= 17:
        found = checked_java(environ_of(home))
        assert (found.path, java_major(found.version)) == (home / "bin" / "java", major)
        assert found.version in answer
        assert (done.returncode, done.stderr) == (0, "")
    else:
        with pytest.raises(SetupError, match="Spark needs Java 17 or newer") as caught:
            checked_java(environ_of(home))
        assert answer.split('"')[1] in caught.value.message
        assert "JAVA_HOME" in str(caught.value)
        assert done.returncode == 1
        assert done.stderr.startswith("headrace: ")
        assert "Spark needs Java 17 or newer" in done.stderr


def test_lines_before_the_version_are_passed_over(tmp_path: Path) -> None:
    text = 'Picked up JAVA_TOOL_OPTIONS: -Dthing="8"\nopenjdk version "17.0.1" 2021-10-19'
    home = make_java(tmp_path / "j", text)
    assert checked_java(environ_of(home)).version == "17.0.1"
    assert shell_check(environ_of(home)).returncode == 0


def test_the_java_on_path_is_taken_without_java_home(tmp_path: Path) -> None:
    home = make_java(tmp_path / "j", 'openjdk version "17"')
    assert checked_java(environ_of(path=f"{home / 'bin'}:/usr/bin:/bin")).path == home / "bin" / "java"


def test_no_java_at_all_is_one_sentence_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"^Java is missing") as caught:
        checked_java({"PATH": str(tmp_path)})
    assert caught.value.hint is not None
    assert "openjdk-17" in caught.value.hint


def test_java_home_is_never_passed_over_for_another_java(tmp_path: Path) -> None:
    good = make_java(tmp_path / "good", 'openjdk version "17"')
    (tmp_path / "empty").mkdir()
    environ = environ_of(tmp_path / "empty", path=f"{good / 'bin'}:/usr/bin:/bin")
    with pytest.raises(SetupError, match=r"JAVA_HOME is .*empty"):
        checked_java(environ)
    assert shell_check(environ).returncode == 1


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [("Unable to locate a Java Runtime.", 1, "Unable to locate"), ("hello", 0, "does not report its Java version: hello")],
)
def test_a_java_that_is_none_is_refused(tmp_path: Path, text: str, status: int, message: str) -> None:
    home = make_java(tmp_path / "j", text, status)
    with pytest.raises(SetupError, match=message):
        checked_java(environ_of(home))
    assert shell_check(environ_of(home)).returncode == 1


def test_a_java_that_hangs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(tmp_path / "j", "")
    (home / "bin" / "java").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(setup_check, "JAVA_ANSWER_S_MAX", 0.2)
    with pytest.raises(SetupError, match="gave no answer"):
        checked_java(environ_of(home))


def test_java_major_of_what_is_no_version_is_none() -> None:
    assert java_major("next") is None


def test_a_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    folder = checked_folder(tmp_path / "a" / "b", "the local stores")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("below", "reason"), [("", "it is a file"), ("/stores", "not a directory")])
def test_a_folder_that_is_a_file_is_refused(tmp_path: Path, below: str, reason: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError) as caught:
        checked_folder(f"{tmp_path}/file{below}", "the local stores")
    assert caught.value.message == f"folder {tmp_path}/file{below} for the local stores cannot be written: {reason}"
    assert caught.value.hint is not None


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        if os.access(tmp_path, os.W_OK):  # the superuser may write everywhere: a folder of the kernel's stands in
            with pytest.raises(SetupError, match="for the state cannot be written"):
                checked_folder("/proc/headrace", "the state")
        else:
            with pytest.raises(SetupError, match="for the state cannot be written: permission denied"):
                checked_folder(tmp_path, "the state")
    finally:
        tmp_path.chmod(stat.S_IRWXU)
