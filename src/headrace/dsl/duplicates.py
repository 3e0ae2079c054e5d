"""`KStream.drop_duplicates` while the topology is written: its operator, its store, and what it asks of the key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from headrace.dsl import stream_cursor as flows
from headrace.dsl.builder import Builder, operator_text
from headrace.dsl.rekeying import Grouping
from headrace.dsl.stream_cursor import Flow, checked_function
from headrace.errors import ConfigError, TopologyError
from headrace.model.durations import duration_us
from headrace.model.topology import DropDuplicates, StoreKind, StoreSpec
from headrace.serdes.serdes import Long


def without_duplicates(
    builder: Builder, flow: Flow, by: Any, within: str | timedelta, store: str | None, name: str | None
) -> Flow:
    """`flow` behind a `DropDuplicates`, and behind a repartition stream where the rows are not by key."""
    try:
        within_us = duration_us(within, "within")
    except ConfigError as error:
        raise TopologyError(f"drop_duplicates: {error.message}", error.hint) from None
    if within_us <= 0:
        raise TopologyError(f"drop_duplicates(within={within!r}): expected a length of time above 0")
    given = None if by is None else checked_function("drop_duplicates", by, flows.RECORD_ONLY, None)
    grouping = Grouping(builder, flow)
    own = builder.lasting_name_of("drop_duplicates", flow.anchor, name or store)
    text = operator_text("drop_duplicates", own)
    store_name = builder.checked_store(text, store or own)
    key = grouping.key(text)
    # The form of a Processor's store whose values expire: the time of the record that came first, as a long.
    form = f"key-value expiring key={key.form} value={Long().form}"
    spec = StoreSpec(store_name, StoreKind.KEY_VALUE, form, Long(), 2 * within_us)
    grouped = grouping.grouped(store_name, own)
    node = DropDuplicates(name=own, parents=(grouped.node,), store=spec, by=given, within_us=within_us)
    builder.add("drop_duplicates", node)
    return grouped.after(own, text, given=own)
