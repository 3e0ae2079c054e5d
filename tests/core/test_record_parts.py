"""Which parts of its records a job looks at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.core.topology.engine_prefix import PARTS, endpoints_of, parts_used
from headrace.core.topology.sub_topologies import sub_topologies_of

ALL, KEY = set(PARTS), {"key"}
COUNTED = KEY | {"presence"}  # where a record without a value is skipped
JOBS: dict[str, tuple[Callable[[hr.KStream], Any], set[str]]] = {
    "count": (lambda s: s.group_by_key().count().to_stream().to("out"), COUNTED),
    "windowed count": (lambda s: s.group_by_key().windowed_by(hr.Tumbling("1 hour")).count().to_stream().to("out"), KEY),
    "named by key": (lambda s: s.group_by_key().aggregate(n=hr.count(), k=hr.last("key")), COUNTED),
    "named by time": (lambda s: s.group_by_key().aggregate(t=hr.max("timestamp")), COUNTED),
    "sum of a field": (lambda s: s.group_by_key().aggregate(n=hr.sum("value.n")), COUNTED | {"value"}),
    "reduce": (lambda s: s.group_by_key().reduce(lambda old, new: new), ALL),
    "sink": (lambda s: s.to("out"), ALL),
    "function": (lambda s: s.filter(lambda r: r.key == "a").group_by_key().count(), ALL),
    "merged": (lambda s: s.filter(lambda r: True).merge(s).group_by_key().count(), ALL),
}


@pytest.mark.parametrize("job", sorted(JOBS))
def test_the_parts_that_a_job_looks_at(job: str) -> None:
    build, expected = JOBS[job]
    app = hr.App("parts")
    build(app.stream("in", key=hr.String(), value=hr.Json("n int")).repartition(name="anew"))
    assert parts_of(app) == expected


def test_a_value_that_may_not_decode_is_always_looked_at() -> None:
    for value, expected in ((hr.Bytes(), COUNTED), (hr.String(), COUNTED | {"value"}), (hr.Json(), COUNTED | {"value"})):
        app = hr.App("parts")
        app.stream("in", key=hr.String(), value=value).group_by_key().count()
        assert parts_of(app) == expected


def test_two_operators_on_one_stream_need_the_parts_of_both() -> None:
    app = hr.App("parts")
    stream = app.stream("in", key=hr.String(), value=hr.Json("n int")).repartition(name="anew")
    stream.group_by_key().count()
    assert parts_of(app) == COUNTED
    stream.group_by_key().aggregate(n=hr.sum("value.n"))
    assert parts_of(app) == COUNTED | {"value"}


def test_a_table_and_a_function_of_time_need_all() -> None:
    app = hr.App("parts")
    app.stream("in", key=hr.String(), value=hr.Json(), timestamp=lambda r: r.value["at"]).group_by_key().count()
    assert parts_of(app) == ALL
    app = hr.App("parts")
    app.table("in", key=hr.String(), value=hr.Json())
    assert parts_of(app) == ALL


def parts_of(app: hr.App) -> set[str]:
    topology = app.topology()
    sub = sub_topologies_of(topology)[-1]
    (endpoint,) = endpoints_of(sub, topology)
    return set(parts_used(sub.nodes, endpoint))
