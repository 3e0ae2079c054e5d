"""What a user gives to an operator is told apart by rules, never guessed."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from headrace.dsl.functions import batch, function_of, label_of
from headrace.errors import TopologyError
from headrace.model.topology import FunctionKind


def doubled(record: Any) -> Any:
    return record.value * 2


@batch
def doubled_all(rows: Any) -> Any:
    return rows


class Callable:
    def __call__(self, record: Any) -> Any:
        return record


class Column:
    """Looks like pyspark's to whoever goes by its name."""

    def __str__(self) -> str:
        return "Column<'(a > 1)'>"


def test_kinds() -> None:
    assert function_of("filter", " value.a > 1 ").kind is FunctionKind.SQL
    assert function_of("filter", " value.a > 1 ").body == "value.a > 1"
    assert function_of("map", doubled).kind is FunctionKind.RECORD
    assert function_of("map", doubled).body is doubled
    assert function_of("map", doubled_all).kind is FunctionKind.BATCH
    assert function_of("map", functools.partial(doubled_all)).kind is FunctionKind.BATCH
    assert function_of("map", Callable()).kind is FunctionKind.RECORD


def test_a_column_is_known_by_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TopologyError):
        function_of("filter", Column())
    monkeypatch.setattr(Column, "__module__", "pyspark.sql.classic.column")
    column = type("Sub", (Column,), {})()
    function = function_of("filter", column)
    assert (function.kind, function.body, function.label) == (FunctionKind.COLUMN, column, "(a > 1)")


def test_labels_name_the_place_without_the_path() -> None:
    line = doubled.__code__.co_firstlineno
    assert label_of(doubled) == f"doubled (test_functions.py:{line})"
    assert label_of(functools.partial(doubled)) == label_of(doubled)
    assert label_of(Callable()).startswith("Callable (test_functions.py:")
    assert label_of(str.upper) == "str.upper"
    assert "<lambda> (test_functions.py:" in label_of(lambda record: record)


@pytest.mark.parametrize("given", [5, None, "", "  ", {"a": 1}])
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(TopologyError, match=r"^map_values: expected"):
        function_of("map_values", given)


def test_batch_marks_and_gives_back() -> None:
    assert doubled_all("rows") == "rows"
    with pytest.raises(TopologyError, match="expected a function"):
        batch("value.a")  # type: ignore[type-var]
    with pytest.raises(TopologyError, match="cannot be marked"):
        batch(len)
