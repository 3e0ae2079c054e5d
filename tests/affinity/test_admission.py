"""Which executors may work: by what they answer, and by how the question fails there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headrace.core.affinity.admission import Admission, Admitted, Rejected, WorkerAnswer, rejection_for_failure
from headrace.core.affinity.locations import LocationId
from headrace.state_files.files import StateFiles
from headrace.wiring.folders import sign
from headrace.wiring.worker.greeting import answer_to, file_system_of, versions_here

VERSIONS = {"Headrace": "1.2.3", "PySpark": "4.2.0", "Python": "3.11"}
ADMISSION = Admission("flights", "run-7", VERSIONS, "/var/stores", None, "/shared/state")
GOOD = WorkerAnswer("host-1", "rack-1", "", VERSIONS, "", "ext4", is_state_signed=True)


def reasons(admission: Admission, answer: WorkerAnswer) -> tuple[str, ...]:
    verdict = admission.verdict_on(answer)
    assert isinstance(verdict, Rejected)
    return verdict.reasons


def test_an_executor_that_has_all_is_admitted_at_its_location() -> None:
    assert ADMISSION.verdict_on(GOOD) == Admitted(LocationId("rack-1"))
    as_sent = msgspec.json.decode(msgspec.json.encode(GOOD), type=WorkerAnswer)
    assert ADMISSION.verdict_on(as_sent) == Admitted(LocationId("rack-1"))


@pytest.mark.parametrize("name", VERSIONS)
def test_other_versions_are_named_with_both_numbers(name: str) -> None:
    (reason,) = reasons(ADMISSION, replace(GOOD, versions=VERSIONS | {name: "0.9"}))
    assert reason.startswith(f"expected {name} {VERSIONS[name]}, as the driver has, found 0.9: ")


@pytest.mark.parametrize(
    ("changed", "said", "advice"),
    [
        ({"location": "", "location_error": "location_id 'env:NODE' gives nothing: set it"}, "env:NODE", "set it"),
        ({"store_error": "folder /var/stores cannot be written: read-only"}, "read-only", "another local_store_dir"),
        ({"store_file_system": "nfs4"}, "is on a network file system (nfs4)", "a disk of the machine"),
        (
            {"is_state_signed": False},
            "state_uri /shared/state is not the folder that the driver writes to",
            "all executors share",
        ),
        ({"is_state_signed": False, "state_error": "access denied"}, "cannot be read: access denied", "give executors access"),
    ],
)
def test_each_fault_is_a_reason_with_what_to_do(changed: dict[str, str], said: str, advice: str) -> None:
    (reason,) = reasons(ADMISSION, replace(GOOD, **changed))
    assert said in reason and advice in reason


def test_all_faults_are_said_at_once() -> None:
    assert len(reasons(ADMISSION, WorkerAnswer("host-1", location_error="none", store_error="none"))) == 3 + 1 + 1 + 1


def test_a_job_without_state_asks_for_no_folder() -> None:
    answer = replace(GOOD, store_error="it is a file", is_state_signed=False)
    assert replace(ADMISSION, state_uri=None).verdict_on(answer) == Admitted(LocationId("rack-1"))


def test_an_embedded_log_is_refused_where_its_folder_is_another() -> None:
    on_log = replace(ADMISSION, log_folder="/data")
    assert isinstance(on_log.verdict_on(replace(GOOD, is_log_signed=True)), Admitted)
    (reason,) = reasons(on_log, GOOD)
    assert "log:/data is not the folder that the driver has" in reason and "use Kafka" in reason


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("ModuleNotFoundError: No module named 'headrace'", "install Headrace there"),
        ("No module named pyspark", "install Headrace there"),
        ("ModuleNotFoundError: No module named 'mine'", "--py-files"),
        ('Cannot run program "python3.9": error=2, No such file or directory', "PYSPARK_PYTHON"),
        ("pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] ...", "PYSPARK_PYTHON"),
        ("OSError: AF_UNIX path too long", "spark.python.unix.domain.socket.dir"),
        ("Segmentation fault", "standard error"),
    ],
)
def test_a_question_that_fails_rejects_with_its_last_line(line: str, advice: str) -> None:
    (reason,) = rejection_for_failure(line).reasons
    assert line.rstrip(".") in reason and advice in reason


def test_this_machine_answers_for_itself(tmp_path: Path) -> None:
    for run, state in (("run-7", "its state"), ("run-8", "another's")):
        sign(StateFiles(str(tmp_path / "state")), "flights", run, state)
    admission = Admission("flights", "run-7", versions_here(), str(tmp_path / "stores"), "here", str(tmp_path / "state"))
    answer = answer_to(admission)
    assert admission.verdict_on(answer) == Admitted(LocationId("here")) and answer.store_file_system
    assert list((tmp_path / "stores").iterdir()) == []

    of_before = replace(admission, run_id="run-6")
    (reason,) = reasons(of_before, answer_to(of_before))
    assert "is not the folder that the driver writes to" in reason

    (tmp_path / "file").write_text("")
    stores, state = str(tmp_path / "file"), str(tmp_path / "other")
    bad = replace(admission, local_store_dir=stores, location_id="env:NOT_SET", state_uri=state)
    where, stores, state = reasons(bad, answer_to(bad))
    assert "env:NOT_SET" in where and "it is a file" in stores and "is not the folder" in state


def test_a_folder_is_on_the_file_system_that_was_mounted_last_and_deepest(tmp_path: Path) -> None:
    here = str(tmp_path.resolve())
    mounts = (("/", "a"), (here, "b"), (here, "c"), (f"{here}x", "d"))
    lines = [f"1 0 8:1 / {point} rw shared:1 - {kind} dev rw" for point, kind in mounts]
    assert file_system_of(tmp_path / "stores", "\n".join(lines)) == "c"
    assert file_system_of(Path("/"), "no such line\n" + lines[0]) == "a"
    assert file_system_of(tmp_path, "") == ""
