"""What the demonstration shows of its result: from the last update of each carrier and hour to totals per carrier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.model.durations import datetime_of
from headrace.visible import visible_line

ROWS = 5
HOUR_FLIGHTS_MIN = 5  # fewer flights in an hour make its mean delay a matter of chance

Windows = Mapping[tuple[str, int], Mapping[str, Any]]  # (carrier, start of the hour in µs): flights, mean_delay


@dataclass(frozen=True, slots=True)
class CarrierTotal:
    """A carrier's year: flights that left, and their mean delay in minutes (negative: they left early)."""

    carrier: str
    name: str
    flights: int
    mean_delay: float
    hours: int


def totals_of(windows: Windows, names: Mapping[str, str]) -> list[CarrierTotal]:
    """The year of each carrier, the one with the most flights first.

    >>> totals_of({("UA", 0): {"flights": 3, "mean_delay": 10.0}, ("UA", 1): {"flights": 1, "mean_delay": 30.0}}, {})
    [CarrierTotal(carrier='UA', name='UA', flights=4, mean_delay=15.0, hours=2)]
    """
    by_carrier: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for (carrier, _), value in sorted(windows.items()):
        by_carrier[carrier].append(value)
    totals = []
    for carrier, hours in by_carrier.items():
        flights = sum(hour["flights"] for hour in hours)
        minutes = sum(hour["flights"] * hour["mean_delay"] for hour in hours)
        totals.append(CarrierTotal(carrier, names.get(carrier, carrier), flights, minutes / flights, len(hours)))
    return sorted(totals, key=lambda total: (-total.flights, total.carrier))


def worst_hour_of(windows: Windows, names: Mapping[str, str]) -> dict[str, Any] | None:
    """The carrier and hour with the largest mean delay, with its `start` as a datetime; None if no hour had enough flights."""
    candidates = [
        (value["mean_delay"], carrier, start_us, value["flights"])
        for (carrier, start_us), value in windows.items()
        if value["flights"] >= HOUR_FLIGHTS_MIN
    ]
    if not candidates:
        return None
    delay, carrier, start_us, flights = max(candidates)
    start, name = datetime_of(start_us), names.get(carrier, carrier)
    return {"carrier": carrier, "name": name, "start": start, "flights": flights, "mean_delay": delay}


def report_tables(totals: Sequence[CarrierTotal]) -> Any:
    """The busiest and the most delayed carriers, for rich: side by side where there is room for both."""
    from rich.columns import Columns

    delayed = sorted(totals, key=lambda total: (-total.mean_delay, total.carrier))
    return Columns([_carriers("Busiest carriers", totals), _carriers("Most delayed carriers", delayed)], padding=(1, 3))


def _carriers(title: str, totals: Sequence[CarrierTotal]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(title, no_wrap=True)
    table.add_column("flights", justify="right", no_wrap=True)
    table.add_column("delay", justify="right", no_wrap=True)
    for total in totals[:ROWS]:
        table.add_row(visible_line(f"{total.carrier} {total.name}"), f"{total.flights:,}", f"{total.mean_delay:.1f} min")
    return table


def worst_hour_text(worst: Mapping[str, Any]) -> str:
    return (
        f"The worst hour: {worst['start'].day} {worst['start']:%B, %H:%M} UTC, {worst['flights']} flights of "
        f"{visible_line(worst['name'])}, {worst['mean_delay']:.0f} min late."
    )
