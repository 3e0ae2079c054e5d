"""The public words for named aggregates: `count`, `sum`, `mean`, `min`, `max`, `first`, `last`, `count_distinct`.

They only say what is wanted: `.aggregate(flights=count(), mean_delay=mean("value.dep_delay"))`. In this module, and in
it alone, `sum`, `min` and `max` are not Python's.

All but the counts take finite numbers, and whole ones of 64 bits: a record with NaN or infinity, or one that would take a
sum beyond its range, is an error of the record. What exactly they do with numbers, `headrace.core.accumulators` says.
"""

from __future__ import annotations

import re

from headrace.errors import TopologyError
from headrace.model.topology import NamedAggregate

_WHOLE = frozenset({"key", "value", "timestamp", "partition", "offset"})
_PATH = re.compile(r"value(\.\w[\w-]*)+")


def count(field: str | None = None) -> NamedAggregate:
    """How many records there are, or how many in which `field` is not null.

    >>> count("value.dep_delay")
    NamedAggregate(kind='count', field='value.dep_delay')
    """
    return NamedAggregate("count", None if field is None else _checked("count", field))


def sum(field: str) -> NamedAggregate:  # noqa: A001 - the word that everyone knows it by
    """The sum of `field`; null where it is null in every record.

    Exact for whole numbers and decimals; a record that would take it out of 64 bits, or a decimal beyond 38 digits, is refused,
    and the sum stays as it was. Of decimals it is one, with the scale that the field declares.
    """
    return NamedAggregate("sum", _checked("sum", field))


def mean(field: str) -> NamedAggregate:
    """The mean of `field` over the records in which it is not null.

    Of whole numbers and decimals it is the exact total, of whatever size, divided once: a float.
    """
    return NamedAggregate("mean", _checked("mean", field))


def min(field: str) -> NamedAggregate:  # noqa: A001 - the word that everyone knows it by
    """The smallest value of `field`.

    Of values of several kinds, which a field without a schema may have, booleans are the least, then numbers, then texts.
    """
    return NamedAggregate("min", _checked("min", field))


def max(field: str) -> NamedAggregate:  # noqa: A001 - the word that everyone knows it by
    """The largest value of `field`.

    Of values of several kinds texts are the greatest, then numbers, then booleans.
    """
    return NamedAggregate("max", _checked("max", field))


def first(field: str) -> NamedAggregate:
    """The value of `field` in the record that came first."""
    return NamedAggregate("first", _checked("first", field))


def last(field: str) -> NamedAggregate:
    """The value of `field` in the record that came last."""
    return NamedAggregate("last", _checked("last", field))


def count_distinct(field: str) -> NamedAggregate:
    """How many different values `field` has, null not counted."""
    return NamedAggregate("count_distinct", _checked("count_distinct", field))


def _checked(kind: str, field: object) -> str:
    """`field` if it follows the one naming rule (api.md): `key`, `value`, `value.<field>`, `timestamp`, …"""
    if isinstance(field, str) and (field in _WHOLE or _PATH.fullmatch(field)):
        return field
    hint = "name key, value, value.<field>, timestamp, partition or offset"
    if isinstance(field, str) and re.fullmatch(r"\w[\w-]*(\.\w[\w-]*)*", field):
        hint = f"did you mean {f'value.{field}'!r}? {hint}"
    elif isinstance(field, str):
        hint = f"{hint}; compute it before, for example with map_values"
    raise TopologyError(f"{kind}({field!r}): expected the path of a field", hint)
