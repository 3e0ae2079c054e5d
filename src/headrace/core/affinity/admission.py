"""Whether an executor may work for a job: by what its Python says of itself, or by how the question failed there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headrace.core.affinity.locations import LocationId

# Types of file systems, as the kernel names them, that are no disk of the machine: LMDB maps its files, and locks them.
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "afs", "beegfs", "ceph", "cifs", "fuse.ceph-fuse", "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys", "fuse.juicefs",
        "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2", "smb3",
        "smbfs",
    }
)  # fmt: skip
ANSWER_S, REJECTED_S = 5.0, 60.0  # until one is asked again that gave no answer, or was rejected
_SHOWN_MAX = 300
_INSTALL = "install Headrace there, for the Python that Spark's executors start"
_SAME = "install the versions there that the driver has"
_PYTHON = (
    "name a Python of the same version there, with Headrace installed: PYSPARK_PYTHON in the driver's environment, or "
    "spark.pyspark.python"
)
# What is in the last line of an error, and what to do about it.
_ADVICE = (
    (re.compile(r"No module named '?(headrace|pyspark|pyarrow|lmdb|msgspec|xxhash|confluent_kafka)\b"), _INSTALL),
    (re.compile(r"PYTHON_VERSION_MISMATCH|different version"), _PYTHON),
    (re.compile(r"path too long", re.IGNORECASE), "set spark.python.unix.domain.socket.dir to a short path there"),
    (re.compile(r"Cannot run program|No such file or directory|Permission denied"), _PYTHON),
    (re.compile(r"No module named"), "install the module there, or send it with --py-files"),
)


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """What a worker process says of the machine that it is on. `location`: by the machine's disk; `location_error`: why that is
    not known. `versions`: of Headrace, PySpark and Python. `store_error`: why `local_store_dir` cannot be used there, and
    `store_file_system` its type. `is_state_signed`, `is_log_signed`: whether the sign of the driver's run is there, and
    `state_error` why the state cannot be read."""

    host: str
    location: str = ""
    location_error: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    store_error: str = ""
    store_file_system: str = ""
    is_state_signed: bool = False
    state_error: str = ""
    is_log_signed: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """An executor that may work, and where it is."""

    location: LocationId


@dataclass(frozen=True, slots=True)
class Rejected:
    """An executor that gets no work. `reasons`: what is wrong there, each with what to do."""

    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.reasons)


Verdict = Admitted | Rejected


@dataclass(frozen=True, slots=True)
class Admission:
    """What an application asks of each executor. `run_id`: whose signs it is to find. `location_id`: how an executor knows
    where it is, as configured. `state_uri`, `log_folder`: None where it has no state, and where its system is no log."""

    application: str
    run_id: str
    versions: Mapping[str, str]
    local_store_dir: str
    location_id: str | None = None
    state_uri: str | None = None
    log_folder: str | None = None

    def verdict_on(self, answer: WorkerAnswer) -> Verdict:
        """Whether the executor may work that gave this answer.

        >>> admission = Admission("flights", "run", {"Headrace": "1.2"}, "/stores")
        >>> admission.verdict_on(WorkerAnswer("host-1", "rack-1", versions={"Headrace": "1.2"}))
        Admitted(location='rack-1')
        >>> print(admission.verdict_on(WorkerAnswer("host-1", "rack-1", versions={"Headrace": "1.1"})))
        expected Headrace 1.2, as the driver has, found 1.1: install the versions there that the driver has
        """
        reasons = tuple(self._reasons(answer))
        return Rejected(reasons) if reasons else Admitted(LocationId(answer.location))

    def _reasons(self, answer: WorkerAnswer) -> Iterator[str]:
        for name, expected in self.versions.items():
            found = answer.versions.get(name, "none")
            if found != expected:
                yield f"expected {name} {expected}, as the driver has, found {found}: {_SAME}"
        if answer.location_error:
            yield answer.location_error
        if self.state_uri is None:
            yield from self._log_reasons(answer)
            return
        if answer.store_error:
            yield f"{answer.store_error}: let the user of Spark's executors write there, or set another local_store_dir"
        elif answer.store_file_system in NETWORK_FILE_SYSTEMS:
            yield (
                f"local_store_dir {self.local_store_dir} is on a network file system ({answer.store_file_system}): set a "
                "folder on a disk of the machine"
            )
        if answer.state_error:
            yield f"state_uri {self.state_uri} cannot be read: {answer.state_error}: give executors access to it"
        elif not answer.is_state_signed:
            yield (
                f"state_uri {self.state_uri} is not the folder that the driver writes to: set `state_uri` to a folder that the "
                "driver and all executors share"
            )
        yield from self._log_reasons(answer)

    def _log_reasons(self, answer: WorkerAnswer) -> Iterator[str]:
        if self.log_folder is not None and not answer.is_log_signed:
            yield (
                f"system log:{self.log_folder} is not the folder that the driver has: an embedded log runs on a cluster only "
                "in a folder that the driver and all executors share; use Kafka"
            )


def rejection_for_failure(said: str) -> Rejected:
    """The rejection of an executor where the question failed; `said` is the last line of the error.

    >>> print(rejection_for_failure("No module named 'mine'"))
    Python does not work there: No module named 'mine': install the module there, or send it with --py-files
    """
    advice = next((advice for pattern, advice in _ADVICE if pattern.search(said)), "see the executor's standard error")
    return Rejected((f"Python does not work there: {said.strip().rstrip('.')[:_SHOWN_MAX]}: {advice}",))


def is_to_be_asked(verdict: Verdict | None, asked_s: float | None, now_s: float) -> bool:
    """Whether an executor is asked now that was asked last at `asked_s`: at once when it is new, again after a while when it
    gave no answer or was rejected, as what is wrong there may be put right.

    >>> no = Rejected(("no",))
    >>> is_to_be_asked(None, None, 9.0), is_to_be_asked(no, 8.0, 9.0), is_to_be_asked(no, 8.0, 99.0)
    (True, False, True)
    """
    if asked_s is None:
        return True
    return not isinstance(verdict, Admitted) and now_s - asked_s >= (ANSWER_S if verdict is None else REJECTED_S)


def rejections_of(verdicts: Mapping[str, Verdict], hosts: Mapping[str, str]) -> dict[str, str]:
    """By host, why executors there get no work. `verdicts`, `hosts`: by executor.

    >>> rejections_of({"1": Rejected(("no",)), "2": Admitted(LocationId("a"))}, {"1": "host-1", "2": "host-2"})
    {'host-1': 'no'}
    """
    found = {hosts[one]: str(verdict) for one, verdict in verdicts.items() if isinstance(verdict, Rejected)}
    return dict(sorted(found.items()))
