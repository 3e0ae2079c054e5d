"""Functions that no user has written, Python's own and those of compiled modules, reach the workers by their names."""

from __future__ import annotations

import functools
import operator
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pyspark import cloudpickle

import headrace as hr
from headrace.adapters.spark.pickled_programs import _is_users, _parts_of

NUMBERS = [3, 1, 2, 7, 5, 4, 6, 0, 9, 8]  # the keys k0 to k4 have two of them each
INITIAL: dict[str, tuple[Any, Any, Any]] = {
    "lists": (list, lambda state, record: [*state, record.value], [3, 4]),
    "wholes": (int, lambda state, record: state + record.value, 7),
    "dicts": (dict, lambda state, record: {**state, str(record.value): 1}, {"3": 1, "4": 1}),
    "partial": (functools.partial(int, "100"), lambda state, record: state + record.value, 107),
    "repeated": (functools.partial(operator.mul, [0], 2), lambda state, record: [*state, record.value], [0, 0, 3, 4]),
}
FOLDED: dict[str, tuple[Any, int]] = {
    "max": (max, 4),
    "operator": (operator.add, 7),
    "ufunc": (np.maximum, 4),
    "partial-ufunc": (functools.partial(np.add), 7),
    "own-method": (int.__add__, 7),
}


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_built_in_and_compiled_functions_run_in_workers(world: Any) -> None:
    world.produce(NUMBERS)
    app = world.app()
    grouped = app.stream("in", key=hr.String(), value=hr.Json()).group_by_key()
    for name, (initial, function, _) in INITIAL.items():
        grouped.aggregate(initial=initial, function=function, value=hr.Json(), store=name).to_stream().to(f"out-{name}")
    for name, (function, _) in FOLDED.items():
        grouped.reduce(function, store=f"store-{name}").to_stream().to(f"out-{name}")
    world.run(app)
    expected = {name: value for name, (*_, value) in INITIAL.items()} | {name: value for name, (_, value) in FOLDED.items()}
    found = {name: {record.key: record.value for record in world.read(f"out-{name}")}["k0"] for name in expected}
    assert found == expected


def test_only_what_a_user_wrote_in_python_travels_by_value() -> None:
    made, part = ModuleType("made_in_a_notebook"), ModuleType("numpy.made_by_a_compiler")
    assert _is_users(sys.modules[__name__]) and _is_users(made)
    for module in (sys.modules["builtins"], sys.modules["_operator"], sys.modules["math"], functools, np, hr, part):
        assert not _is_users(module), module
    compiled = ModuleType("sums_of_mine")
    compiled.__file__ = "/home/user/app/sums_of_mine.so"
    assert not _is_users(compiled)
    named_as_pythons = ModuleType("statistics")
    named_as_pythons.__file__ = "/home/user/app/statistics.py"
    assert _is_users(named_as_pythons)


def test_what_a_partial_function_is_made_of_is_looked_at() -> None:
    def own(first: Any, second: Any) -> Any:
        return first or second

    nested = functools.partial(functools.partial(own, int), second=max)
    assert set(_parts_of(nested)) == {nested, own, int, max}
    assert cloudpickle.loads(cloudpickle.dumps(nested))() is int
