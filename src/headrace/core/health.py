"""How a job is, by what its sub-topologies have reported: for scripts, and for who watches it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any


class Health(IntEnum):
    """How a job is, as the exit code of `headrace status --exit-code`; 1 and 2 are for errors and wrong usage."""

    WORKS = 0
    DOES_NOT_RUN = 3
    HAS_STOPPED = 4  # a part of it
    IS_SILENT = 5  # it has not reported for long
    IS_BEHIND = 6  # further than it may


def health_of(status: Mapping[str, Any], now_us: int, max_lag: int | None, max_age_s: float) -> tuple[Health, str]:
    """How a job is by its status document (`client.job_documents`), and why, in a line. `max_lag`: of a sub-topology, None for
    any; `max_age_s`: since one has reported last.

    >>> health_of({"running": False, "sub_topologies": {}}, 0, None, 60)[0].name
    'DOES_NOT_RUN'
    """
    if not status["running"]:
        holder = status.get("holder")
        left = f": process {holder['pid']} on {holder['host']} is not heard of" if holder else ""
        why = ended_by(status)
        return Health.DOES_NOT_RUN, f"it does not run{left}" + (f"; its last run ended with: {why}" if why else "")
    subs: Mapping[str, Mapping[str, Any]] = status["sub_topologies"]
    stopped = [f"processor {id_} waits for {why}" for id_, why in _ended_processors(subs).items()]
    stopped += [f"{name} has stopped: {sub['stopped_by']}" for name, sub in subs.items() if sub.get("stopped_by")]
    if stopped:
        return Health.HAS_STOPPED, "; ".join(stopped)
    unreported = [name for name, sub in subs.items() if "updated_us" not in sub]
    if unreported:
        return Health.IS_SILENT, f"it has not reported of {'; '.join(unreported)}"
    ages = {name: (now_us - sub["updated_us"]) / 1e6 for name, sub in subs.items()}
    for sub in subs.values():
        processors = sub.get("processors", {}).items()
        ages |= {f"processor {id_}": (now_us - one["updated_us"]) / 1e6 for id_, one in processors}
    absent = {id_ for sub in subs.values() for id_ in absent_processors(sub.get("tasks_by_processor", {}), sub)}
    if absent:
        return Health.IS_SILENT, f"tasks wait for processors that do not report: {', '.join(sorted(absent))}"
    silent = [f"{name}, for {age_s:.0f} s" for name, age_s in ages.items() if age_s > max_age_s]
    if silent:
        return Health.IS_SILENT, f"it has not reported of {'; '.join(silent)}"
    most = float("inf") if max_lag is None else max_lag
    behind = [f"{name} is behind by {sub['lag']:,}" for name, sub in subs.items() if sub["lag"] > most]
    return (Health.IS_BEHIND, "; ".join(behind)) if behind else (Health.WORKS, "it works")


def ended_by(status: Mapping[str, Any]) -> str:
    """With which error the last run of a single driver ended, by a job's status document; empty where with none."""
    return next((sub["ended_by"] for sub in status["sub_topologies"].values() if sub.get("ended_by")), "")


def _ended_processors(subs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Of processors of a group that have tasks, and whose rounds have ended, what they wait for."""
    return {
        id_: one["ended_by"]
        for sub in subs.values()
        for id_, one in sorted(sub.get("processors", {}).items())
        if one.get("ended_by") and sub.get("tasks_by_processor", {}).get(id_)
    }


def absent_processors(by_processor: Mapping[str, int], reported: Mapping[str, Any]) -> list[str]:
    """The processors of a group that have tasks and have not reported lately."""
    processors = reported.get("processors")
    return [] if processors is None else sorted(by_processor.keys() - processors.keys())


