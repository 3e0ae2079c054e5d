"""What is noted of the attempts to work on tasks, in the process that does the work, and what must hold of them.

An attempt is one container in one round: in the processor's own process, or in a Python worker of its Spark, which may live on
when the processor is stopped or has died. It asks for its lane, begins if that and its grant are still its own, and commits.
Each of these is a line in a file that all processes append to, by a clock that they share and that runs on while they sleep.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from headrace.wiring.worker import entry

VARIABLE = "HEADRACE_TEST_ATTEMPTS"  # for Python workers: `WHO FILE`
_numbers = count()


def now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# --- in the process that does the work ------------------------------------------------------------------------------------


def note_attempts(who: str, file: str) -> None:
    """Have all containers of this process, and of those that it forks, note what they do."""
    made = entry.ports_of

    def noting(plan: Any, *given: Any) -> Any:
        ports, number = made(plan, *given), next(_numbers)
        known = {"who": who, "pid": os.getpid(), "number": number, "grant": plan.epoch, "round": plan.round_id}
        known["tasks"] = [task.name for task in plan.tasks]

        def note(event: str) -> None:
            line = json.dumps({**known, "event": event, "at_s": now_s()})
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(descriptor, f"{line}\n".encode())
            os.close(descriptor)

        ports.begin, ports.commit, ports.abandon = _noted(ports, note)
        return ports

    entry.ports_of = noting


def _noted(ports: Any, note: Callable[[str], None]) -> tuple[Callable[..., Any], ...]:
    begin, commit, abandon = ports.begin, ports.commit, ports.abandon

    def noted_begin() -> Any:
        note("asks")
        done = begin()
        if done is None:
            note("begins")
        return done

    def noted_commit(checkpoints: Any) -> Any:
        note("commits")
        receipt = commit(checkpoints)
        note("committed")
        return receipt

    def noted_abandon() -> None:
        note("ends")
        abandon()

    return noted_begin, noted_commit, noted_abandon


# --- what must hold -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attempt:
    """One container in one round, of a processor's incarnation `who`, in process `pid`, under a grant; when each step of it was
    noted, None: never. `ended_s`: when its work had ended, committed or not."""

    who: str
    pid: int
    grant: int
    tasks: tuple[str, ...]
    round_id: str
    asked_s: float
    began_s: float | None = None
    commits_s: float | None = None
    committed_s: float | None = None
    ended_s: float | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A signal killed or stopped processes of a processor, from then until they were woken."""

    since_s: float
    until_s: float = math.inf


_FIELDS = {"begins": "began_s", "commits": "commits_s", "committed": "committed_s", "ends": "ended_s"}


def attempts_in(file: Path) -> list[Attempt]:
    found: dict[tuple[str, int, int], Attempt] = {}
    for line in map(json.loads, file.read_text().splitlines()):
        name, at_s = (line["who"], line["pid"], line["number"]), line["at_s"]
        if line["event"] == "asks":
            found[name] = Attempt(line["who"], line["pid"], line["grant"], tuple(line["tasks"]), line["round"], at_s)
        else:
            found[name] = replace(found[name], **{_FIELDS[line["event"]]: at_s})
        if line["event"] == "committed":
            found[name] = replace(found[name], ended_s=at_s)
    return list(found.values())


def check_attempts(attempts: Iterable[Attempt], hits: Mapping[str, Sequence[Hit]]) -> int:
    """That no two processors work on a task at once, as far as that counts. Once an attempt on a task has asked, and begins:

    1. None begins that asks later and is of an earlier grant: it reads its grant when it has its lane, and by then that was
       taken back.
    2. An attempt of an earlier grant that is at work sends no commit that counts: its lane was fenced before. It may compute
       on: a process that was stopped, or whose driver has died, knows nothing of that.
    3. Only what a signal has hit may compute on like this. Of two processors that live and were not stopped the earlier one
       has ended.
    4. Of one grant (a round that was given up, and its next try) at most one commits, where one began before the other sent
       its commit.
    5. A grant is of one incarnation of a processor, whatever tasks.

    What is not noted of an attempt has not happened: a process that is killed in its commit may have committed, which the
    outputs show. How many attempts were compared; `AssertionError` names two that break a rule."""
    by_task: dict[str, list[Attempt]] = {}
    owners: dict[int, str] = {}
    for attempt in attempts:
        owner = owners.setdefault(attempt.grant, attempt.who)
        assert owner == attempt.who, f"grant {attempt.grant} is of {owner} and of {attempt.who}"
        for task in attempt.tasks:
            by_task.setdefault(task, []).append(attempt)
    for task, mine in by_task.items():
        began = sorted((one for one in mine if one.began_s is not None), key=_began_s)
        firsts: dict[int, Attempt] = {}  # by grant
        for one in sorted(began, key=lambda one: one.asked_s):
            firsts.setdefault(one.grant, one)
        for number, one in enumerate(began):
            for other in firsts.values():
                broken = _broken(one, other, hits.get(one.who, ())) if one.grant < other.grant else ""
                assert not broken, f"task {task}: {broken}: {one} and {other}"
            for other in began[number + 1 :]:
                if one.commits_s is None or _began_s(other) > one.commits_s:
                    break
                both = one.grant == other.grant and None not in (one.committed_s, other.committed_s)
                assert not both, f"task {task}: both have committed: {one} and {other}"
    return sum(map(len, by_task.values()))


def _broken(one: Attempt, other: Attempt, hits: Sequence[Hit]) -> str:
    """What `one` has done since `other` asked, which has a later grant, and may not have; empty: nothing."""
    since_s = other.asked_s
    if one.asked_s > since_s:
        return "it began under a grant that was taken back"
    if one.committed_s is not None and one.commits_s is not None and one.commits_s > since_s:
        return "it committed after another had its task"
    is_hit = any(hit.since_s <= since_s and one.asked_s <= hit.until_s for hit in hits)
    is_at_work = one.ended_s is not None and one.ended_s > since_s
    return "two that live worked on it at once" if is_at_work and not is_hit else ""


def _began_s(attempt: Attempt) -> float:
    assert attempt.began_s is not None
    return attempt.began_s
