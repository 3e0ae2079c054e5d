"""Spans of rounds and changes, as a collector of OpenTelemetry gets them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import headrace as hr
from headrace.core.metrics.spans import round_span
from headrace.errors import SetupError
from headrace.model.checkpoint import RoundId
from support.collector import Collector, facts_of
from support.world import started, waited


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def application(folder: Path, **keys: Any) -> hr.App:
    url = f"log:{folder / 'log'}"
    with hr.open_system(url) as system:
        system.create_stream("in", 2)
        system.produce("in", [hr.Record(b"k%d" % n, b"v", 0) for n in range(10)])
    given = {"state_uri": str(folder / "state"), "local_store_dir": str(folder / "stores"), "traces": "otel", **keys}
    app = hr.App("traced", url, config=given)
    app.stream("in", key=hr.Bytes(), value=hr.Bytes()).group_by_key().count(store="counts").to_stream().to("out")
    return app


def test_a_collector_gets_each_round_with_its_parts_and_each_change(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    before_ns = time.time_ns()
    job = started(application(tmp_path))
    try:
        waited(lambda: job.status()["sub_topologies"]["source"]["records"] == 10, job)
        job.set_elasticity(2)
        waited(lambda: job.status()["sub_topologies"]["source"]["elasticity_factor"] == 2, job)
    finally:
        job.stop()
    after_ns = time.time_ns()
    rounds = [one for one in collector.spans if one.name == "round of source"]
    assert collector.services == {"traced"}
    assert sum(facts_of(one)["headrace.records_processed"] for one in rounds) == 10
    for one in rounds:
        facts = facts_of(one)
        assert before_ns < one.start_time_unix_nano < one.end_time_unix_nano < after_ns
        assert facts["headrace.application"] == "traced" and facts["headrace.epoch"] >= 1 and facts["headrace.round"] >= 1
        parts = [part for part in collector.spans if part.parent_span_id == one.span_id]
        assert sorted(part.name for part in parts) == ["commit", "containers"]
        assert {part.trace_id for part in parts} == {one.trace_id}
        assert min(part.start_time_unix_nano for part in parts) == one.start_time_unix_nano
        assert max(part.end_time_unix_nano for part in parts) == one.end_time_unix_nano
        (containers,) = [part for part in parts if part.name == "containers"]
        phases = [part for part in collector.spans if part.parent_span_id == containers.span_id]
        assert {"read", "process", "state", "write"} <= {part.name for part in phases}
        assert all(containers.start_time_unix_nano <= part.start_time_unix_nano for part in phases)
        assert all(part.end_time_unix_nano <= containers.end_time_unix_nano for part in phases)
    (change,) = [one for one in collector.spans if one.name.startswith("change")]
    assert change.name == "change: scale" and facts_of(change)["headrace.job_model"] == 2
    phases = [part.name for part in collector.spans if part.parent_span_id == change.span_id]
    assert phases[-2:] == ["fence", "plan"]


def test_without_a_collector_the_job_works_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    job = started(application(tmp_path), until="caught-up")
    began_s = time.monotonic()
    job.wait(30)
    assert time.monotonic() - began_s < 15
    assert job.status()["sub_topologies"]["source"]["records"] == 10


def test_they_go_where_the_process_sends_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    for _ in range(2):  # it is not closed with the first job
        kept.clear()
        job = started(application(tmp_path / str(_)), until="caught-up")
        job.wait(30)
        assert "round of source" in {one.name for one in kept.get_finished_spans()}


def test_where_the_library_is_missing_the_start_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "headrace.adapters.opentelemetry.exporting", None)
    with pytest.raises(SetupError, match=r"traces = 'otel' needs .*\n.*headrace\[otel\]"):
        started(application(tmp_path))


def test_a_round_of_many_tasks_has_sums() -> None:
    values: Any = {
        "round-ns": {"": 9_000}, "round-commit-ns": {"": 4_000}, "records-processed": {"sum": 30, "max": 7},
        "process-ns": {"a": 1, "b": 2}, "lag": {"a": 5},
        "round-phase-ns": {"read": 1_500, "process": 2_000, "commit": 4_500, "other": 1_000},
    }  # fmt: skip
    span = round_span("source", RoundId(epoch=3, sub_topology=None, number=8), values, 1_000, 10_000)
    assert span is not None and [(part.name, part.start_ns, part.end_ns) for part in span.parts] == [
        ("containers", 1_000, 6_000), ("commit", 6_000, 10_000)
    ]  # fmt: skip
    assert [(part.name, part.start_ns, part.end_ns) for part in span.parts[0].parts] == [
        ("other", 1_000, 2_000), ("read", 2_000, 3_500), ("process", 3_500, 5_500), ("commit", 5_500, 6_000)
    ], "the rest of the commit is the driver's"  # fmt: skip
    assert span.attributes == {
        "headrace.sub_topology": "source", "headrace.epoch": 3, "headrace.round": 8, "headrace.round_ns": 9_000,
        "headrace.round_commit_ns": 4_000, "headrace.records_processed": 30, "headrace.process_ns": 3,
    }  # fmt: skip
    assert round_span("source", None, {"task-count": {"": 2}}, 0, 0) is None
