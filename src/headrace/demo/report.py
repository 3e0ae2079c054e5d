"""What the demonstration shows of its result: from the last update of each carrier and hour to totals per carrier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from headrace.model.durations import datetime_of
from headrace.record import Record
from headrace.visible import visible_line

ROWS = 5
WIDTH_MAX = 1_000  # what both tables are measured with: more than they can need
HOUR_FLIGHTS_MIN = 5  # fewer flights in an hour make its mean delay a matter of chance


@dataclass(frozen=True, slots=True)
class CarrierTotal:
    """A carrier's year: flights that left, and their mean delay in minutes (negative: they left early)."""

    carrier: str
    name: str
    flights: int
    mean_delay: float
    hours: int


@dataclass(frozen=True, slots=True)
class WorstHour:
    """The carrier and hour with the largest mean delay among those with at least `HOUR_FLIGHTS_MIN` flights."""

    carrier: str
    name: str
    start: datetime
    flights: int
    mean_delay: float


Windows = Mapping[tuple[str, int], Mapping[str, Any]]


def last_updates_of(records: Iterable[Record]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """The last value of each (carrier, start of the hour in µs) in a stream of windowed results."""
    return {(record.key.key, record.key.start_us): record.value for record in records}


def totals_of(windows: Windows, names: Mapping[str, str]) -> list[CarrierTotal]:
    """The year of each carrier, the one with the most flights first.

    >>> totals_of({("UA", 0): {"flights": 3, "mean_delay": 10.0}, ("UA", 1): {"flights": 1, "mean_delay": 30.0}}, {})
    [CarrierTotal(carrier='UA', name='UA', flights=4, mean_delay=15.0, hours=2)]
    """
    flights: dict[str, int] = {}
    minutes: dict[str, float] = {}
    hours: dict[str, int] = {}
    for (carrier, _), value in sorted(windows.items()):
        flights[carrier] = flights.get(carrier, 0) + value["flights"]
        minutes[carrier] = minutes.get(carrier, 0.0) + value["flights"] * value["mean_delay"]
        hours[carrier] = hours.get(carrier, 0) + 1
    made = [
        CarrierTotal(carrier, names.get(carrier, carrier), count, minutes[carrier] / count, hours[carrier])
        for carrier, count in flights.items()
    ]
    return sorted(made, key=lambda total: (-total.flights, total.carrier))


def worst_hour_of(windows: Windows, names: Mapping[str, str]) -> WorstHour | None:
    """The worst hour of the year, None if no hour had enough flights."""
    candidates = [
        (value["mean_delay"], carrier, start_us)
        for (carrier, start_us), value in windows.items()
        if value["flights"] >= HOUR_FLIGHTS_MIN
    ]
    if not candidates:
        return None
    _, carrier, start_us = max(candidates)
    value = windows[carrier, start_us]
    return WorstHour(
        carrier, names.get(carrier, carrier), datetime_of(start_us), value["flights"], value["mean_delay"]
    )


def report_table(totals: Sequence[CarrierTotal], console: Any) -> Any:
    """The busiest and the most delayed carriers, for rich: side by side where the console has room for both."""
    from rich.table import Table

    delayed = sorted(totals, key=lambda total: (-total.mean_delay, total.carrier))
    parts = [_carriers("Busiest carriers", totals), _carriers("Most delayed carriers", delayed)]
    beside = Table.grid(padding=(0, 3, 0, 0))
    beside.add_row(*parts)
    if console.measure(beside, options=console.options.update(max_width=WIDTH_MAX)).maximum <= console.width:
        return beside
    below = Table.grid()
    for part in (parts[0], "", parts[1]):
        below.add_row(part)
    return below


def _carriers(title: str, totals: Sequence[CarrierTotal]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(title, no_wrap=True)
    table.add_column("flights", justify="right", no_wrap=True)
    table.add_column("delay", justify="right", no_wrap=True)
    for total in totals[:ROWS]:
        table.add_row(visible_line(f"{total.carrier} {total.name}"), f"{total.flights:,}", f"{total.mean_delay:.1f} min")
    return table


def worst_hour_text(worst: WorstHour) -> str:
    return (
        f"The worst hour: {worst.start.day} {worst.start:%B, %H:%M} UTC, {worst.flights} flights of "
        f"{visible_line(worst.name)}, {worst.mean_delay:.0f} min late."
    )


def as_json(totals: Sequence[CarrierTotal], worst: WorstHour | None) -> dict[str, Any]:
    """The same for programs."""
    shown_worst = None if worst is None else asdict(worst) | {"start": worst.start.isoformat()}
    return {"carriers": [asdict(total) for total in totals], "worst_hour": shown_worst}
