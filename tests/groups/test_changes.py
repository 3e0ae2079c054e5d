"""Changes of streams, of scale and of positions in a group, several at once and under a kill; and some that none can follow."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

import headrace as hr
from groups.group import KEYS, PARTITIONS, Group
from headrace.client.startpoint_manager import StartpointManager
from headrace.codec.documents import encode
from headrace.codec.job_records import SCALES, STARTPOINTS
from headrace.model.scale import ScaleRequest
from headrace.model.startpoint import PositionType, Startpoint, StartpointStatus
from headrace.model.streams import SSP

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]
IN_EACH_RUN = ("leader", 3)
HELD = [("leader", step) for step in range(1, 11)] + [("member", step) for step in range(7, 11)]
READ_AGAIN = 1  # a partition


@pytest.mark.parametrize(
    ("who", "step"),
    [pytest.param(*held, marks=[] if held == IN_EACH_RUN else [pytest.mark.soak]) for held in HELD],
)
def test_a_startpoint_an_expansion_another_factor_and_a_join_at_once_under_a_kill(group: Group, who: str, step: int) -> None:
    """One partition is read again from its beginning, with the state as it is: its keys count on. All the others are read
    once, and the order of a key is kept while its partition is divided."""
    victim = "a" if who == "leader" else "b"
    for id_ in "ab":
        group.start(id_, traps=group.trap(id_, "kill", step), run_s=200.0)
        group.await_shares(*"ab"[: "ab".index(id_) + 1])
    group.send(3 * KEYS)
    group.await_all()
    again = group.keys_in(READ_AGAIN)
    others = sorted({key for key, _ in group.sent} - again)
    group.arm(victim)
    with hr.startpoints(group.application()) as points, hr.elasticity(group.application()) as elasticity:
        points.set(f"{group.name}-words", "earliest", partition=READ_AGAIN)
        elasticity.set(2)
        group.system.expand_stream(f"{group.name}-words", 2 * PARTITIONS)
        group.start("c", run_s=200.0)
        group.processed += [(key, value) for key, value in group.sent if key in again]
        group.send(30, others)
        group.await_end(victim)
        group.send(30, others)
        group.start(victim, run_s=200.0)
        group.until(lambda: [one.status for one in points.list()] == [StartpointStatus.APPLIED])
    group.send(60)
    group.await_shares("a", "b", "c")
    group.until(lambda: sum(map(len, group.tasks_of().values())) == 4 * PARTITIONS)
    group.until(lambda: group.partitions_read() == 2 * PARTITIONS)
    group.send(60)
    group.await_all()
    group.stop_all()
    assert group.check() >= 2 * len(group.processed)


def test_a_run_reads_from_the_beginning_once_whoever_dies_before_its_first_plan(group: Group) -> None:
    """`reset_offset=True` counts for the first plan of a run. Its first leader is killed before that; the second, which has
    made it, later."""
    group.start("a", reset=True)
    group.await_shares("a")
    group.send(40)
    group.await_all()
    group.stop("a")
    group.start("a", reset=True, traps=group.trap("a", "kill", 4))
    group.arm("a")
    group.note_hit("a")
    group.until(lambda: group.status("a").get("is_leader"))
    group.start("b", reset=True)
    group.await_end("a")
    group.processed += group.sent
    group.await_shares("b")
    group.await_all()
    group.start("c", reset=True)
    group.await_shares("b", "c")
    group.kill("b")
    group.await_shares("c")
    group.send(40)
    group.await_all()
    group.stop_all()
    assert group.check() >= 240


def test_a_group_refuses_another_number_of_containers_and_says_what_to_do(group: Group) -> None:
    """At once where it is asked, and on record where the request comes from a process that cannot know of the group."""
    group.start("a", slots=2)
    group.await_shares("a", "a#1")
    for of in ((group.application(),), (group.name, group.url)):
        with hr.elasticity(*of) as elasticity, pytest.raises(hr.ConfigError, match="start processors or stop some"):
            elasticity.set(containers=1)
    metadata = group.system.metadata_store(group.name)
    metadata.request(SCALES, encode(ScaleRequest("someone", 1, "by-digit", None, 1)))
    with hr.elasticity(group.application()) as elasticity:
        elasticity.set(2)
        group.until(lambda: len(elasticity.history()) >= 3)
        found = {(one.what, one.after, one.outcome.value) for one in elasticity.history()}
    applied = "factor 2, containers automatic"
    assert found == {
        ("by-digit", "1 container", "refused"),
        ("source", applied, "applied"),
        ("by-digit", applied, "applied"),
    }
    assert group.version() == 2
    group.stop_all()
    with hr.elasticity(group.application()) as elasticity, pytest.raises(hr.ConfigError, match="in a group each slot"):
        elasticity.set(4, containers=2)


def recreated(group: Group, partitions: int) -> None:
    for id_ in group.pids:  # one that looks for a stream that is deleted, and not created yet, ends with that error
        group.kill(id_, signal.SIGSTOP)
    group.system.delete_stream(f"{group.name}-words")
    group.system.create_stream(f"{group.name}-words", partitions)
    for id_ in group.pids:
        group.kill(id_, signal.SIGCONT)


def grown(group: Group, partitions: int) -> None:
    """As by a tool that knows nothing of applications."""
    admin = AdminClient(group.servers)
    for done in admin.create_partitions([NewPartitions(f"{group.name}-words", partitions)]).values():
        done.result(30)


OWN_TASKS = {"ssp_grouper": "groups.child:OwnTasks"}


@pytest.mark.parametrize(
    ("change", "partitions", "words", "settings"),
    [
        pytest.param(recreated, 2, "was deleted", {}, id="recreated-with-fewer", marks=pytest.mark.soak),
        pytest.param(grown, 6, "had 4 partitions and now has 6", {}, id="grown"),
        pytest.param(
            grown, 8, "is new, and its keys were in partition", OWN_TASKS, id="refused-by-a-plan", marks=pytest.mark.soak
        ),
    ],
)
def test_a_change_that_readers_cannot_follow_stops_them_alone_on_all_processors(
    group: Group, change: Any, partitions: int, words: str, settings: dict[str, Any]
) -> None:
    """The other sub-topology keeps running, also where tasks move; what was read before is complete, nothing else is read."""
    for id_ in "ab":
        group.start(id_, settings=settings)
    group.await_shares("a", "b")
    group.send(40)
    group.await_all()
    change(group, partitions)
    group.until(lambda: all(words in group.stopped_by(id_, "source") for id_ in "ab"))
    group.system.produce(f"{group.name}-words", [(f"k{number}", -1) for number in range(KEYS)], hr.String(), hr.Long())
    assert not any(group.stopped_by(id_, "by-digit") for id_ in "ab")
    group.until(lambda: group.refusals() == 1)
    for id_ in "ab":  # one that leads, and one that does not
        group.kill(id_)
        group.await_shares(*{"a", "b"} - {id_})
        group.start(id_, settings=settings)
        group.await_shares("a", "b")
    group.until(lambda: all(words in group.stopped_by(id_, "source") for id_ in "ab"))
    assert group.refusals() == 1, "it is on record once"
    assert not any(group.stopped_by(id_, "by-digit") for id_ in "ab")
    for id_ in "ab":
        error = group.stop_with_error(id_)
        assert error["error"] == "IncompatibleChangeError" and words in error["message"], error
    assert group.check() >= 80


@pytest.mark.parametrize("asks", ["what cannot be read", pytest.param("a stream that is not read", marks=pytest.mark.soak)])
def test_a_startpoint_that_waits_holds_up_nothing_else(group: Group, asks: str) -> None:
    """Versions are kept, files that nothing needs are deleted, and another factor is applied."""
    for id_ in "ab":
        group.start(id_, version_interval_s=1.0, factor=2)
        group.await_shares(*"ab"[: "ab".index(id_) + 1])
    group.send(48)
    group.await_all()
    metadata = group.system.metadata_store(group.name)
    if asks == "what cannot be read":
        metadata.request(STARTPOINTS, b"of a newer version")
    else:
        ssp = SSP(group.system.name, "to-come", 0)
        StartpointManager(metadata).write_startpoint(ssp, Startpoint(PositionType.EARLIEST))
    for _ in range(8):
        group.send(24)
        group.await_all()
    group.until(group.is_kept_as_a_whole)
    group.until(lambda: len(group.state_files() - group.named_files()) <= 8)  # of rounds that run, and the next look
    with hr.elasticity(group.application()) as elasticity:
        elasticity.set(1)
    group.until(lambda: sum(map(len, group.tasks_of().values())) == 8)
    group.stop_all()
    group.check()


@pytest.mark.soak
def test_a_stream_that_was_recreated_as_it_was_ends_all_processors(group: Group) -> None:
    """With the errors that end a single driver. A start is refused too; what was read before is complete."""
    for id_ in "ab":
        group.start(id_)
    group.await_shares("a", "b")
    group.send(40)
    group.await_all()
    recreated(group, PARTITIONS)
    for id_ in "ab":
        error = group.await_refusal(id_)
        assert error["error"] in ("IncompatibleChangeError", "OffsetOutOfRangeError"), error
        assert f"{group.name}-words" in error["message"] and "recreated" in error["message"], error
    group.start("a")
    error = group.await_refusal("a")
    assert error["error"] == "IncompatibleChangeError" and "was deleted and recreated since" in error["message"], error
    assert group.check() >= 80
