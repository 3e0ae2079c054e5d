"""Where what a job measures goes, besides its status."""

from __future__ import annotations

from collections.abc import Callable

from headrace.config.loading import Config
from headrace.core.metrics.sink import MetricsSink
from headrace.driver.metrics.tracing import Tracing
from headrace.errors import SetupError


def exports_of(config: Config, application: str, closers: list[Callable[[], None]]) -> tuple[MetricsSink, ...]:
    """Sinks for the configuration; what closes them is put to the `closers`. `SetupError` where a library is missing."""
    if config.traces == "off":
        return ()
    try:
        from headrace.adapters.opentelemetry.exporting import SpanExport
    except ModuleNotFoundError as error:
        raise SetupError(f"traces = 'otel' needs {error.name}", "pip install 'headrace[otel]'") from None
    export = SpanExport(application, config.processor_id)
    closers.append(export.close)
    return (Tracing(export),)
