"""Operators, sources and stores are different things: an operator that is named by its store alone makes room for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.core.topology.sub_topologies import stores_of
from headrace.model.topology import Repartition

AFTER_STORES: dict[str, Callable[[hr.KStream], Any]] = {
    "count": lambda s: s.group_by_key().count(store="by"),
    "windows": lambda s: s.group_by_key().windowed_by(hr.Tumbling("1 hour", grace="1 s")).count(store="by"),
    "suppress": lambda s: s.group_by_key().count(name="n").suppress(hr.until_time_limit("1 s"), store="by"),
    "to_table": lambda s: s.to_table(store="by"),
    "drop_duplicates": lambda s: s.drop_duplicates(within="1 s", store="by"),
}


@pytest.mark.parametrize("kind", sorted(AFTER_STORES))
@pytest.mark.parametrize("taken_by", ["select_key", "source"])
def test_a_store_may_be_named_as_an_operator_or_a_source_is(taken_by: str, kind: str) -> None:
    """What is found under the store's name, or named after it, is the same as without the operator of that name."""

    def names(source: str, key: str) -> list[str]:
        app = hr.App("delays")
        read = app.stream(source, key=hr.String(), value=hr.String()).select_key(lambda r: r.value, key=hr.String(), name=key)
        made = AFTER_STORES[kind](read)
        made = made if isinstance(made, hr.KStream) else made.to_stream()
        made.group_by_key().reduce(lambda old, new: new)
        nodes = app.topology().nodes
        stores = [store.name for node in nodes for store in stores_of(node)]
        return stores + [node.stream for node in nodes if isinstance(node, Repartition)]

    found = names("by", "key") if taken_by == "source" else names("in", "by")
    assert found == names("in", "key") and "by-reduce" in found


def test_a_name_that_a_store_has_given_to_its_operator_is_refused_with_what_to_do() -> None:
    app = hr.App("delays")
    flights = app.stream("flights", key=hr.String(), value=hr.String())
    flights.group_by_key().count(store="by")
    with pytest.raises(hr.TopologyError, match=r"count\('by'\), which is named as its store is, and this filter") as found:
        flights.filter(lambda r: True, name="by")
    assert found.value.hint and "declare this one first" in found.value.hint
