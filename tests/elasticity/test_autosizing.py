"""The built-in controller at simulated jobs: it follows the load, and leaves alone what another scale would not help."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticity.loaded_job import LOOK_S, LoadedJob, Work, even_keys, hot_keys
from headrace.codec.observations import observation_from
from headrace.core.elasticity.autosizing import AutosizingPolicy, Cause, Decision, decide
from headrace.core.elasticity.loads import Load, ScaleFacts, load_of
from headrace.core.metrics.observations import SubTopologyObservation
from headrace.model.scale import AUTOMATIC, Scale

WAITING = Work(wait_s=0.001)
COMPUTING = Work(compute_s=0.001)
POLICY = AutosizingPolicy()


@dataclass
class Run:
    """A job with the controller at it: `decisions` by the time of each look."""

    job: LoadedJob
    policy: AutosizingPolicy = POLICY
    loads: list[Load] = field(default_factory=list)
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)

    def until(self, end_s: float) -> Run:
        job = self.job
        while job.now_s < end_s:
            seen = job.run(LOOK_S)
            now_us = round(job.now_s * 1e6)
            changed_us = None if job.changed_at_s is None else round(job.changed_at_s * 1e6)
            facts = ScaleFacts(now_us, job.scale, changed_us, seen.last_pause_s, None, job.slowed_by)
            self.loads.append(load_of(seen, facts))
            if self.loads[0].at_us < now_us - self.policy.kept_s * 1e6:
                del self.loads[0]
            decision = decide(self.loads, self.policy)
            self.decisions.append((job.now_s, decision))
            self.lags.append(job.lag)
            if decision.scale is not None:
                job.set(decision.scale)
        return self

    @property
    def factors(self) -> list[int]:
        return [after.factor for _, _, after in self.job.changes]

    @property
    def causes(self) -> set[Cause]:
        return {decision.cause for _, decision in self.decisions}

    def check(self) -> Run:
        assert at_most_one_change_per_cool_down(self), self.job.changes
        assert within_bounds(self), self.job.changes
        assert changes_have_a_reason(self)
        return self


def at_most_one_change_per_cool_down(run: Run) -> bool:
    times = [at_s for at_s, _, _ in run.job.changes]
    least = max(run.policy.cool_down_s, 20 * run.job.pause_s)
    return all(later - earlier >= least for earlier, later in pairwise(times))


def within_bounds(run: Run) -> bool:
    """What was asked for; a number of containers that a person has set may exceed what the engine runs at once."""
    policy, slots = run.policy, run.job.slots
    return all(
        policy.factor_min <= after.factor <= policy.factor_max
        and after.factor & (after.factor - 1) == 0
        and (
            after.containers == AUTOMATIC
            or policy.containers_min <= after.containers <= max(policy.containers_min, policy.containers_max or slots)
            or (policy.containers_max is None and after.containers == before.containers)
        )
        for _, before, after in run.job.changes
    )


def changes_have_a_reason(run: Run) -> bool:
    return all(decision.reason for _, decision in run.decisions)


def constant(records_per_s: float) -> Callable[[float], float]:
    return lambda now_s: records_per_s


def step(at_s: float, before: float, after: float) -> Callable[[float], float]:
    return lambda now_s: before if now_s < at_s else after


# --- it follows the load ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_s", [0, 1, 750])
def test_a_steady_load_that_is_kept_up_with_changes_nothing(per_s: float) -> None:
    run = Run(LoadedJob(WAITING, constant(per_s), even_keys(), noise=0.1)).until(3_600).check()
    assert run.job.changes == []


def test_a_load_beyond_one_task_is_given_at_once_what_it_needs_and_no_more() -> None:
    run = Run(LoadedJob(WAITING, constant(3_000), even_keys(), noise=0.1)).until(7_200).check()
    assert run.factors in ([4], [8]) and run.job.changes[0][0] < 60
    assert run.lags[-1] < 3_000 and max(run.lags[60:]) < 6_000


def test_a_ramp_up_and_down_is_followed_in_powers_of_two() -> None:
    def ramp(now_s: float) -> float:
        return max(0.0, 100 + 6_000 * min(now_s, 14_400 - now_s) / 7_200)

    run = Run(LoadedJob(WAITING, ramp, even_keys(), noise=0.1), replace(POLICY, factor_max=32)).until(20_000).check()
    top = run.factors.index(max(run.factors))
    assert run.factors[: top + 1] == sorted(run.factors[: top + 1]) and run.factors[top:] == sorted(run.factors[top:])[::-1]
    assert max(run.factors) in (8, 16) and run.factors[-1] == 1
    assert max(run.lags) < 60 * 6_000


def test_a_step_is_caught_up_with_in_the_time_that_is_wanted() -> None:
    run = Run(LoadedJob(WAITING, step(1_200, 200, 4_000), even_keys(), noise=0.05)).until(3_600).check()
    change_s = run.job.changes[0][0]
    behind = [now_s for (now_s, _), lag in zip(run.decisions, run.lags, strict=True) if lag > 4_000]
    assert 1_200 < change_s < 1_260 and behind[-1] < change_s + 2 * POLICY.catch_up_s


def test_a_backlog_is_read_in_time_and_what_that_took_is_returned_later() -> None:
    job = LoadedJob(WAITING, constant(200), even_keys())
    job.add(400_000)
    run = Run(job).until(7_200).check()
    assert run.factors[0] == 8 and run.factors[-1] == 1
    quiet_s = [later - earlier for (earlier, _, _), (later, _, _) in pairwise(job.changes)]
    assert min(quiet_s[1:]) >= POLICY.quiet_s


def test_a_day_is_followed_without_a_change_too_many() -> None:
    def day(now_s: float) -> float:
        return 1_500 - 1_400 * math.cos(2 * math.pi * now_s / 86_400)

    run = Run(LoadedJob(WAITING, day, even_keys(), noise=0.15, tick_s=10)).until(86_400).check()
    assert len(run.job.changes) <= 8 and run.lags[-1] < 2_000
    assert sum(lag > 60 * 3_000 for lag in run.lags) == 0


def test_a_saw_tooth_that_is_shorter_than_the_quiet_time_ends_at_one_scale() -> None:
    def saw(now_s: float) -> float:
        return 3_000 * (now_s % 300) / 300

    run = Run(LoadedJob(WAITING, saw, even_keys())).until(20_000).check()
    assert run.factors == sorted(run.factors) and run.job.changes[-1][0] < 2_000


def test_work_that_computes_gets_containers_and_tasks_that_fill_them() -> None:
    run = Run(LoadedJob(COMPUTING, constant(1_500), even_keys(), slots=4, noise=0.05)).until(7_200).check()
    assert run.factors == [2] and run.job.scale.containers == AUTOMATIC and run.lags[-1] < 1_600


def test_containers_that_were_set_are_set_again() -> None:
    job = LoadedJob(COMPUTING, step(6_000, 1_600, 100), even_keys(partitions=4), slots=4, scale=Scale(1, 1))
    run = Run(job).until(20_000).check()
    scales = [after for _, _, after in job.changes]
    assert scales[0] in (Scale(1, 2), Scale(1, 4)) and scales[-1] == Scale(1, 1)
    assert run.causes >= {Cause.LAG, Cause.QUIET}


# --- it leaves alone what another scale would not help -----------------------------------------------------------------


def test_computing_in_all_containers_is_all_there_is() -> None:
    run = Run(LoadedJob(COMPUTING, constant(5_000), even_keys(), slots=2)).until(3_600).check()
    assert run.factors == [2] and run.decisions[-1][1].cause is Cause.NO_SLOTS


def test_threads_that_wait_for_each_others_processor_are_no_work_that_waits() -> None:
    work = Work(wait_s=0.0004, compute_s=0.0006)
    run = Run(LoadedJob(work, constant(5_000), even_keys(), slots=1)).until(3_600).check()
    assert max(run.factors, default=1) <= 2 and run.decisions[-1][1].cause is Cause.NO_SLOTS


def test_one_hot_key_is_not_split_further() -> None:
    run = Run(LoadedJob(WAITING, constant(3_000), hot_keys(0.9))).until(7_200).check()
    assert len(run.job.changes) == 1 and run.decisions[-1][1].cause is Cause.HOT_KEY
    assert "one key has" in run.decisions[-1][1].reason and "Partition_0-5-8" in run.decisions[-1][1].reason


def test_a_service_that_is_the_limit_is_not_asked_by_ever_more_tasks() -> None:
    work = Work(wait_s=0.001, services=2)
    policy = replace(POLICY, factor_max=256)
    run = Run(LoadedJob(work, constant(20_000), even_keys(), pause_s=0.1), policy).until(3_600).check()
    assert run.factors == [8] and run.decisions[-1][1].cause is Cause.NO_GAIN


def test_a_job_that_waits_for_commits_is_left() -> None:
    run = Run(LoadedJob(Work(wait_s=0.001, commit_share=0.7), constant(2_000), even_keys())).until(3_600).check()
    assert run.job.changes == [] and run.decisions[-1][1].cause is Cause.COMMITS


def test_a_stalled_reader_of_its_output_is_no_reason() -> None:
    job = LoadedJob(WAITING, constant(500), even_keys())
    run = Run(job).until(1_000)
    job.slowed_by = "by-day, which is 10,000,000 records behind"
    run.until(4_000).check()
    assert job.changes == [] and run.decisions[-1][1].cause is Cause.SLOWED and "by-day" in run.decisions[-1][1].reason


def test_a_lag_by_a_rewind_is_no_reason_and_no_time_of_it_counts() -> None:
    job = LoadedJob(WAITING, constant(100), even_keys())
    run = Run(job).until(1_000)
    job.add(1_000_000, replayed=True)
    run.until(2_000)
    assert job.lag > 0 and job.changes == [] and run.decisions[-1][1].cause is Cause.HELD
    run.until(6_000).check()
    assert job.changes == []


def test_nothing_is_done_while_a_change_is_on() -> None:
    job = LoadedJob(WAITING, constant(5_000), even_keys(), scale=Scale(2), align_s=1_000)
    run = Run(job).until(10)
    job.set(Scale(1))
    run.until(900)
    assert {decision.cause for _, decision in run.decisions[1:]} == {Cause.HELD} and job.changes == []


def test_a_long_pause_makes_changes_rare() -> None:
    job = LoadedJob(WAITING, lambda now_s: 400 * 1.5 ** (now_s / 300), even_keys(), pause_s=60)
    run = Run(job).until(3_000).check()
    times = [at_s for at_s, _, _ in job.changes]
    assert len(times) >= 2 and min(b - a for a, b in pairwise(times)) >= 20 * 60
    assert Cause.COOL_DOWN in run.causes


def test_a_scale_outside_of_the_bounds_is_brought_inside() -> None:
    policy = AutosizingPolicy(factor_min=2, factor_max=8, containers_max=2)
    run = Run(LoadedJob(WAITING, constant(10), even_keys(), slots=4, scale=Scale(64)), policy).until(100)
    assert [after for _, _, after in run.job.changes] == [Scale(8, 2)] and Cause.BOUNDS in run.causes
    low = Run(LoadedJob(WAITING, constant(10), even_keys()), policy).until(100)
    assert [after.factor for _, _, after in low.job.changes] == [2]


# --- a recorded load --------------------------------------------------------------------------------------------------

RECORDED_POLICY = AutosizingPolicy(catch_up_s=10.0, quiet_s=20.0, cool_down_s=5.0)


def recorded() -> list[tuple[float, SubTopologyObservation]]:
    """What a job on Spark and the embedded log was observed to do, every 2 s, with the controller at it: 1 ms of waiting per
    record and a count, 200 records a second for 20 s, 2,500 for 40 s, and 50 from then on."""
    rows = json.loads((Path(__file__).parent / "data" / "recorded_load.json").read_text(encoding="utf-8"))
    found = [(row["at_s"], observation_from(row["observation"])) for row in rows]
    return [(at_s, seen) for at_s, seen in found if seen is not None]


def test_of_a_recorded_load_it_decides_as_it_did_at_the_job() -> None:
    """The job's own looks lay between those that were recorded: what it did at once is not seen here as a request."""
    loads: list[Load] = []
    changed_us, factor, changes = None, 1, list[tuple[int, int]]()
    requests: dict[float, tuple[int, int]] = {}
    causes: dict[float, Cause] = {}
    for at_s, seen in recorded():
        now_us = round(at_s * 1e6)
        if seen.elasticity_factor != factor:
            changes.append((factor, seen.elasticity_factor))
            changed_us, factor = now_us, seen.elasticity_factor
        loads.append(load_of(seen, ScaleFacts(now_us, Scale(factor), changed_us)))
        decision = decide(loads, RECORDED_POLICY)
        causes[at_s] = decision.cause
        if decision.scale is not None:
            requests[at_s] = factor, decision.scale.factor
    assert changes == [(1, 8), (8, 4), (4, 2), (2, 1)]
    assert set(requests.values()) <= set(changes) and all(at_s > 75 for at_s in requests)
    assert {cause for at_s, cause in causes.items() if 8 < at_s < 20 or 52 < at_s < 75} == {Cause.KEEPS_UP}
    assert causes[max(causes)] is Cause.KEEPS_UP


