"""What a snapshot is read from: each offset once, streams until a broker has heard of them, and owners where they matter."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.config.loading import load_config
from headrace.core.job_plan.planner import Refusal, plan
from headrace.driver.planning import observe as observing
from headrace.driver.planning.observe import SystemOffsets, observe, terms_of
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.streams import SSP, StreamDescription
from planning.scenarios import counts, two_parts
from support.world import caught_up


class Asked:
    """A system that counts what it is asked."""

    def __init__(self, system: Any) -> None:
        self._system, self.calls = system, Counter[tuple[Any, ...]]()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._system, name)
        if not callable(found) or name in ("metadata_store", "job_store", "consumer"):
            return found

        def counted(*args: Any, **options: Any) -> Any:
            self.calls[name, *args] += 1
            return found(*args, **options)

        return counted


def terms(build: Any, url: str) -> Any:
    app = hr.App("tally", url)
    build(app)
    return terms_of(app.topology(), load_config(None, {}, {"system": url}), "log")


def test_each_offset_is_asked_for_once_however_often_plans_are_made(tmp_path: Path) -> None:
    url = f"log:{tmp_path / 'log'}"
    with hr.open_system(url) as opened:
        opened.create_stream("clicks", 2)
        system: Any = Asked(opened)
        snapshot = observe(terms(counts, url), system, opened.job_store("tally"))
        for _ in range(3):
            assert not isinstance(plan(terms(counts, url), snapshot), Refusal)
    asked = {call: count for call, count in system.calls.items() if call[0].endswith(("offsets", "watermarks"))}
    assert asked and set(asked.values()) == {1}, asked


def test_an_answer_stays_though_the_stream_moves_on(tmp_path: Path) -> None:
    end = Startpoint(PositionType.LATEST)
    with hr.open_system(f"log:{tmp_path / 'log'}") as system:
        system.create_stream("clicks", 1)
        offsets = SystemOffsets(system)
        place = SSP("log", "clicks", 0)
        assert (offsets.ends("clicks"), offsets.register(place, end)) == ({0: 0}, 0)
        system.produce("clicks", [(b"k", b"v")])
        assert (offsets.ends("clicks"), offsets.register(place, end)) == ({0: 0}, 0)
        assert SystemOffsets(system).ends("clicks") == {0: 1}


class Lagging:
    """A system whose first answers are of a broker that has not heard of new partitions."""

    def __init__(self, system: Any, answers: int) -> None:
        self._system, self.answers = system, answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)

    def streams(self, of: str | None = None) -> list[StreamDescription]:
        found: list[StreamDescription] = self._system.streams(of=of)
        self.answers -= 1
        return [StreamDescription(one.name, 1, one.id, one.internal_of) if self.answers >= 0 else one for one in found]


@pytest.mark.parametrize(("lagging_s", "seen"), [(30.0, 4), (0.0, 1)])
def test_streams_are_looked_at_again_while_they_show_fewer_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lagging_s: float, seen: int
) -> None:
    monkeypatch.setattr(observing, "LAGGING_S", lagging_s)
    url = f"log:{tmp_path / 'log'}"
    app = hr.App("tally", url, state_uri=str(tmp_path / "state"))
    counts(app)
    with hr.open_system(url) as system:
        system.create_stream("clicks", 4)
        run_once(app, tmp_path)
        lagging: Any = Lagging(system, 2)
        found = observe(terms(counts, url), lagging, system.job_store("tally"))
    assert found.streams["clicks"].partitions == seen


def run_once(app: hr.App, root: Path) -> None:
    overrides = [f"local_store_dir={root / 'stores'}"]
    caught_up(app, overrides=overrides)


def test_the_owner_of_a_repartition_stream_is_looked_up_where_it_is_another_application(tmp_path: Path) -> None:
    url = f"log:{tmp_path / 'log'}"
    with hr.open_system(url) as system:
        system.create_stream("clicks", 2)
        system.create_stream("tally-by-page-repartition", 2, internal_of="other")
        refused = plan(terms(two_parts, url), observe(terms(two_parts, url), system, system.job_store("tally")))
    assert isinstance(refused, Refusal)
    assert "it belongs to 'other'" in refused.error.message
