"""A storm: one job on Spark, a broker, and seeded SIGKILLs of all that they consist of, while its elasticity factor changes.

What is killed: the driver's Python process, its JVM (in local mode the executor's too), a Python worker that is at work,
the broker. After a driver or a JVM the next driver starts; after a worker or the broker the job goes on by itself. Each
kill waits until something was committed since the last, and for its share of the input: so they come at work, and all
along it. Then the job runs to its end, and `storm_verdict` judges.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headrace as hr
from headrace.errors import UnavailableError
from headrace.model.change import Outcome
from headrace.testing.kafka_server import KafkaServer
from kafka_faults.family import busy_workers, ended, family_of, is_alive
from kafka_faults.storm_child import Run
from kafka_faults.storm_verdict import PARTITIONS, Input, judge_storm
from support.broker import QUIET, is_in_transaction
from support.checker import KillReport, partition_of
from support.children import Children, report_of, state_of
from support.forking import said_by
from support.world import ARRIVALS_MAX, IN_TRANSACTION

CHILD = Path(__file__).with_name("storm_child.py")
RECORDS, KEYS, N_MAX = 1_000_000, 4_000, 10_000
BROKER_HEAP_MB = 512
SHARES = {"worker": 9, "driver": 8, "JVM": 7, "broker": 6}  # of 30 kills; see `kinds_of`
WAIT_S = 180.0  # a start on a busy machine takes half a minute
PACE_S_MAX = 1.5
FACTORS = (2, 8, 4, 1)
AIMED, AIM_S_MAX = 3, 10.0  # every so many kills one comes right before a commit; at random moments few come in a transaction
WRITTEN = ("mapped", "counts", "totals", "by-group-repartition", "regrouped", "groups", "checkpoints")
Found = TypeVar("Found")
JVM_GONE = re.compile(r"round \S+ cannot end: Spark's JVM, process \d+, was killed by SIGKILL\n  hint: [^\n]+")
STACK = re.compile(r"^\s+at [\w.$]+\(|^Traceback", re.MULTILINE)


def kinds_of(kills: int) -> list[str]:
    """What is killed, in no order yet: each kind by its share."""
    kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
    return [kinds[number * len(kinds) // kills] for number in range(kills)]


def storm(folder: Path, seed: int, broker: KafkaServer, kills: int, records: int = RECORDS) -> KillReport:
    """Some `kills` kills of every kind in seeded order, with another elasticity factor before each, then the verdict."""
    draw = random.Random(seed)
    kinds = kinds_of(kills)
    draw.shuffle(kinds)
    report = KillReport()
    began_s = time.monotonic()

    def told(what: str) -> None:
        print(f"  {time.monotonic() - began_s:6.1f} s  {what}", flush=True)

    with Children(folder, CHILD) as children:
        # Many more rounds than kills: each kill lets some through, and on a fast machine more, before it is seen that the
        # broker is back.
        struck = Struck(folder, broker, children, round_records=max(1, records // (4 * len(kinds))))
        given = struck.produced(draw, records)
        struck.start()
        for number, kind in enumerate(kinds):
            pace_s = struck.wait_for_progress(int(0.6 * records * number / len(kinds)))
            struck.rescale(FACTORS[number % len(FACTORS)])
            time.sleep(draw.random() * pace_s)
            struck.kill(kind, draw, report, is_aimed=number % AIMED == 0)
            told(f"kill {number + 1} of {len(kinds)}: {kind}")
        struck.finish()
        report.checked("factors that came into force", struck.rescaled())
        told("the end of the input")
        judge_storm(broker.client_settings(), struck.name, folder / "state", given, report)
        told("the verdict")
    return report


def all_landed(report: KillReport, kills: int) -> None:
    """`AssertionError` unless each kill came while what it killed was at work, and some with a transaction open."""
    landed = {kind: report.landed[kind, "SIGKILL"] for kind in SHARES}
    assert sum(landed.values()) == kills and min(landed.values()) > 0, f"landed: {landed}\n{report}"
    assert report.landed[IN_TRANSACTION, "of these"] > 0, f"no kill came while a transaction was open\n{report}"


class Struck:
    """The job that is struck: its topics, its present run, and who of its earlier processes may still be there."""

    def __init__(self, folder: Path, broker: KafkaServer, children: Children, round_records: int) -> None:
        self.name = f"storm-{os.getpid()}-{time.time_ns()}"
        self._folder, self._broker, self._children = folder, broker, children
        self._armed = folder / "armed"
        self._round_records = round_records
        self._settings: Mapping[str, str] = {**broker.client_settings(), **QUIET}
        admin = AdminClient(self._settings)
        made = admin.create_topics([NewTopic(f"{self.name}-in", PARTITIONS, 1)], request_timeout=60)
        made[f"{self.name}-in"].result(60)
        self._lookers = [
            self._looker("source", f"{self.name}-in"),
            self._looker("by-group", f"{self.name}-by-group-repartition"),
        ]
        self._old: tuple[int, ...] = ()  # processes of runs that were killed

    def _looker(self, sub_topology: str, topic: str) -> tuple[Consumer, list[TopicPartition]]:
        """Who asks for a group's positions without joining it, and what for."""
        settings = {
            **self._settings,
            "group.id": f"{self.name}.{sub_topology}",
            "isolation.level": "read_uncommitted",
            "reconnect.backoff.max.ms": "200",  # while it waits for a broker that is back, the job goes on
        }
        return Consumer(settings), [TopicPartition(topic, partition) for partition in range(PARTITIONS)]

    def produced(self, draw: random.Random, records: int) -> Input:
        """Write seeded records; what was written. A key is always in one partition."""
        names = [b"k%04d" % number for number in range(KEYS)]
        places = [partition_of(name, PARTITIONS) for name in names]
        given = Input(names, draw.choices(range(KEYS), k=records), draw.choices(range(N_MAX), k=records))
        producer = Producer({**self._settings, "enable.idempotence": True, "linger.ms": 20, "compression.type": "lz4"})
        produce, topic = producer.produce, f"{self.name}-in"
        for id_, (key, n) in enumerate(zip(given.keys, given.numbers, strict=True)):
            while True:
                try:
                    produce(topic, b'{"id":%d,"n":%d}' % (id_, n), names[key], places[key])
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(WAIT_S) == 0, "the broker did not take the test's own records"
        return given

    def start(self) -> None:
        stores, servers = str(self._folder / "stores"), self._settings["bootstrap.servers"]
        files = self._children.files()
        self._armed.write_bytes(b"")
        self._run = Run(self.name, servers, stores, **files, round_records=self._round_records, armed=str(self._armed))
        self._pid = self._children.start(self._run)

    def wait_for_progress(self, input_at_least: int) -> float:
        """Until rounds were committed since the last kill, and so much of the input; the seconds from commit to commit."""
        stood: int | None = None
        commits: list[float] = []

        def moved() -> bool:
            nonlocal stood
            try:
                source, read = self._positions()
            except KafkaException:  # the broker has just come back
                return False
            if stood is not None and read > stood:
                commits.append(time.monotonic())
            stood = read
            return len(commits) > 1 and source >= input_at_least

        self._wait_for(moved, "two commits since the last kill")
        return min(PACE_S_MAX, commits[-1] - commits[-2])

    def stopped_worker(self) -> int | None:
        """A worker that has stopped right before it commits; None where none comes there in time."""
        self._armed.write_bytes(b"." * (ARRIVALS_MAX - 1))
        deadline_s = time.monotonic() + AIM_S_MAX
        while time.monotonic() < deadline_s:
            if found := self._stopped():
                return found[0]
            time.sleep(0.01)
        with self._armed.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # as a worker counts itself
            is_sprung = os.fstat(file.fileno()).st_size >= ARRIVALS_MAX
            if not is_sprung:
                file.truncate(0)
        return self._wait_for(self._stopped, "a worker that stops")[0] if is_sprung else None

    def _stopped(self) -> list[int]:
        return [pid for pid in family_of(self._pid).workers if state_of(pid) in ("T", "t")]

    def rescale(self, factor: int) -> None:
        """Ask for another factor; it may come into force before the kill that follows, in it, or after it."""
        with suppress(UnavailableError), hr.elasticity(self.name, self._url) as scales:  # a broker that has just come back
            scales.set(factor)

    def rescaled(self) -> int:
        """How many changes of the factor there were."""
        with hr.elasticity(self.name, self._url) as scales:
            return sum(change.outcome is Outcome.APPLIED for change in scales.history())

    @property
    def _url(self) -> str:
        return f"kafka://{self._settings['bootstrap.servers']}"

    def _positions(self) -> tuple[int, int]:
        """What was committed of the input, and of all that is read."""
        found = [
            sum(max(0, place.offset) for place in looker.committed(list(places), timeout=2.0))
            for looker, places in self._lookers
        ]
        return found[0], sum(found)

    def kill(self, kind: str, draw: random.Random, report: KillReport, *, is_aimed: bool) -> None:
        """Kill one of `kind`, and see to it that the job is at work again, or that what ended has ended well. `is_aimed`: while
        a worker has a transaction open, which goes on to commit it, if it was not this one that was killed."""
        assert is_alive(self._pid), f"the job ended before a {kind} could be killed: {self._told()}"
        self._all_have_ended()
        stopped = self.stopped_worker() if is_aimed else None
        family = family_of(self._pid)
        match kind:
            case "worker":
                found = [stopped] if stopped else self._wait_for(lambda: busy_workers(self._pid), "a Python worker at work")
                victim = draw.choice(found)
            case "driver":
                victim = self._pid
            case "JVM":
                assert family.jvm is not None, f"the driver has no JVM: {self._told()}"
                victim = family.jvm
            case _:
                (victim,) = self._broker.pids.values()
        if kind == "broker":
            is_open = self._is_in_transaction()  # nobody can ask a broker that is dead
            self._broker.kill()
        else:
            os.kill(victim, signal.SIGKILL)
            is_open = self._is_in_transaction()
        if stopped:
            with suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGCONT)
        if kind == "broker":
            time.sleep(draw.uniform(0.2, 3.0))
            self._broker.restart()
        report.fault(kind, "SIGKILL", landed=not ended([victim], within_s=10.0))
        report.fault(IN_TRANSACTION, "of these", landed=is_open)
        if kind in ("driver", "JVM"):
            self._old = family.below
            code = self._ended()
            if kind == "JVM":
                assert code == 1, f"its JVM was killed, and the driver ended with {code}: {self._told()}"
                ends_with_one_line(self._run)
            else:
                assert code == -signal.SIGKILL, f"ended with {code}: {self._told()}"
            self.start()

    def finish(self) -> None:
        """To the end of the input."""
        code = self._ended(self._run.run_s)
        assert code == 0, f"ended with {code}: {self._told()}"
        self._old = ()

    def _ended(self, within_s: float = WAIT_S) -> int:
        """How the driver ended, once it has."""
        self._wait_for(lambda: not is_alive(self._pid), "the driver's end", within_s, alive=False)
        return self._children.wait(self._pid)

    def _all_have_ended(self) -> None:
        """A JVM whose driver has died ends by itself, and so do its Python workers."""
        left, self._old = ended(self._old, within_s=30.0), ()
        assert not left, f"processes {left} still ran half a minute after their driver or their JVM had died"

    def _is_in_transaction(self) -> bool:
        topics = [f"{self.name}-{part}" for part in WRITTEN]
        return is_in_transaction(self._settings, topics)

    def _wait_for(
        self, found: Callable[[], Found], what: str, within_s: float = WAIT_S, alive: bool = True
    ) -> Found:
        """What `found` gives, once it is something; the job has to live meanwhile, unless it is its end that is waited for."""
        deadline_s = time.monotonic() + within_s
        while not (answer := found()):
            assert not alive or is_alive(self._pid), f"the job ended while {what} was waited for: {self._told()}"
            assert time.monotonic() < deadline_s, f"{what} did not come within {within_s:.0f} s: {self._told()}"
            time.sleep(0.02)
        return answer

    def _told(self) -> str:
        """What the run said at its end, and its last lines."""
        told = ""
        with suppress(OSError):
            told = str(report_of(self._run))
        for suffix in ("log", "said"):
            with suppress(OSError):
                told += "\n" + Path(f"{self._run.report}.{suffix}").read_text()[-3000:]
        return told


def ends_with_one_line(run: Run) -> None:
    """A driver whose JVM died says so in a line and a hint, and nothing else: no stack of Java's or of py4j's."""
    told = report_of(run)
    assert told["error"] == "RoundFailedError" and JVM_GONE.fullmatch(told["message"]), told
    said = said_by(run).read_text()
    assert not STACK.search(said), f"a driver whose JVM was killed printed a stack:\n{said}"
