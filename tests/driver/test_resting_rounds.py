"""When the rounds of a processor are reported to rest: no container of them may commit any more."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from headrace.driver import generation as generations
from headrace.driver.generation import Generation
from headrace.driver.rounds.pauses import Pause
from headrace.errors import IncompatibleChangeError, RecordTooLargeError


@pytest.mark.parametrize("is_shut_out", [True, False])
def test_a_sub_topology_that_stops_alone_rests_once_no_container_of_its_last_round_can_commit(
    monkeypatch: pytest.MonkeyPatch, is_shut_out: bool
) -> None:
    """Of its last round one container failed; another one is still at work, and may commit until it is shut out. Where that
    cannot be, the error ends all rounds."""
    monkeypatch.setattr(generations, "upstream_names_of", lambda subs: {None: (), "b": ()})

    def runner(name: str | None, title: str) -> Any:
        one = MagicMock()
        one.sub.name, one.sub.title, one.sub.reads = name, title, {title}
        one.is_behind.return_value, one.absent.due_in_s.return_value = False, math.inf
        return one

    source, other, failed = runner(None, "source"), runner("b", "b"), list[BaseException]()
    source.run.side_effect = error = RecordTooLargeError("a record of 2 MB")
    if not is_shut_out:
        source.shut_out.side_effect = IncompatibleChangeError("the plan is another one")
    watch = MagicMock()
    watch.refused.side_effect = lambda reads: {"source": IncompatibleChangeError("recreated")} if "source" in reads else {}
    prepared: Any = SimpleNamespace(plan=MagicMock(refused={}, subs=[]), maintenance=MagicMock(), runners=(source, other))
    pace: Any = SimpleNamespace(idle_timeout_s=1, max_lag=None, trigger_s=0.01, clock_us=lambda: 0)
    made: Any = Generation(prepared, MagicMock(), pace, None, watch, failed.append)
    made.publish = lambda *_, **__: False
    made._planned = lambda one, pause: MagicMock() if one is source else None
    made.start()
    made._threads[0].join(5)
    made.pause({"source": Pause(1), "b": Pause(1)})
    until_s = time.monotonic() + (5 if is_shut_out else 0.3)
    while not made.rests(1) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert made.rests(1) is is_shut_out
    assert source.shut_out.call_count == 1
    assert (list(made.stopped_by), failed) == (([None], []) if is_shut_out else ([], [error]))
    made.stop()
    assert made.join(5)
