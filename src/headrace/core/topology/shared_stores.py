"""Whether processors that share a store declare it alike, and in one sub-topology."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.topology.store_forms import changes_of
from headrace.core.topology.sub_topologies import stores_of
from headrace.errors import TopologyError
from headrace.model.durations import duration_text
from headrace.model.topology import Node, StoreSpec


def check_shared(nodes: Iterable[Node]) -> None:
    """`TopologyError` where two processors declare one store differently. What Spark's types will say differs from nothing."""
    seen: dict[str, tuple[Node, StoreSpec]] = {}
    for node in nodes:
        for store in stores_of(node):
            holder, first = seen.setdefault(store.name, (node, store))
            differences = changes_of(first.form, store.form)
            if not differences and first.ttl_us is not None and store.ttl_us is not None and first.ttl_us != store.ttl_us:
                differences = [f"its entries lived for {duration_text(first.ttl_us)}, live for {duration_text(store.ttl_us)}"]
            if differences:
                raise TopologyError(
                    f"store {store.name!r} is shared by {holder.name!r} and {node.name!r}, which declare it differently: in "
                    f"the first {differences[0]} in the second",
                    "declare it once, for both processors; or give it two names",
                )
