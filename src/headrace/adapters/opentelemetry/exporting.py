"""Hands spans on to OpenTelemetry: to the tracer provider that the process has, else to one that sends them by OTLP over HTTP
to where the variables `OTEL_EXPORTER_OTLP_*` say, by default to port 4318 of this machine.
"""

from __future__ import annotations

from importlib.metadata import version

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from headrace.core.metrics.spans import Span


class SpanExport:
    """Any thread may call it. A provider of its own is closed by `close`, which sends what is left; where no collector answers
    that is given up within the exporter's own timeout. `processor_id`: of the group's processor that this process is, if it is
    one."""

    def __init__(self, application: str, processor_id: str | None = None) -> None:
        resource, self._facts = {SERVICE_NAME: application}, {"headrace.application": application}
        if processor_id is not None:
            resource[SERVICE_INSTANCE_ID] = self._facts["headrace.processor"] = processor_id
        self._own: TracerProvider | None = None
        provider = trace.get_tracer_provider()
        if not isinstance(provider, TracerProvider):
            provider = self._own = TracerProvider(resource=Resource.create(resource))
            provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = provider.get_tracer("headrace", version("headrace"))

    def __call__(self, span: Span) -> None:
        self._export(span, trace.INVALID_SPAN, self._facts)

    def _export(self, span: Span, parent: trace.Span, more: dict[str, str]) -> None:
        context = trace.set_span_in_context(parent)
        begun = self._tracer.start_span(
            span.name, context, attributes={**span.attributes, **more}, start_time=span.start_ns, record_exception=False
        )
        for part in span.parts:
            self._export(part, begun, {})
        begun.end(span.end_ns)

    def close(self) -> None:
        if self._own is not None:
            self._own.shutdown()