def test_a_job_under_a_recorded_load_is_followed() -> None:
    rows = recorded()

    def arrivals(now_s: float) -> float:
        return next((seen.last_10_s.incoming_per_s or 0.0 for at_s, seen in rows if at_s >= now_s), 50.0)

    busy = [(seen.last_10_s.busy_share, seen.last_10_s.records_per_s) for _, seen in rows if seen.elasticity_factor == 1]
    wait_s = median(share / per_s for share, per_s in busy if per_s > 10)
    run = Run(LoadedJob(Work(wait_s=wait_s), arrivals, even_keys()), replace(POLICY, catch_up_s=20.0)).until(3_600).check()
    assert max(run.factors) in (4, 8) and run.factors[-1] == 1 and run.lags[-1] < 50


# --- any load ---------------------------------------------------------------------------------------------------------

WORKS = st.builds(
    Work,
    wait_s=st.sampled_from([0.0001, 0.001, 0.01]),
    compute_s=st.sampled_from([0.0, 0.0001, 0.001]),
    services=st.sampled_from([2.0, float("inf")]),
    commit_share=st.sampled_from([0.01, 0.3, 0.8]),
)
PHASES = st.lists(st.tuples(st.integers(1, 20), st.floats(0, 20_000)), min_size=1, max_size=4)
POLICIES = st.builds(
    lambda low, high, most, cool, quiet: AutosizingPolicy(1 << low, 1 << max(low, high), 1, most, 60.0, quiet, cool),
    st.integers(0, 3),
    st.integers(0, 6),
    st.sampled_from([None, 1, 2, 4]),
    st.sampled_from([60.0, 120.0]),
    st.sampled_from([120.0, 600.0]),
)


