"""What a round counts as whose containers have not all taken part.

An engine runs a container elsewhere where no worker at its location is free, and where attempts there have failed; it declines
in both cases, which is no failure to the engine. So the two are told apart here, by where attempts have failed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Absence:
    """A container that took no part in its round. `home`: the location that it was planned for, None for anywhere; `run_at`:
    where it was run in place of that, None where its location was lost, or where its stores are restored first."""

    lane: int
    home: str | None
    run_at: str | None = None


def failed_lanes(absences: Iterable[Absence], failed_at: Collection[str]) -> frozenset[int]:
    """The lanes for which the round has failed: they were run elsewhere after attempts at home. `failed_at`: the locations
    where attempts of the round have failed.

    >>> absences = [Absence(0, "host-1", "host-3"), Absence(1, "host-2", "host-3"), Absence(2, "host-1")]
    >>> sorted(failed_lanes(absences, {"host-1"})), sorted(failed_lanes(absences, ()))
    ([0], [])
    """
    return frozenset(one.lane for one in absences if one.run_at is not None and one.home in failed_at)
