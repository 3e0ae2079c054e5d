"""Whole plans as text, held against files. `REWRITE_PLANS=1 make test PYTEST_ARGS=tests/planning` writes the files; read the
difference before it is committed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from planning.scenarios import SCENARIOS, Part, text_of_scenario

DATA = Path(__file__).parent / "testdata"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_plans_are_those_of_the_file(scenario: Callable[[], Iterator[Part]]) -> None:
    file = DATA / f"{scenario.__name__}.txt"
    text = text_of_scenario(scenario)
    if os.environ.get("REWRITE_PLANS"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_every_file_is_of_a_scenario() -> None:
    assert {file.stem for file in DATA.iterdir()} == {scenario.__name__ for scenario in SCENARIOS}
