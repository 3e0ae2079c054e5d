"""The demonstration's job: flights, their number and mean delay per carrier and hour.

`flight_delays.txt` beside this module is the same job as a user writes it: the demonstration leaves it in its folder, and
it is examples/flight_delays.py in the repository. A test holds both against each other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.application import App
from headrace.dsl.aggregates import count, mean
from headrace.dsl.repartitioned import Repartitioned
from headrace.dsl.windows import Tumbling
from headrace.serdes.json_serde import Json
from headrace.serdes.scalars import String

APPLICATION = "flight-delays"
INPUT = "flights"
REPARTITION = "by-carrier"
OUTPUT = "delays-by-carrier"
STORE = "delays"
PARTITIONS = 4
_EXAMPLE = "flight_delays.txt"


def flight_delays(partitions: int = PARTITIONS, **app_arguments: Any) -> App:
    """The application, with a repartition stream of so many partitions; `app_arguments` are those of `App`."""
    app = App(APPLICATION, **app_arguments)
    flights = app.stream(INPUT, key=String(), value=Json("carrier string, origin string, dep_delay double"))
    delays = (
        flights.filter("value.dep_delay is not null")
        .select_key("value.carrier")
        .repartition(Repartitioned(name=REPARTITION, number_of_partitions=partitions))
        .group_by_key()
        .windowed_by(Tumbling("1 hour"))
        .aggregate(flights=count(), mean_delay=mean("value.dep_delay"), store=STORE)
    )
    delays.to_stream().to(OUTPUT, value=Json())
    return app


def example_text(partitions: int = PARTITIONS, system: str | None = None) -> str:
    """The job as a user writes it, with a repartition stream of so many partitions; `system` unless it is the log."""
    text = Path(__file__).with_name(_EXAMPLE).read_text(encoding="utf-8")
    before, after = (f"number_of_partitions={number})" for number in (PARTITIONS, partitions))
    assert text.count(before) == 1, f"{_EXAMPLE} has no {before}"
    text = text.replace(before, after)
    for log in ("log:./headrace-demo/data", "log:./data") if system is not None else ():
        assert log in text, f"{_EXAMPLE} has no {log}"
        text = text.replace(log, str(system))
    return text
