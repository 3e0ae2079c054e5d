"""Where Spark tasks prefer to run (design.md 2.6): `result.rdd.zip(placement)` gives each its preferred location."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def collected(context: Any, made: Any, locations: Sequence[str | None]) -> list[str]:
    """The first column of the DataFrame `made`, whose partition i prefers to be made at `locations[i]`."""
    if not any(locations):
        return [row[0] for row in made.collect()]
    jvm = context._jvm
    tag = jvm.scala.reflect.ClassTag.Any()
    placed = [jvm.scala.Tuple2(i, _scala(jvm, [location] if location else [])) for i, location in enumerate(locations)]
    placement = context._jsc.sc().makeRDD(_scala(jvm, placed), tag)
    return [pair._1().getString(0) for pair in made._jdf.rdd().zip(placement, tag).collect()]


def _scala(jvm: Any, items: Sequence[Any]) -> Any:
    java = jvm.java.util.ArrayList()
    for item in items:
        java.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(java).toSeq()
