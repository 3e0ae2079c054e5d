"""Spans by OpenTelemetry."""
