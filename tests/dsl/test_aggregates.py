"""Named aggregates follow the one naming rule of fields."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.dsl import aggregates
from headrace.errors import TopologyError
from headrace.model.topology import NamedAggregate

KINDS = ["count", "sum", "mean", "min", "max", "first", "last", "count_distinct"]
PATHS = ["key", "value", "value.delay", "value.plane.seats", "value.user-id", "timestamp", "partition", "offset"]


def same(found: NamedAggregate, kind: str, field: str | None) -> bool:
    return (found.kind, found.field) == (kind, field)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_takes_every_path(kind: str) -> None:
    for path in PATHS:
        assert same(getattr(aggregates, kind)(path), kind, path)


def test_count_counts_records() -> None:
    assert same(aggregates.count(), "count", None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", ["delay", "value.", "value..a", "value.a + 1", "key.a", "", "Value.a", 5, "headers"])
def test_other_fields_are_refused(kind: str, field: Any) -> None:
    with pytest.raises(TopologyError) as raised:
        getattr(aggregates, kind)(field)
    assert f"{kind}({field!r})" in str(raised.value)


def test_a_forgotten_value_is_guessed() -> None:
    with pytest.raises(TopologyError, match=r"did you mean 'value\.dep_delay'"):
        aggregates.mean("dep_delay")
