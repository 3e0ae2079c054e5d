"""What `headrace ui` keeps from one answer to the next: a look that is renewed in the background, a system that stays open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.adapters.kafka import stored_checkpoints
from headrace.cli import kept_look
from headrace.cli.kept_look import KeptLook
from headrace.cli.operator_view import OperatorView
from headrace.cli.targets import Target
from headrace.client.kept_system import KeptSystem
from headrace.errors import ConfigError, UnavailableError
from headrace.testing import KafkaServer
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine


def until(look: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 20
    while not look():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


class Looks:
    """Counts looks; each may fail, or be held."""

    def __init__(self) -> None:
        self.count, self.error = 0, ""
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self) -> bytes:
        number = self.count = self.count + 1
        assert self.may_end.wait(20)
        if self.error:
            raise UnavailableError(self.error)
        return b"%d" % number


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Looks, KeptLook]]:
    monkeypatch.setattr(kept_look, "FRESH_S", 0.02)
    made = Looks()
    kept = KeptLook(made)
    yield made, kept
    kept.close()


def test_an_answer_is_what_was_looked_up_in_the_background_and_says_how_old_it_is(looks: tuple[Looks, KeptLook]) -> None:
    made, kept = looks
    assert kept.get()[1]
    until(lambda: made.count >= 5)
    made.may_end.clear()
    until(lambda: kept.get()[0] > 0.3)  # a look takes long: nobody waits for it
    made.may_end.set()
    until(lambda: kept.get()[0] < 0.3)


def test_it_ends_when_nobody_asks_and_begins_again(looks: tuple[Looks, KeptLook], monkeypatch: pytest.MonkeyPatch) -> None:
    made, kept = looks
    monkeypatch.setattr(kept_look, "ASKED_S", 0.1)
    kept.get()
    until(lambda: kept._renewing is None)
    before = made.count
    kept.get()
    until(lambda: made.count > before)


def test_what_is_stale_is_not_shown_but_the_error(looks: tuple[Looks, KeptLook], monkeypatch: pytest.MonkeyPatch) -> None:
    made, kept = looks
    kept.get()
    made.error = "no broker"
    before = made.count
    until(lambda: made.count > before + 1)
    assert kept.get()[1], "what was seen a moment ago, with its age"
    monkeypatch.setattr(kept_look, "STALE_S", 0.0)
    with pytest.raises(UnavailableError, match="no broker"):
        kept.get()


def test_what_was_seen_before_a_change_is_not_shown_after_it(looks: tuple[Looks, KeptLook]) -> None:
    made, kept = looks
    kept.get()
    made.may_end.clear()
    before = made.count
    until(lambda: made.count > before)  # a look has begun that does not see the change
    held = made.count
    kept.outdate()
    made.may_end.set()
    assert int(kept.get()[1]) > held


class Opened:
    """Stands for a system: how many are open."""

    open = made = 0

    def __init__(self, *given: Any, **named: Any) -> None:
        Opened.open += 1
        Opened.made += 1

    def close(self) -> None:
        Opened.open -= 1


def test_a_system_stays_open_until_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Opened, "open", 0)
    monkeypatch.setattr(Opened, "made", 0)
    monkeypatch.setattr(wiring, "open_configured", Opened)
    kept = KeptSystem(wiring.config_of(hr.App("shop", "kafka://127.0.0.1:1")))
    with kept.opened() as first, kept.opened() as second:
        assert first is second
    with pytest.raises(ConfigError), kept.opened():
        raise ConfigError("a key that is none")
    assert (Opened.made, Opened.open) == (1, 1)
    with kept.opened() as used:
        with pytest.raises(UnavailableError), kept.opened():
            raise UnavailableError("no broker")
        assert Opened.open == 1, "another look uses it"
        with kept.opened() as newer:
            assert newer is not used
    assert (Opened.made, Opened.open) == (2, 1)
    kept.close()
    assert Opened.open == 0


def test_on_kafka_a_look_decodes_only_what_has_changed(
    kafka_server: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, tasks = f"kafka://{kafka_server.bootstrap}", 4
    app = hr.App("kept", url, local_store_dir=str(tmp_path / "stores"), state_uri=str(tmp_path / "state"))
    app.stream("kept-in", key=hr.Long(), value=hr.Long()).group_by_key().count(store="counts")

    def run(*partitions: int) -> None:
        with hr.open_system(url) as system:
            system.produce("kept-in", [hr.Record(1, 1, partition=one) for one in partitions], key=hr.Long(), value=hr.Long())
        wiring.start(app, until="caught-up", engine=InlineEngine(run_container)).wait(60)

    with hr.open_system(url) as system:
        system.create_stream("kept-in", tasks)
    run(*range(tasks))
    stored_checkpoints.decode_checkpoint.cache_clear()
    view = OperatorView(Target("kept", wiring.config_of(app), app), allow_changes=True)
    try:
        for _ in range(3):
            assert len(view._overview()["tasks"]) == tasks
            assert sum(one["value"] for one in view.state("counts", "1")["entries"]) == tasks
            view.change("startpoint", {"stream": "kept-in", "position": "earliest"}, is_wanted=False)
        assert stored_checkpoints.decode_checkpoint.cache_info().misses == tasks
        run(0)
        assert sum(one["value"] for one in view.state("counts", "1")["entries"]) == tasks + 1, "what is new is seen"
        assert view._overview()["tasks"][0]["lag"] == 0
    finally:
        view.close()