@settings(max_examples=25, deadline=None)
@given(
    work=WORKS,
    phases=PHASES,
    policy=POLICIES,
    scale=st.builds(Scale, st.sampled_from([1, 4, 64]), st.sampled_from([AUTOMATIC, 1, 3])),
    partitions=st.integers(1, 3),
    hot=st.sampled_from([0.0, 0.5, 0.95]),
    slots=st.integers(1, 4),
    noise=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 99),
)
def test_under_any_load_it_keeps_its_bounds_and_settles_when_the_load_does(
    work: Work,
    phases: list[tuple[int, float]],
    policy: AutosizingPolicy,
    scale: Scale,
    partitions: int,
    hot: float,
    slots: int,
    noise: float,
    seed: int,
) -> None:
    ends_s, end_s = [], 0
    for minutes, per_s in phases:
        end_s += 60 * minutes
        ends_s.append((end_s, per_s))

    def arrivals(now_s: float) -> float:
        return next((per_s for end, per_s in ends_s if now_s < end), phases[-1][1])

    keys = hot_keys(hot, 16) * partitions if hot else even_keys(partitions, 16)
    job = LoadedJob(work, arrivals, keys, slots, scale, noise=noise, seed=seed, tick_s=5)
    run = Run(job, policy).until(end_s + 3_600).check()
    turns = [after.factor * max(1, after.containers) for at_s, _, after in job.changes if at_s > end_s + 1_800]
    assert turns in (sorted(turns), sorted(turns)[::-1]), (job.changes, run.decisions[-1])
