"""Standalone groups of real processes: who joins, leaves, dies, sleeps; whoever leads (SEP-11)."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from groups.child import application, engine_of
from groups.group import PARTITIONS, Group
from headrace import wiring
from headrace.adapters.common.lease_holder import this_process
from headrace.cli.commands import application as commands
from headrace.codec.job_records import history_of
from headrace.core.group.state import Registration
from headrace.driver import system_wait
from headrace.driver.group import group_job
from headrace.errors import JobHeldError, StorageError, UnavailableError
from headrace.group.processor_group import ProcessorGroup
from headrace.model.change import ChangeKind
from headrace.state_files.files import StateFiles
from headrace.wiring.worker import entry
from headrace.worker.inline_engine import InlineEngine

pytestmark = pytest.mark.chaos


def test_processors_join_die_return_and_leave(group: Group) -> None:
    group.send(50)
    group.start("a")
    group.await_all()
    group.start("b")
    group.await_shares("a", "b")
    group.send(50)
    group.await_all()
    group.kill("a")  # it led
    group.send(50)
    group.await_shares("b")
    group.await_all()
    group.start("a")
    group.await_shares("a", "b")
    assert {id_: len(tasks) for id_, tasks in group.tasks_of().items()} == {"a": 4, "b": 4}
    group.send(50)
    group.await_all()
    group.stop("b")
    group.send(50)
    group.await_shares("a")
    group.await_all()
    group.stop_all()
    assert group.check() >= 500


@pytest.mark.soak
def test_one_that_comes_back_in_time_keeps_its_tasks_and_those_of_others_go_on(group: Group) -> None:
    """No new job model is made, and no round of the other one is held up."""
    for id_ in "ab":
        group.start(id_)
    group.await_shares("a", "b")
    group.send(40)
    group.await_all()
    version, shares = group.version(), group.tasks_of()
    group.stop("b")
    assert "it was stopped in order" in group.seen_to_have_ended().get("b", "")
    group.send(40)
    group.start("b")
    group.await_all()
    assert (group.version(), group.tasks_of()) == (version, shares)
    group.stop_all()
    assert group.check() >= 160


def test_of_two_with_one_id_the_later_one_gives_way_before_it_starts_spark(group: Group) -> None:
    group.start("a")
    group.await_shares("a")
    first = group.pids.pop("a")
    second = group.start("a")
    error = group.await_refusal("a")
    assert error["error"] == "JobHeldError", error
    assert f"processor 'a' is run by process {first} on host" in error["message"], error
    told = group.told(second)
    assert f"waits for the end of the other one: processor 'a' is run by process {first}" in told, told
    assert "has joined the group" not in told, told
    group.pids["a"] = first
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 80


def test_one_that_zookeeper_does_not_answer_as_it_joins_waits_for_it(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    register, tries = ProcessorGroup.register, list[float]()

    def refused_at_first(one: ProcessorGroup, registration: Registration) -> int:
        tries.append(time.monotonic())
        if len(tries) < 3:
            raise UnavailableError("ZooKeeper gave no answer")
        return register(one, registration)

    monkeypatch.setattr(ProcessorGroup, "register", refused_at_first)
    group.send(20)
    job = started_here(group, monkeypatch)
    try:
        group.await_all()
    finally:
        job.stop()
    assert len(tries) >= 3
    assert group.check() >= 40


def test_where_tasks_run_is_stored_before_the_next_look(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is killed soon after its first rounds would else not be known to have had them."""
    look_in_s = group_job.look_in_s
    monkeypatch.setattr(group_job, "look_in_s", lambda **terms: 3600.0 if terms["works"] else look_in_s(**terms))
    job = started_here(group, monkeypatch)
    try:
        group.await_shares("a")
        group.until(lambda: not job.status()["waiting_for"])
        time.sleep(1.0)  # what its own plan has changed in ZooKeeper is seen by now
        group.send(200)
        group.await_all()
        stored = job._group.locality.read_processor_locality
        group.until(lambda: len(stored().get_locality()) == 2 * PARTITIONS)
    finally:
        job.stop()


