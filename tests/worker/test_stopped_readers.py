"""A reader of a Column prefix that was stopped gave some rows only: its container must not commit them as all of the round.

Reader and container may be on two machines, and one may get the signal that the other does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.exchange.engine import ContainerWork
from headrace.exchange.messages import Reject, decoded_summary
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from headrace.worker.ports import ReaderReport


class ReportingEngine(InlineEngine):
    """Each round's reader reports the next of `reports`, then nothing."""

    def __init__(self, *reports: ReaderReport) -> None:
        super().__init__(run_container)
        self._reports = list(reports)
        self.stopped: list[bool] = []

    def run(
        self, sub_topology: str, round_id: str, works: Sequence[Sequence[ContainerWork]], program: Any
    ) -> list[bytes]:
        given = self._reports.pop(0) if self._reports else ReaderReport([], {})
        answers = [run_container(work.payload, program, (), lambda: given) for group in works for work in group]
        self.stopped += [decoded_summary(answer).stopped for answer in answers]
        return answers


@pytest.fixture
def app(tmp_path: Path) -> hr.App:
    url = f"log:{tmp_path / 'log'}"
    with hr.open_system(url) as system:
        system.create_stream("in", 1)
        system.create_stream("dead", 1)
        system.produce("in", [(b"k", b"1"), (b"k", b"2")])
    made = hr.App("stopped", url, local_store_dir=str(tmp_path / "stores"), dead_letter_stream="dead")
    made.stream("in", key=hr.String(), value=hr.Long()).map_values(lambda r: r.value, value=hr.Long()).to("out")
    return made


def test_a_container_whose_reader_was_stopped_is_stopped_too(app: hr.App) -> None:
    engine = ReportingEngine(ReaderReport([], {}, stopped=True))
    wiring.start(app, "caught-up", engine=engine).wait(60)
    assert engine.stopped[0]
    assert not any(engine.stopped[1:]), "the round was planned again, and committed"
    assert len(engine.stopped) > 1


def test_a_reject_of_a_reader_is_a_dead_letter(app: hr.App) -> None:
    reject = Reject.of(0, 1, "in", ValueError("no number"))
    engine = ReportingEngine(ReaderReport([reject], {}))
    job = wiring.start(app, "caught-up", engine=engine)
    job.wait(60)
    assert not any(engine.stopped)
    assert job.status()["sub_topologies"]["source"]["counters"]["dead_letters"] >= 1
