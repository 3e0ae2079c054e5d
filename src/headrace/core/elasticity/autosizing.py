"""What the built-in controller asks for: another scale of a sub-topology with the reason, or the reason why none.

    up        the lag grows, or is not read within `catch_up_s`, and tasks are busy, and more of them would help: by a power of
              two, at most 8 times at once, so that the lag is read within `catch_up_s`
    down      by half, where what is left would be busy for less than `QUIET_SHARE` of the time, for `quiet_s`
    nothing   for a time after a change, while something else is on, and where no scale would help

Work that waits gets a higher factor, as its tasks wait at the same time in threads. Work that computes gets containers, up to
those that run at once, and a factor that fills them. Between the share that asks for more and the one that asks for less is
more than a factor of two would change, so that no decision is undone by the next. Time is that of the observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice, takewhile
from statistics import mean

from headrace.core.elasticity.loads import Load
from headrace.core.keys.key_layout import SLOTS
from headrace.model.scale import AUTOMATIC, Scale, scale_text

BUSY_SHARE = 0.8  # from which on more tasks, or containers, are of use
QUIET_SHARE = 0.6  # under which half of them would be enough
LOOKS_MIN = 3  # observations under a scale before it is judged
STEPS_MAX = 3  # powers of two at once
PAUSES = 20  # for so many pauses of a change there is no other
GROWS_MIN = 0.05  # of the records that were read meanwhile, by which a lag grows; less is a round that is at work
LAG_S_MIN = 1.0  # a lag that is read within this is that of a round
GAIN_MIN = 1.25  # how much faster twice the tasks are at least, or they are not worth their change
REMEMBERED_S = 3_600.0  # for so long a step up that made nothing faster is not followed by another
COMMIT_SHARE = 0.5  # from which on it is commits that take the time


@dataclass(frozen=True, slots=True)
class AutosizingPolicy:
    """The bounds of the controller, and its times in seconds. `containers_max` None: as many as the engine runs at once."""

    factor_min: int = 1
    factor_max: int = 16
    containers_min: int = 1
    containers_max: int | None = None
    catch_up_s: float = 60.0
    quiet_s: float = 600.0
    cool_down_s: float = 120.0

    def __post_init__(self) -> None:
        for factor in (self.factor_min, self.factor_max):
            assert 1 <= factor <= SLOTS and not factor & (factor - 1), factor
        assert self.factor_min <= self.factor_max, self
        assert 1 <= self.containers_min <= (self.containers_max or self.containers_min), self

    @property
    def kept_s(self) -> float:
        """For how long loads are of use."""
        return max(self.quiet_s + self.cool_down_s, REMEMBERED_S)

    def containers_most(self, slots: int) -> int:
        return max(self.containers_min, slots if self.containers_max is None else min(slots, self.containers_max))


class Cause(StrEnum):
    """What led to a decision; up to `QUIET` to another scale."""

    BOUNDS = "bounds"
    LAG = "lag"
    QUIET = "quiet"
    # nothing is done, because
    HELD = "held"  # a change, an alignment or a replay is on
    COOL_DOWN = "cool-down"
    LEARNING = "learning"  # too little was observed under this scale
    KEEPS_UP = "keeps up"
    SLOWED = "slowed"  # by a sub-topology that has to read first
    COMMITS = "commits"
    NOT_BUSY = "not busy"
    HOT_KEY = "hot key"
    NO_GAIN = "no gain"  # the last step up made nothing faster
    NO_SLOTS = "no slots"
    AT_MOST = "at most"  # the upper bounds are reached


@dataclass(frozen=True, slots=True)
class Decision:
    """`scale`: what to ask for; None to leave it as it is. `reason`: why, for people."""

    cause: Cause
    reason: str
    scale: Scale | None = None


def decide(loads: Sequence[Load], policy: AutosizingPolicy) -> Decision:
    """What to do about a sub-topology. `loads`: what was observed of it, oldest first, `policy.kept_s` back if it is there; the
    last one is now. They may be of several scales."""
    assert loads, "nothing was observed"
    now = loads[-1]
    if now.held_by:
        return Decision(Cause.HELD, now.held_by)
    if left_s := _cooling_s(now, policy):
        return Decision(Cause.COOL_DOWN, f"the scale was changed lately: it is left for {left_s:.0f} s more")
    bounded = _bounded(now, policy)
    if bounded != now.scale:
        return Decision(Cause.BOUNDS, f"{scale_text(now.scale)} is outside of the bounds", bounded)
    same = _comparable(loads)
    if len(same) < LOOKS_MIN:
        return Decision(Cause.LEARNING, f"{len(same)} of {LOOKS_MIN} observations under {scale_text(now.scale)}")
    demand = _demand_of(same[-LOOKS_MIN:])
    if demand.is_late(policy.catch_up_s):
        if not demand.grows and _is_left_of_a_replay(loads):
            return Decision(Cause.HELD, f"lag {now.lag:,} came during a replay, and shrinks")
        return _more(now, demand, loads, policy)
    return _less(now, same, policy) or Decision(
        Cause.KEEPS_UP, f"lag {now.lag:,}, busy for {demand.busy_share:.0%} of the time"
    )


def _comparable(loads: Sequence[Load]) -> list[Load]:
    """The last ones under one plan and scale, and of no time in which something else was on."""
    found = [loads[-1]]
    for one in islice(reversed(loads), 1, None):
        if one.held_by or one.scale != found[-1].scale or one.observed_s >= found[-1].observed_s:
            break
        found.append(one)
    return found[::-1]


def _is_left_of_a_replay(loads: Sequence[Load]) -> bool:
    """Whether the lag has not been read since a replay."""
    behind = takewhile(lambda one: one.is_replaying or one.lag > LAG_S_MIN * one.read_per_s, reversed(loads))
    return any(one.is_replaying for one in behind)


@dataclass(frozen=True, slots=True)
class _Demand:
    """Of the last observations together, over `seconds`: the lag and by how much it grew a second, offsets per second that came
    and that were read, and how busy."""

    seconds: float
    lag: int
    grown_per_s: float
    incoming_per_s: float
    read_per_s: float
    busy_share: float
    commit_share: float

    @property
    def capacity_per_s(self) -> float:
        """What it would read if it were always busy."""
        return self.read_per_s / max(self.busy_share, 0.01)

    @property
    def grows(self) -> bool:
        return self.grown_per_s > GROWS_MIN * self.read_per_s

    @property
    def lag_text(self) -> str:
        if not self.grows:
            return f"lag {self.lag:,}"
        return f"lag {self.lag:,}, {self.grown_per_s * self.seconds:,.0f} more than {self.seconds:,.0f} s before"

    def is_late(self, catch_up_s: float) -> bool:
        """Whether there is a lag which grows, or is not read in time."""
        if self.lag <= LAG_S_MIN * max(self.read_per_s, self.incoming_per_s):
            return False
        spare_per_s = self.capacity_per_s - self.incoming_per_s
        return self.grows or self.lag > spare_per_s * catch_up_s

    def times(self, catch_up_s: float) -> float:
        """How many times the present capacity it takes to read the lag in time, and not to be too busy behind that."""
        wanted = max(self.incoming_per_s + self.lag / catch_up_s, self.incoming_per_s / BUSY_SHARE)
        return wanted / self.capacity_per_s if self.capacity_per_s else 1.0


def _demand_of(loads: Sequence[Load]) -> _Demand:
    first, last = loads[0], loads[-1]
    seconds = last.observed_s - first.observed_s
    grown_per_s = (last.lag - first.lag) / seconds
    came = [one.incoming_per_s for one in loads if one.incoming_per_s is not None]
    if len(came) == len(loads):  # where expressions drop records, tasks process fewer than are read
        incoming_per_s = mean(came)
        read_per_s = max(0.0, incoming_per_s - grown_per_s)
    else:
        read_per_s = mean(one.read_per_s for one in loads)
        incoming_per_s = max(0.0, read_per_s + grown_per_s)
    busy, commits = mean(one.busy_share for one in loads), mean(one.commit_share for one in loads)
    return _Demand(seconds, last.lag, grown_per_s, incoming_per_s, read_per_s, busy, commits)


def _cooling_s(now: Load, policy: AutosizingPolicy) -> float:
    if now.facts.changed_at_us is None:
        return 0.0
    cool_down_s = max(policy.cool_down_s, PAUSES * (now.facts.pause_s or 0.0))
    return max(0.0, cool_down_s - (now.at_us - now.facts.changed_at_us) / 1e6)


def _bounded(now: Load, policy: AutosizingPolicy) -> Scale:
    """The scale, or the nearest one within the bounds."""
    factor = min(max(now.scale.factor, policy.factor_min), policy.factor_max)
    least, most = policy.containers_min, policy.containers_max
    containers = now.scale.containers
    if containers == AUTOMATIC:
        if most is not None and now.containers > most:
            containers = most
    else:
        containers = max(containers, least) if most is None else min(max(containers, least), most)
    return Scale(factor, containers)


# --- up ---------------------------------------------------------------------------------------------------------------


def _more(now: Load, demand: _Demand, loads: Sequence[Load], policy: AutosizingPolicy) -> Decision:
    what = demand.lag_text
    if now.facts.slowed_by:
        return Decision(Cause.SLOWED, f"{what}, but it waits for {now.facts.slowed_by}")
    if demand.busy_share <= BUSY_SHARE:
        if demand.commit_share >= COMMIT_SHARE:
            return Decision(Cause.COMMITS, f"{what}, but commits take {demand.commit_share:.0%} of the time")
        return Decision(Cause.NOT_BUSY, f"{what}, but tasks are busy for {demand.busy_share:.0%} of the time only")
    if slower := _no_faster_than(now, demand, loads):
        was, now_s = f"{slower.read_per_s:,.0f}", f"{demand.read_per_s:,.0f}"
        gain = f"{now_s} records/s under {scale_text(now.scale)}, {was} under {scale_text(slower.scale)} before"
        return Decision(Cause.NO_GAIN, f"{what}, but the last step up made nothing faster: {gain}")
    times = demand.times(policy.catch_up_s)
    found = _with_more_tasks(now, times, policy) if now.waits else _with_more_containers(now, times, policy)
    if found.scale is None:
        return Decision(found.cause, f"{what}, but {found.reason}")
    busy = f"{demand.read_per_s:,.0f} records/s, busy for {demand.busy_share:.0%} of the time"
    return Decision(found.cause, f"{what}, {busy}", found.scale)


def _with_more_tasks(now: Load, times: float, policy: AutosizingPolicy) -> Decision:
    """For work that waits: more tasks in as many containers; where these have no threads for more tasks, more containers."""
    best, speed = now.scale.factor, 1.0
    while speed < times and 2 * best <= min(policy.factor_max, now.scale.factor << STEPS_MAX):
        faster = _speed_under(now, 2 * best)
        if faster < GAIN_MIN * speed:
            break
        best, speed = 2 * best, faster
    if best != now.scale.factor:
        return Decision(Cause.LAG, "", replace(now.scale, factor=best))
    if 2 * best > policy.factor_max:
        return Decision(Cause.AT_MOST, f"factor {best} is the highest that is allowed")
    return _hot_key(now) or _with_more_containers(now, times, policy)


def _with_more_containers(now: Load, times: float, policy: AutosizingPolicy) -> Decision:
    """For work that computes: more containers, and as many tasks as fill them."""
    most = policy.containers_most(now.slots)
    if now.containers >= most >= now.slots:
        return Decision(Cause.NO_SLOTS, f"{now.containers} containers are as many as the engine runs at once")
    if now.containers >= most:
        return Decision(Cause.AT_MOST, f"{now.containers} containers are as many as are allowed")
    wanted, limit = now.containers, min(most, now.containers << STEPS_MAX)
    while wanted < min(times * now.containers, limit):
        wanted = min(2 * wanted, limit)
    factor = now.scale.factor
    while now.tasks_with(factor) < wanted and 2 * factor <= policy.factor_max:
        factor *= 2
    wanted = min(wanted, now.tasks_with(factor))
    if wanted <= now.containers:
        return Decision(Cause.AT_MOST, f"factor {factor} is the highest that is allowed")
    if factor != now.scale.factor and (hot := _hot_key(now)):
        return hot
    stays_automatic = now.scale.containers == AUTOMATIC and most >= now.slots
    return Decision(Cause.LAG, "", Scale(factor, AUTOMATIC if stays_automatic else wanted))


def _hot_key(now: Load) -> Decision | None:
    """Why a higher factor is of no use, where one key has most of a partition's load."""
    if 2 * _gain_kept(now, 2 * now.scale.factor) >= GAIN_MIN:
        return None
    return Decision(Cause.HOT_KEY, f"one key has {now.hot_key_share:.0%} of the load of its partition, in {now.hot_task}")