def started_here(group: Group, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Processor `a`, in this very process."""
    run = group.run("a")
    monkeypatch.setattr(InlineEngine, "run", InlineEngine.run)  # which `engine_of` replaces
    monkeypatch.setattr(entry, "ports_of", entry.ports_of)
    return wiring.start(application(run), engine=engine_of(run))


def test_one_that_can_write_no_state_waits_says_so_and_ends(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    job = started_here(group, monkeypatch)
    group.await_shares("a")

    def refuses(files: StateFiles, name: str) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(StateFiles, "_create", refuses)
        group.send(40)
        group.until(lambda: "another try, for " in (told := group.shown_waiting_for("source", "a")) and "disk is full" in told)
        patch.setattr(system_wait, "SYSTEM_WAIT_S", 0.5)
        with pytest.raises(StorageError, match=r"state_uri .* the disk is full.* rounds were tried again") as ended:
            job.wait(60)
    assert type(ended.value) is StorageError, "a group would wait for an `UnavailableError` once more"
    assert "the disk is full" in group.seen_to_have_ended()["a"]
    group.start("a")
    group.await_all()
    group.stop_all()
    assert group.check() >= 80


@pytest.mark.soak
def test_one_that_cannot_sign_the_state_gives_the_application_back(group: Group) -> None:
    signs = group.folder / "state" / f".runs-of-{group.name}"
    signs.parent.mkdir()
    signs.write_text("no folder")
    group.start("a")
    error = group.await_refusal("a")
    assert error["error"] == "StateError" and "cannot be written" in error["message"], error
    assert group.system.job_store(group.name).holder() is None
    signs.unlink()
    group.start("a")
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 80


@pytest.mark.parametrize("who", ["the leader", pytest.param("another one", marks=pytest.mark.soak)])
def test_one_that_sleeps_while_its_tasks_go_to_another_commits_nothing_when_it_wakes(group: Group, who: str) -> None:
    group.start("a")
    group.await_shares("a")
    group.start("b")
    group.await_shares("a", "b")
    group.send(40)
    group.await_all()
    sleeper, other = ("a", "b") if who == "the leader" else ("b", "a")
    group.send(40)
    group.kill(sleeper, signal.SIGSTOP)
    group.send(40)
    group.await_shares(other)
    group.await_all()
    group.kill(sleeper, signal.SIGCONT)
    group.send(40)
    group.await_shares("a", "b")
    group.await_all()
    group.stop_all()
    assert group.check() >= 320


def test_zookeeper_away_for_longer_than_the_timeout_stops_all_until_it_is_back(group: Group, real_zookeeper: Any) -> None:
    for id_ in "ab":
        group.start(id_, return_wait_s=60.0)
    group.await_shares("a", "b")
    group.send(40)
    group.await_all()
    version, shares = group.version(), group.tasks_of()
    real_zookeeper.stop()
    group.until(lambda: all("ZooKeeper" in group.waiting_for(id_) for id_ in "ab"), 30.0)
    group.until(lambda: all("ZooKeeper" in group.seen_to_have_ended().get(id_, "") for id_ in "ab"), 15.0)
    group.send(40)
    time.sleep(1.0)
    assert len(group.rows("numbered")) == 40, "nobody works without ZooKeeper"
    real_zookeeper.restart(empty=True)
    group.await_all()
    group.until(lambda: not group.seen_to_have_ended())
    assert (group.version(), group.tasks_of()) == (version, shares), "whichever of them was back first"
    group.stop_all()
    assert group.check() >= 160


def test_a_topic_that_grows_and_another_factor_come_to_all_processors(group: Group) -> None:
    for id_ in "ab":
        group.start(id_)
    group.await_shares("a", "b")
    group.send(40)
    group.await_all()
    place = ["--application", group.name, "--system", group.url]
    shown = [CliRunner().invoke(commands, [one, *place]) for one in ("status", "tasks")]
    for found in shown:
        assert found.exit_code == 0 and "processor" in found.stdout, found.stdout
    lines = [line.split() for line in shown[0].stdout.splitlines()]
    assert {line[0] for line in lines if "leads" in line} & set("ab"), "one of them leads"
    rows = {tuple([word for word in line if word != "leads"][:3]) for line in lines}
    assert rows >= {(id_, sub, "2") for id_ in "ab" for sub in ("source", "by-digit")}
    with hr.elasticity(group.application()) as elasticity:
        elasticity.set(2)
    group.until(lambda: sum(map(len, group.tasks_of().values())) == 16)
    group.send(40)
    group.await_all()
    version = group.version()
    group.system.expand_stream(f"{group.name}-words", 2 * PARTITIONS)
    group.until(lambda: group.version() > version)
    group.send(40)
    group.await_all()
    entries = list(history_of(group.system.metadata_store(group.name)).values())
    assert {one.kind for one in entries} >= {ChangeKind.START, ChangeKind.SCALE, ChangeKind.EXPANSION}, "none was written over"
    assert [one.at_us for one in entries] == sorted(one.at_us for one in entries)
    group.stop_all()
    assert group.check() >= 240


@pytest.mark.soak
def test_tasks_are_merged_though_they_never_come_to_the_end_of_what_there_is(group: Group) -> None:
    """Tasks that become one are with different processors, and records come all the time: these bring them together."""
    for id_ in "abc":
        group.start(id_, factor=2, slots=3)  # with fewer containers than tasks the parts of a partition stay together
    group.until(lambda: {id_[0] for id_ in group.tasks_of()} == set("abc"))
    model = group.system.job_store(group.name).job_model()
    holders: dict[str, set[str]] = {}
    for container in (one for sub in model.sub_topologies for one in sub.containers):
        for task in container.tasks:
            holders.setdefault(str(task.partitions), set()).add(container.processor_id[0])
    assert any(len(ids) > 1 for ids in holders.values()), holders
    with group.sending():
        group.until(lambda: len(group.rows("by-digit")) > 100)
        with hr.elasticity(group.application()) as elasticity:
            elasticity.set(1)
        group.until(lambda: sum(map(len, group.tasks_of().values())) == 8, 20.0)
        group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 240


def test_a_group_goes_back_to_a_version_of_its_state_that_is_of_all_tasks_at_once(group: Group) -> None:
    """Behind a repartition stream, too: what was written after the version is written again, and counted again."""
    for id_ in "ab":
        group.start(id_, version_interval_s=1.0)
    group.await_shares("a", "b")
    group.send(48)
    group.await_all()
    group.until(group.is_kept)
    ends = group.ends()
    group.send(48)
    group.await_all()
    with hr.startpoints(group.application()) as points:
        points.set(f"{group.name}-words", ends[0], partition=0, state="rewind")  # the other tasks go back with it
    group.until(lambda: all(len(group.rows(one)) >= 144 for one in ("numbered", "by-digit")))
    group.send(48)
    group.until(lambda: all(len(group.rows(one)) >= 192 for one in ("numbered", "by-digit")))
    group.stop_all()
    assert group.check([(0, 96), (48, None)]) >= 384


@pytest.mark.soak
def test_a_leader_that_hears_late_of_what_others_commit_deletes_nothing_that_they_need(group: Group) -> None:
    group.start("a")
    group.await_shares("a")
    for id_ in "bc":
        group.start(id_, is_deaf=True)
    group.await_shares("a", "b", "c")
    for _ in range(4):
        group.send(40)
        group.await_all()
    group.kill("a")
    group.await_shares("b", "c")  # one of them leads, and tidies up at once
    time.sleep(1.5)
    assert group.check_files() > 0
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 400


def test_a_bounded_run_ends_for_all_when_all_is_read(group: Group) -> None:
    """Also for a spare, and when one of them was killed in the midst; what comes later is for the next run."""
    group.send(200)
    for id_ in "abc":
        group.start(id_, until="caught-up")
    group.until(lambda: len(group.rows("numbered")) > 0)
    group.kill("b")
    group.start("b", until="caught-up")
    for id_ in "abc":
        group.await_success(id_)
    assert all(len(group.rows(one)) == 200 for one in ("numbered", "by-digit"))
    assert group.system.job_store(group.name).holder() is None, "it was given back"
    group.send(40)
    group.start("a", until="caught-up")
    group.await_success("a")
    assert group.check() >= 480


LEADERS_STEPS, OTHERS_STEPS = (1, 2, 3, 4, 5, 6), (7, 8, 9, 10)
IN_EACH_RUN = (6,)  # committed, not published; `test_steps` has one of a member


@pytest.mark.parametrize(
    "step",
    [pytest.param(step, marks=[] if step in IN_EACH_RUN else [pytest.mark.soak]) for step in (*LEADERS_STEPS, *OTHERS_STEPS)],
)
def test_nothing_is_lost_or_doubled_whoever_is_killed_at_a_step_of_a_rebalance(group: Group, step: int) -> None:
    """The first plan is made with one processor, the second when another joins: then the step comes for the second time, but
    for those that come once only by then."""
    number = 1 if step in (7, 8) else 2
    group.start("a", traps=f"kill:group:{step}:{number}")
    group.await_shares("a")
    group.send(40)
    group.await_all()
    group.start("b")
    group.send(40)
    group.await_end("a")
    group.await_shares("b")
    group.send(40)
    group.await_all()
    group.start("a")
    group.await_shares("a", "b")
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 320


@pytest.mark.parametrize("leaves", ["dies", pytest.param("stops", marks=pytest.mark.soak)])
def test_one_that_led_before_leads_again(group: Group, leaves: str) -> None:
    """It slept, and another led; now that one leaves, and it is the first in line."""
    for id_ in "ab":
        group.start(id_)
        group.await_shares(*"ab"[: "ab".index(id_) + 1])
    group.send(40)
    group.await_all()
    group.kill("a", signal.SIGSTOP)
    group.await_shares("b")
    group.kill("a", signal.SIGCONT)
    group.await_shares("a", "b")
    group.send(40)
    group.await_all()
    (group.kill if leaves == "dies" else group.stop)("b")
    group.await_shares("a")
    group.start("b")
    group.start("c")
    group.await_shares(*"abc")
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 240


def test_a_group_that_has_lost_its_leader_runs_and_is_not_taken_over(group: Group) -> None:
    """Not by who knows nothing of its ZooKeeper, on the very host of the leader: that its process has ended says little."""
    for id_ in "ab":
        group.start(id_, session_ms=10_000)
        group.await_shares(*"ab"[: "ab".index(id_) + 1])
    group.send(40)
    group.await_all()
    group.kill("a")
    store, application = group.system.job_store(group.name), ["--application", group.name, "--system", group.url]
    with pytest.raises(JobHeldError, match=r"is run by a group, of which these processors work: .*b"):
        store.acquire(this_process("another", time.time_ns() // 1000), time.time_ns() // 1000)
    refused = CliRunner().invoke(commands, ["reset", *application, "--yes"])
    assert refused.exit_code == 1 and "b of its group" in refused.output, refused.output
    shown = CliRunner().invoke(commands, ["status", *application])
    assert "of its group; process" in shown.output and "which led, is lost, another will lead" in shown.output
    found = json.loads(CliRunner().invoke(commands, ["status", *application, "--json"]).output)
    assert found["running"] and not found["holder"]["alive"] and "b" in found["working_processors"]
    group.await_shares("b")
    group.send(40)
    group.await_all()
    group.stop_all()
    group.until(lambda: not json.loads(CliRunner().invoke(commands, ["status", *application, "--json"]).output)["running"])
    assert group.check() >= 160
