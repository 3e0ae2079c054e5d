"""Classes of the application's own module come out in a worker as they went in, which has no such module."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark import cloudpickle

import headrace as hr
from headrace.adapters.spark.pickled_classes import pickled_by_value
from spark import typed_values

WORKER = """
import msgspec, pickle, sys
from pyspark import cloudpickle
serdes, values, facts = cloudpickle.loads(open(sys.argv[1], 'rb').read())
assert 'spark.typed_values' not in sys.modules
data = [msgspec.json.encode(value) for value in values()]
again = [[serde.encode(serde.decode(serde.encode(value))) for value, serde in zip(values(), each)] for each in serdes]
errors = []
for serde, text in ((serdes[0][3], b'{"type":"closed","ofUser":1,"left":-1}'), (serdes[0][0], b'{"price":"x"}')):
    try:
        serde.decode(text)
    except Exception as error:
        errors.append(str(error))
forms = [[serde.form for serde in each] for each in serdes]
open(sys.argv[2], 'wb').write(pickle.dumps((data, again, facts(), forms, errors)))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """What another process makes of the classes."""
    folder = tmp_path_factory.mktemp("classes")
    serdes = tuple([make(kind) for kind in typed_values.KINDS] for make in (hr.Json, hr.MessagePack))
    cloudpickle.register_pickle_by_value(typed_values)
    try:
        data = pickled_by_value((serdes, typed_values.values, typed_values.facts))
    finally:
        cloudpickle.unregister_pickle_by_value(typed_values)
    (folder / "classes").write_bytes(data)
    command = [sys.executable, "-c", WORKER, str(folder / "classes"), str(folder / "found")]
    subprocess.run(command, check=True, cwd=Path(hr.__file__).parents[1])
    answer: tuple[Any, ...] = pickle.loads((folder / "found").read_bytes())
    return *answer, serdes


def test_values_are_the_same(found: tuple[Any, ...]) -> None:
    data, again, facts, *_, serdes = found
    values = typed_values.values()
    assert data == [msgspec.json.encode(value) for value in values]
    assert again == [
        [serde.encode(serde.decode(serde.encode(value))) for value, serde in zip(values, each, strict=True)] for each in serdes
    ]
    assert facts == typed_values.facts()


def test_serdes_are_the_same(found: tuple[Any, ...]) -> None:
    *_, forms, errors, serdes = found
    assert forms == [[serde.form for serde in each] for each in serdes]
    assert "Expected `int` >= 0" in errors[0] and "Expected `int`, got `str`" in errors[1]


def test_the_users_classes_stay_as_they_are(found: tuple[Any, ...]) -> None:
    assert found
    assert typed_values.Order.__annotations__["items"] == "list[Item]"
    assert hr.Json(typed_values.Order).decode(b'{"number":1}') == typed_values.Order(1)
