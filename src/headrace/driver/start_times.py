"""How long the start of a job took, from its beginning to its first commit, and in which parts."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.core.metrics.table import MetricValues

PYTHON, CHECKS, SPARK, PLAN, WAIT, FIRST_ROUND = "Python", "checks", "Spark", "plan", "wait", "first round"


class StartTimes:
    """The parts of a start, each from the end of the one before; times in s, of a clock that only goes forward. `python_s`: for
    so long the process had run before, where that is part of the start."""

    def __init__(self, now_s: float, python_s: float | None = None) -> None:
        self._parts: dict[str, float] = {} if python_s is None else {PYTHON: python_s}
        self._since_s = now_s

    def ended(self, part: str, now_s: float) -> None:
        """The part that began when the one before ended has ended."""
        self._parts[part] = now_s - self._since_s
        self._since_s = now_s

    def with_first_round(self, began_s: float, round_s: float) -> dict[str, float]:
        """All parts, the first round that was committed among them. What was waited before it, for records too, is one."""
        return {**self._parts, WAIT: max(0.0, began_s - self._since_s), FIRST_ROUND: round_s}


def start_metrics(parts_s: Mapping[str, float]) -> MetricValues:
    """As metrics of the job."""
    whole_ns = round(sum(parts_s.values()) * 1e9)
    return {"start-ns": {"": whole_ns}, "start-phase-ns": {part: round(s * 1e9) for part, s in parts_s.items()}}


def start_text(parts_ns: Mapping[str, float]) -> str:
    """For people.

    >>> start_text({"Spark": 3.1e9, "plan": 0.26e9, "wait": 1e6, "first round": 1.25e9})
    'first commit after 4.6 s: Spark 3.1 s, plan 0.3 s, first round 1.2 s'
    """
    shown = [f"{part} {ns / 1e9:.1f} s" for part, ns in parts_ns.items() if ns >= 5e7]
    return f"first commit after {sum(parts_ns.values()) / 1e9:.1f} s: {', '.join(shown)}"