def _speed_under(now: Load, factor: int) -> float:
    """How many times as fast tasks would be processed that wait."""
    return now.at_once_with(factor, now.containers) / now.at_once * _gain_kept(now, factor)


def _gain_kept(now: Load, factor: int) -> float:
    """What part of the gain of another factor is left where one key has a part of the load: of n tasks, that with a part q of
    it has q + (1 - q) / n.

    >>> from headrace.core.elasticity.loads import ScaleFacts
    >>> [_gain_kept(Load(ScaleFacts(0, Scale(2)), hot_key_share=share), 4) for share in (0.0, 1.0)]
    [1.0, 0.5]
    """
    part, present = now.hot_key_share, now.scale.factor
    return (part + (1 - part) / present) / (part + (1 - part) / factor) * present / factor


def _no_faster_than(now: Load, demand: _Demand, loads: Sequence[Load]) -> Load | None:
    """The busy load of a lower scale from which the last step up has gained too little: what limits it is somewhere else, such
    as a service that answers only so many at a time. From k times as many tasks at least the square root of k is expected."""
    busy = [one for one in loads if one.busy_share > BUSY_SHARE and not one.held_by]
    before = [*takewhile(lambda one: one.scale == now.scale, reversed(busy))]
    lower = busy[: len(busy) - len(before)]
    last = [one for one in lower if one.scale == lower[-1].scale and one.at_once < now.at_once]
    best = max(last, key=lambda one: one.read_per_s, default=None)
    if best is None or demand.read_per_s >= best.read_per_s * (now.at_once / best.at_once) ** 0.5:
        return None
    return best


