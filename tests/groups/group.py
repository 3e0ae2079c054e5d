"""A standalone group of real processes, on a real Kafka and a real ZooKeeper; and what is checked of it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import headrace as hr
from groups.attempts import Attempt, Hit, attempts_in, check_attempts, now_s
from groups.child import ATTEMPTS, Run, application
from headrace.client.job_documents import status_document
from headrace.client.job_look import JobLook
from headrace.codec.job_records import cuts_of, history_of
from headrace.driver.maintenance.state_versions import versions_of
from headrace.model.change import ChangeKind, Outcome
from headrace.state_files.files import StateFiles
from support.broker import read_topic
from support.children import Children

WAIT_S = 60.0
NOT_YET = b"..."  # of a trap's file: the visit that comes next is none that acts
PARTITIONS = 4
KEYS = 24


@dataclass
class Group:
    """An application `name`, its processes, and what was sent. `processed`: what is to have been processed, in this order of
    each key; where a startpoint has records read again, these come again."""

    name: str
    system: Any
    url: str
    servers: Any
    coordinator: str
    children: Children
    folder: Path
    sent: list[tuple[str, int]] = field(default_factory=list)
    processed: list[tuple[str, int]] = field(default_factory=list)
    pids: dict[str, int] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    hits: dict[str, list[Hit]] = field(default_factory=dict)  # by incarnation
    sees_state: bool = True  # whether the state is where this process sees it
    hosts: dict[str, Children] = field(default_factory=dict)  # see `groups.hosts`; none: all are on this one
    sender: threading.Lock = field(default_factory=threading.Lock)  # one at a time sends: what two send has no order

    # --- processes --------------------------------------------------------------------------------------------------

    def run(self, id_: str, **options: Any) -> Run:
        terms = Run(id_, self.coordinator, self.url, self.name, str(self.folder), **self.children.files())
        terms = replace(terms, on_own_host=bool(self.hosts))
        return replace(terms, **options)

    def start(self, id_: str, **options: Any) -> int:
        run = self.run(id_, **options)
        pid = self.pids[id_] = self._server_of(id_).start(run)
        self.runs[pid] = run
        return pid

    def trap(self, id_: str, action: str, step: int) -> str:
        """For the options of a start: the process is to do that at a step, once it is armed."""
        path = self.folder / f"trap-{id_}"
        path.write_bytes(NOT_YET)
        return f"{action}:group:{step}:1@{path}"

    def arm(self, id_: str) -> None:
        """From now on its trap acts, when the step is reached next."""
        (self.folder / f"trap-{id_}").write_bytes(b"")

    def kill(self, id_: str, number: int = signal.SIGKILL, victims: Sequence[int] = ()) -> int:
        """By a signal, which its process gets, or the `victims`: processes below it, with it or without. A process that it ends
        is waited for."""
        pid = self.pids[id_]
        if number == signal.SIGCONT:
            self.note_woken(id_)
        else:
            self.note_hit(id_)
        for one in victims or (pid,):
            with suppress(ProcessLookupError):  # one below it may have ended with the one before
                os.kill(one, number)
        if number != signal.SIGKILL or (victims and pid not in victims):
            return 0
        return self._server_of(id_).wait(self.pids.pop(id_))

    def note_hit(self, id_: str) -> None:
        """Something has stopped or killed this processor, or a part of it."""
        self.hits.setdefault(f"{id_}/{self.pids[id_]}", []).append(Hit(now_s()))

    def note_woken(self, id_: str) -> None:
        mine = self.hits.get(f"{id_}/{self.pids[id_]}", [])
        mine[:] = [replace(hit, until_s=min(hit.until_s, now_s())) for hit in mine]

    def await_worker(self, id_: str) -> int:
        """Wait until a processor is in the midst of a round; the process that is at work."""
        who, found = f"{id_}/{self.pids[id_]}", list[Attempt]()

        def is_at_work() -> bool:
            mine = [one for one in self.attempts() if one.who == who]
            found[:] = [one for one in mine if one.began_s is not None and one.commits_s is None and one.ended_s is None]
            return bool(found)

        self.until(is_at_work)
        return found[-1].pid

    def attempts(self) -> list[Attempt]:
        """All that were noted by now."""
        file = Path(self.folder, ATTEMPTS)
        return attempts_in(file) if file.exists() else []

    def await_end(self, id_: str) -> None:
        """Of one that is killed at a step."""
        code = self._server_of(id_).wait(self.pids.pop(id_))
        assert code == -signal.SIGKILL, code

    def await_success(self, id_: str) -> None:
        """Of one that ends by itself."""
        pid = self.pids.pop(id_)
        code = self._server_of(id_).wait(pid)
        assert code == 0, f"{id_} ended with {code}\n{self.told(pid)}"

    def stop(self, id_: str) -> None:
        """In order."""
        pid = self.pids.pop(id_)
        os.kill(pid, signal.SIGTERM)
        code = self._server_of(id_).wait(pid)
        assert code == 0, f"{id_} ended with {code}\n{self.told(pid)}"

    def await_refusal(self, id_: str) -> dict[str, Any]:
        """The error that one ends with."""
        pid = self.pids.pop(id_)
        code = self._server_of(id_).wait(pid)
        assert code == 1, f"{id_} ended with {code}\n{self.told(pid)}"
        found: dict[str, Any] = json.loads(Path(self.runs[pid].report).read_text())
        return found

    def stop_with_error(self, id_: str) -> dict[str, Any]:
        """In order: what had stopped a part of it before is raised then."""
        os.kill(self.pids[id_], signal.SIGTERM)
        return self.await_refusal(id_)

    def await_one_end(self, *ids: str) -> str:
        """The first of these that has ended by itself."""
        deadline_s = time.monotonic() + WAIT_S
        while not (found := [id_ for id_ in ids if Path(self.runs[self.pids[id_]].report).exists()]):
            assert time.monotonic() < deadline_s, f"none of {ids} has ended"
            time.sleep(0.05)
        return found[0]

    def _server_of(self, id_: str) -> Children:
        return self.hosts.get(id_.partition(".")[0], self.children)

    def stop_all(self) -> None:
        for id_ in list(self.pids):
            self.stop(id_)

    def status(self, id_: str) -> dict[str, Any]:
        """As it was last seen; empty before."""
        path = Path(f"{self.runs[self.pids[id_]].report}.status")
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def told(self, pid: int) -> str:
        run = self.runs[pid]
        texts = [Path(f"{run.report}{part}") for part in ("", ".log", ".said")]
        return "\n".join(path.read_text()[-3000:] for path in texts if path.exists())

    # --- input and outputs ------------------------------------------------------------------------------------------

    def send(self, records: int, keys: Sequence[str] = tuple(f"k{number}" for number in range(KEYS))) -> None:
        with self.sender:
            made = [(keys[(len(self.sent) + n) % len(keys)], len(self.sent) + n) for n in range(records)]
            self.system.produce(f"{self.name}-words", made, hr.String(), hr.Long())
            self.sent += made
            self.processed += made

    def keys_in(self, partition: int) -> set[str]:
        """The keys that were sent to a partition."""
        return {row["key"].decode() for row in self.rows("words") if row["partition"] == partition}

    def rows(self, output: str) -> list[Any]:
        return read_topic(self.servers, f"{self.name}-{output}")

    @contextmanager
    def sending(self, records: int = 8, every_s: float = 0.02) -> Iterator[None]:
        """Send all the time, so that tasks never come to the ends of their partitions together."""
        over = threading.Event()

        def send() -> None:
            while not over.wait(every_s):
                self.send(records)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def await_all(self, within_s: float = WAIT_S) -> None:
        """Wait until each record that was sent has come to each output."""
        self.until(lambda: all(len(self.rows(one)) >= len(self.processed) for one in ("numbered", "by-digit")), within_s)

    def until(self, look: Callable[[], object], within_s: float = WAIT_S) -> None:
        deadline_s = time.monotonic() + within_s
        while not look():
            if time.monotonic() > deadline_s or self.has_failed():
                counts = {one: len(self.rows(one)) for one in ("numbered", "by-digit")}
                told = "\n".join(f"--- {id_}\n{self.told(pid)}" for id_, pid in self.pids.items())
                raise AssertionError(f"it was not so within {within_s:g} s; {counts} of {len(self.processed)} records\n{told}")
            time.sleep(0.1)

    def has_failed(self) -> bool:
        """Whether a process has ended by itself."""
        return any(Path(self.runs[pid].report).exists() for pid in self.pids.values())

    # --- what must hold ---------------------------------------------------------------------------------------------

    def check(self, passes: Sequence[tuple[int, int | None]] = ((0, None),)) -> int:
        """Each record is in each output once, the numbers of a key are 1, 2, 3 ..., its records in the order in which they
        were sent; and no two processes have worked on a task at the same time. How much was compared. `passes`: from which
        record to which all was read, one after the other: each counts on from where it begins."""
        compared = 0
        for output, key_of in (("numbered", lambda key: key), ("by-digit", lambda key: key[-1])):
            expected: dict[str, list[tuple[int, int]]] = {}
            for begin, end in passes:
                counts = Counter(key_of(key) for key, _ in self.processed[:begin])
                for key, value in self.processed[begin:end]:
                    counts[key_of(key)] += 1
                    expected.setdefault(key_of(key), []).append((counts[key_of(key)], value))
            found: dict[str, list[tuple[int, int]]] = {}
            for row in self.rows(output):
                number, value = json.loads(row["value"])
                found.setdefault(row["key"].decode(), []).append((number, value))
            assert found.keys() == expected.keys(), output
            for key, rows in found.items():
                assert [number for number, _ in rows] == [number for number, _ in expected[key]], (output, key, rows)
                values, sent = [value for _, value in rows], [value for _, value in expected[key]]
                if output == "numbered":  # of several tasks' records behind a repartition stream there is no order
                    assert values == sent, (output, key)
                assert Counter(values) == Counter(sent), (output, key)
                compared += len(rows)
        attempts = check_attempts(self.attempts(), self.hits)
        assert attempts, "none has noted what it did"
        return compared + self.check_work() + attempts + (self.check_files() if self.sees_state else 0)

    def check_files(self) -> int:
        """That each file of the state is there that a checkpoint names, or a version that is kept."""
        named, there = self.named_files(), self.state_files()
        assert named <= there, f"files of the state are gone: {sorted(named - there)}"
        return len(named)

    def state_files(self) -> set[str]:
        """All that are there."""
        return set(StateFiles(f"{self.folder}/state").list(self.name))

    def named_files(self) -> set[str]:
        """Those that a checkpoint names, or a version that is kept."""
        now = list(self.system.job_store(self.name).checkpoints().values())
        kept = [one.checkpoint for versions in versions_of(self.system.metadata_store(self.name)).values() for one in versions]
        return {file.name for one in (*now, *kept) if one.head is not None for file in one.head.files}

    def check_work(self) -> int:
        """That the intervals in which processes worked on a task do not overlap. One that was stopped in the midst worked up to
        then: when it wakes it commits nothing of that, which the outputs show."""
        spans: dict[str, list[tuple[float, float, str]]] = {}
        for line in Path(self.folder, "work.jsonl").read_text().splitlines():
            who, tasks, began, ended, _ = line.split(" ")
            began_s, hits_s = float(began), [hit.since_s for hit in self.hits.get(who, ())]
            end_s = min([float(ended), *(hit_s for hit_s in hits_s if hit_s > began_s)])
            for task in tasks.split(","):
                spans.setdefault(task, []).append((began_s, end_s, who))
        for task, mine in spans.items():
            mine.sort()
            for one, after in pairwise(mine):
                assert one[2] == after[2] or one[1] <= after[0], f"{one} and {after} worked on {task}"
        return sum(map(len, spans.values()))

    def tasks_of(self) -> dict[str, set[str]]:
        """By processor the tasks that it has in the job model that is in force."""
        model = self.system.job_store(self.name).job_model()
        found: dict[str, set[str]] = {}
        for sub in model.sub_topologies if model is not None else ():
            for container in sub.containers:
                found.setdefault(str(container.processor_id), set()).update(str(task.name) for task in container.tasks)
        return found

    def is_kept(self) -> bool:
        """Whether the last version of each task's state that is kept is its present one."""
        kept = versions_of(self.system.metadata_store(self.name))
        now = self.system.job_store(self.name).checkpoints()
        return all(task in kept and kept[task][-1].checkpoint.round_id == one.round_id for task, one in now.items())

    def is_kept_as_a_whole(self) -> bool:
        """Whether the last cut of the sub-topology that reads the words, and the last version of each task behind it, are of
        where the tasks are now. A task that had no record since is kept as of an earlier round."""
        metadata = self.system.metadata_store(self.name)
        now = {task: one.positions for task, one in self.system.job_store(self.name).checkpoints().items()}
        kept = versions_of(metadata)
        cuts = [cut for cut in cuts_of(metadata) if cut.sub_topology is None]
        of_cut = cuts[-1].rounds if cuts else {}
        found = {task: [one for one in mine if of_cut.get(task, one.checkpoint.round_id) == one.checkpoint.round_id][-1:]
                 for task, mine in kept.items() if task in of_cut or task.sub_topology is not None}  # fmt: skip
        return {task: one.checkpoint.positions for task, mine in found.items() for one in mine} == now

    def ends(self) -> dict[int, int]:
        """By partition of the input."""
        return dict(self.system.high_watermarks(f"{self.name}-words"))

    def partitions_read(self) -> int:
        """How many partitions the words have in the job model that is in force."""
        model = self.system.job_store(self.name).job_model()
        return 0 if model is None else int(model.partition_counts[f"{self.name}-words"])

    def refusals(self) -> int:
        """How many changes of streams that readers cannot follow are on record."""
        entries = history_of(self.system.metadata_store(self.name)).values()
        return sum(one.kind is ChangeKind.EXPANSION and one.outcome is Outcome.REFUSED for one in entries)

    def version(self) -> int:
        model = self.system.job_store(self.name).job_model()
        return 0 if model is None else int(model.version)

    def stopped_by(self, id_: str, sub_topology: str) -> str:
        """Why a sub-topology has stopped there, while others keep running; empty where it has not."""
        found: str = self.status(id_).get("sub_topologies", {}).get(sub_topology, {}).get("stopped_by", "")
        return found

    def waiting_for(self, id_: str) -> str:
        status = self.status(id_)
        texts = [sub["waiting_for"] for sub in status.get("sub_topologies", {}).values()]
        return " ".join([status.get("waiting_for", ""), *texts])

    def shown_waiting_for(self, sub_topology: str, id_: str) -> str:
        """What a sub-topology waits for there, as anyone can see who looks at the status of the job."""
        found = self.system.job_store(self.name).status().get(sub_topology, {}).get("processors", {})
        return str(found.get(id_, {}).get("waiting_for", ""))

    def shown(self) -> dict[str, Any]:
        """What `headrace status --json` shows of the job."""
        return status_document(JobLook(self.system, self.name), self.url)

    def shown_records(self) -> list[int]:
        """Of each sub-topology; on Kafka they are offsets, with the markers of transactions."""
        return [sub.get("records", 0) for sub in self.shown()["sub_topologies"].values()]

    def restored_bytes(self, id_: str) -> int:
        """How many bytes of state files it has read to restore its local stores."""
        subs = self.status(id_)["sub_topologies"].values()
        return sum(sub["metrics"].get("restored-bytes", 0) for sub in subs)

    def seen_to_have_ended(self) -> dict[str, str]:
        """By processor why its rounds have ended, as anyone can see who looks at the status of the job."""
        found = self.system.job_store(self.name).status()
        every = [one for sub in found.values() for one in sub.get("processors", {}).items()]
        return {id_: status["ended_by"] for id_, status in every if status.get("ended_by")}

    def application(self) -> hr.App:
        """For commands."""
        return application(self.run("-"))

    def await_shares(self, *ids: str, within_s: float = WAIT_S) -> None:
        """Wait until just these processors have tasks."""
        self.until(lambda: self.tasks_of().keys() == set(ids), within_s)


@contextmanager
def group_on(
    kafka: Any, coordinator: str, folder: Path, partitions: int = PARTITIONS, bootstrap: str | None = None
) -> Iterator[Group]:
    """`bootstrap`: the broker's address, where it is another one than `kafka` has."""
    address = bootstrap or kafka.bootstrap
    name = f"group-{uuid.uuid4().hex[:6]}"
    script = Path(__file__).with_name("child.py")
    with hr.open_system(f"kafka://{address}") as system, Children(folder, script) as children:
        system.create_stream(f"{name}-words", partitions)
        for output in ("numbered", "by-digit"):
            system.create_stream(f"{name}-{output}", 2)
        settings = kafka.client_settings()
        yield Group(name, system, f"kafka://{address}", settings, coordinator, children, folder)
