"""The programs in `examples/`, run as a user runs them; only Spark is left out, which they need for no expression."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from headrace.wiring import launch
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from support.world import Place

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTED = {
    "visits": """\
ann {'clicks': 2, 'last_page': '/cups', 'plan': 'gold'}
ann {'clicks': 1, 'last_page': '/tea', 'plan': 'gold'}
dead letter 0:0 SerdeError: """,
    "silent_sensors": """\
roof silent
roof back
""",
    "rescale": """\
job model 1: 2 tasks
job model 2: 2 tasks
job model 3: 4 tasks
orders of each customer: [3]
""",
    "rewind": """\
sold: 10
reads again: 1 of sales
sold: 10
""",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "spark_engine", lambda app, config: InlineEngine(run_container))


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_prints_what_it_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith(PRINTED[name]), printed


@pytest.mark.kafka
def test_the_example_on_kafka(on_kafka: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA", on_kafka.servers)
    runpy.run_path(str(EXAMPLES / "on_kafka.py"), run_name="__main__")
    assert capsys.readouterr().out == "be 2, is 1, not 1, or 1, question 1, that 1, the 1, to 2\n"
