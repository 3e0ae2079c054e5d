"""Having Spark run the tasks of a job where they are asked to run: by an RDD that has these preferences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from headrace.adapters.spark.routing import drop_exchanges

Preferences = Sequence[Sequence[str]]  # for each partition where it is to be made, as Spark writes that; none: anywhere


def collected(context: Any, made: Any, is_routed: bool, preferences: Preferences) -> list[str]:
    """The first column of the DataFrame `made`, whose partition i prefers to be made at `preferences[i]`: zipped with an RDD
    that has these. `is_routed`: there is an exchange in it."""
    if not any(preferences):
        try:
            return [row[0] for row in made.collect()]
        finally:
            if is_routed:
                drop_exchanges(made._jdf.queryExecution().toRdd)
    jvm = context._jvm
    placed = [jvm.scala.Tuple2(i, scala_of(jvm, places)) for i, places in enumerate(preferences)]
    tag = jvm.scala.reflect.ClassTag.Any()
    placement = context._jsc.sc().makeRDD(scala_of(jvm, placed), tag)
    rows = made._jdf.rdd()
    try:
        return [pair._1().getString(0) for pair in rows.zip(placement, tag).collect()]
    finally:
        if is_routed:
            drop_exchanges(lambda: rows)


def collected_without_query(
    context: Any, work: Callable[[Iterable[Any]], Iterator[str]], preferences: Preferences, items: Sequence[Any] | None = None
) -> list[str]:
    """What `work` gives for the one item of each partition, by default its number: no other partition gets it, while all get
    what is in `work`. There is no query to plan, which halves the time of a near-empty round."""
    from pyspark import RDD
    from pyspark.serializers import BatchedSerializer, CPickleSerializer

    items = range(len(preferences)) if items is None else items
    if not any(preferences):
        given = context.parallelize(items, len(preferences))
    else:
        jvm, serializer = context._jvm, CPickleSerializer()
        rows = [(serializer.dumps([item]), scala_of(jvm, places)) for item, places in zip(items, preferences, strict=True)]
        tag = jvm.scala.reflect.ClassTag.Any()
        placed = context._jsc.sc().makeRDD(scala_of(jvm, [jvm.scala.Tuple2(*row) for row in rows]), tag)
        given = RDD(placed.toJavaRDD(), context, BatchedSerializer(serializer))
    found: list[str] = given.mapPartitions(work).collect()
    return found


def scala_of(jvm: Any, items: Iterable[Any]) -> Any:
    """A sequence of Scala's."""
    java = jvm.java.util.ArrayList()
    for item in items:
        java.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(java).toSeq()