# --- down -------------------------------------------------------------------------------------------------------------


def _less(now: Load, same: Sequence[Load], policy: AutosizingPolicy) -> Decision | None:
    """Half the factor, or half the containers, where that would have been enough for all of the quiet time."""
    if (now.at_us - same[0].at_us) / 1e6 < policy.quiet_s:
        return None
    quiet = [one for one in same if (now.at_us - one.at_us) / 1e6 <= policy.quiet_s]
    for scale in _lower_scales(now, policy):
        share = max(_share_under(one, scale) for one in quiet)
        if share < QUIET_SHARE:
            reason = f"for {policy.quiet_s:,.0f} s {scale_text(scale)} would have been busy for at most {share:.0%} of the time"
            return Decision(Cause.QUIET, reason, scale)
    return None


def _lower_scales(now: Load, policy: AutosizingPolicy) -> list[Scale]:
    """What to try: work that computes returns containers first."""
    scales = []
    if now.scale.factor > policy.factor_min:
        scales.append(replace(now.scale, factor=now.scale.factor // 2))
    if now.scale.containers != AUTOMATIC and now.containers > policy.containers_min:
        half = replace(now.scale, containers=max(policy.containers_min, (now.containers + 1) // 2))
        scales.insert(len(scales) if now.waits else 0, half)
    return scales


def _share_under(one: Load, scale: Scale) -> float:
    """How busy the busiest container, or task, would have been with what it had to do, its lag included."""
    containers = one.containers if scale.containers == AUTOMATIC else min(one.containers, scale.containers)
    containers = min(containers, one.tasks_with(scale.factor))
    shares = [one.total_share / one.at_once_with(scale.factor, containers), one.busy_share * one.containers / containers]
    if scale.factor < one.scale.factor:
        shares.append(one.merged_share)
    came = one.read_per_s if one.incoming_per_s is None else one.incoming_per_s
    return max(shares) if one.lag <= LAG_S_MIN * came else max(1.0, *shares)
