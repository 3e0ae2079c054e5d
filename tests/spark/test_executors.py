"""Who the executors are and which of them may work, while they come, answer and are lost."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.adapters.spark import executors as module
from headrace.adapters.spark.dead_jvm import JvmCalls
from headrace.adapters.spark.executors import Executors
from headrace.adapters.spark.questions import Executor
from headrace.core.affinity.admission import Admitted, Rejected


def test_one_that_has_answered_for_another_and_is_lost_while_it_is_asked_itself_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark runs a question for a busy executor on another one, which came just now and cannot work."""
    there = [Executor("1", "host-1", 1)]
    asked, answered = {name: threading.Event() for name in "12"}, {name: threading.Event() for name in "12"}

    def verdicts(context: Any, check: Any, due: Sequence[Executor]) -> dict[str, Any]:
        name = due[0].id
        asked[name].set()
        assert answered[name].wait(20)
        return {"2": Rejected(("Python does not work there",)), "1": Admitted("host-1")} if name == "1" else {}

    ids = SimpleNamespace(mkString=lambda _: ",".join(one.id for one in there))
    java = SimpleNamespace(sc=lambda: SimpleNamespace(getExecutorIds=lambda: ids))
    monkeypatch.setattr(module, "_listed", lambda context: list(there))
    monkeypatch.setattr(module.questions, "verdicts", verdicts)
    executors = Executors(SimpleNamespace(sparkContext=SimpleNamespace(_jsc=java)), JvmCalls(None))
    executors._check = SimpleNamespace()  # type: ignore[assignment]
    executors.look()
    assert asked["1"].wait(20)
    there.append(Executor("2", "host-2", 1))
    executors.look()
    assert asked["2"].wait(20)
    answered["1"].set()
    while "1" in executors._asking:
        pass
    assert executors.rejections() == {"host-2": "Python does not work there"}
    del there[1]
    executors.look()
    assert executors.rejections() == {}
    answered["2"].set()
    while executors._asking:
        pass
    executors.look()
    assert executors.rejections() == {} and executors.slots() == {"host-1": 1}


def test_one_that_came_as_another_was_lost_is_seen_though_the_list_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's scheduler has the new one at once; the list, which has as many, still has the one that was lost."""
    one, two, three = (Executor(name, f"host-{name}", 1) for name in "123")
    ids, listed = ["1", "2"], [one, two]

    def verdicts(context: Any, check: Any, due: Sequence[Executor]) -> dict[str, Any]:
        return {one.id: Admitted(one.host) for one in due}

    java = SimpleNamespace(sc=lambda: SimpleNamespace(getExecutorIds=lambda: SimpleNamespace(mkString=lambda _: ",".join(ids))))
    monkeypatch.setattr(module, "_listed", lambda context: list(listed))
    monkeypatch.setattr(module.questions, "verdicts", verdicts)
    executors = Executors(SimpleNamespace(sparkContext=SimpleNamespace(_jsc=java)), JvmCalls(None))
    executors._check = SimpleNamespace()  # type: ignore[assignment]

    def looked() -> dict[str, int]:
        executors.look()
        while executors._asking:
            pass
        return executors.slots()

    assert looked() == {"host-1": 1, "host-2": 1}
    ids[:] = ["2", "3"]
    looked()
    listed[:] = [two, three]
    assert looked() == {"host-2": 1, "host-3": 1}
