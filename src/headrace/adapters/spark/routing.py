"""Rows on their way from the Spark task that reads them to the Spark tasks whose containers take them: one exchange.

Order per partition survives it: each partition is read in one Spark task (protocol.md 4)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from pyspark.sql import functions as F

from headrace.adapters.spark.reader_reports import REPORT
from headrace.core.keys.key_layout import SLOTS
from headrace.core.rounds.reader_routes import Routes, Targets
from headrace.exchange.engine import ContainerWork

LOG = logging.getLogger("headrace.job")
_NOWHERE = -1


def with_low_bits(rows: Any) -> Any:
    """Records as they were read with `low`: as `worker.batch_keys.key_lows`, of the key, or of the offset where it is null."""
    hashed = F.when(F.col("key").isNull(), F.xxhash64("offset")).otherwise(F.xxhash64("key"))
    return rows.withColumn("low", hashed.bitwiseAND(F.lit(SLOTS - 1)).cast("int"))


def routed(rows: Any, routes: Routes, count: int) -> Any:
    """`rows`, of which Spark partition i holds what reader i mod `count` has read, so that each of `count` Spark partitions
    holds what its containers take. Rows that are reports say themselves where they go. What no container takes is dropped."""
    cases = []
    if "endpoint" in rows.columns:
        cases.append((f"endpoint = {REPORT}", "ssp"))
    many = any(len(tasks) > 1 for targets in routes.targets.values() for tasks in targets)
    stays = "spark_partition_id()"
    if many:
        cases, stays = [(when, f"array({then})") for when, then in cases], f"array({stays})"
    by_targets: dict[Targets, list[int]] = {}
    for ssp, targets in sorted(routes.targets.items()):
        by_targets.setdefault(targets, []).append(ssp)
    cases += [(_is_one_of(ssps), _chosen(targets, many)) for targets, ssps in by_targets.items()]
    text = "CASE " + " ".join(f"WHEN {when} THEN {then}" for when, then in cases) + f" ELSE {stays} END" if cases else stays
    sent = rows.withColumn("_to", F.expr(text))
    if many:
        sent = sent.withColumn("_to", F.explode("_to"))
    elif any(not tasks for targets in routes.targets.values() for tasks in targets):
        sent = sent.where(F.col("_to") != _NOWHERE)
    return sent.repartitionById(count, F.col("_to")).drop("_to")


def _chosen(targets: Targets, many: bool) -> str:
    """The Spark task of a row by its key bucket; where some go to several, an array of them."""
    if many:
        found = [f"array({', '.join(map(str, tasks))})" if tasks else "cast(array() as array<int>)" for tasks in targets]
    else:
        found = [str(tasks[0] if tasks else _NOWHERE) for tasks in targets]
    return found[0] if len(found) == 1 else f"array({', '.join(found)})[low & {len(found) - 1}]"


def _is_one_of(ssps: Iterable[int]) -> str:
    """Whether a row is of one of these partitions, whose numbers rise."""
    return " OR ".join(f"ssp BETWEEN {first} AND {last}" if first < last else f"ssp = {first}" for first, last in _runs(ssps))


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    for _, run in groupby(enumerate(numbers), key=lambda one: one[1] - one[0]):
        found = [number for _, number in run]
        yield found[0], found[-1]


def deliveries(works: Iterable[Iterable[ContainerWork]], routes: Routes) -> list[list[bytes]]:
    """Of each Spark task that reads the plans of the containers that take its rows: its own ones first."""
    payloads = [[work.payload for work in group] for group in works]
    return [[one for task in routes.takers(reader) for one in payloads[task]] for reader in range(len(payloads))]


def drop_exchanges(collected: Callable[[], Any]) -> None:
    """Delete the files of the exchanges behind an RDD of the JVM that was collected: else they stay until the JVM collects
    garbage, on a quiet heap half an hour."""
    try:
        collected().cleanShuffleDependencies(False)
    except Exception as error:  # the engine is lost, or its session was stopped: the files go with it
        LOG.debug("the files of an exchange were not deleted: %s", error)
