"""Workers are asked how far the stores are that they restore: one that does not answer is not waited for for ever."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.adapters.spark import engine as module
from headrace.adapters.spark.engine import SparkEngine
from headrace.adapters.spark.in_worker import WorkerFunctions
from headrace.exchange.engine import EngineFailure, RestoreWork

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def test_a_question_without_an_answer_is_given_up_and_no_other_one_with_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a worker is stopped, or its disk hangs."""
    asked, given_up = tmp_path / "asked", tmp_path / "given-up"

    def answer(payload: bytes) -> bytes:
        (asked / payload.decode()).touch()
        while payload == b"hangs" or not given_up.exists():
            time.sleep(0.01)
        return payload

    asked.mkdir()
    functions = WorkerFunctions(lambda *of: [], lambda *of: [], lambda *of: iter(()), answer)  # type: ignore[arg-type]
    engine = SparkEngine(spark, functions, stop_session=False)
    others: list[bytes] = []

    def ask_another() -> None:
        others.extend(engine.restore([RestoreWork("host-2", b"waits")]))

    another = threading.Thread(target=ask_another, daemon=True)
    another.start()
    while not (asked / "waits").exists():
        time.sleep(0.01)
    monkeypatch.setattr(module, "RESTORE_S_MAX", 1.0)
    with pytest.raises(EngineFailure, match="no worker at host-1 has answered for 1 s"):
        engine.restore([RestoreWork("host-1", b"hangs")])
    given_up.touch()
    another.join(60)
    assert others == [b"waits"]
