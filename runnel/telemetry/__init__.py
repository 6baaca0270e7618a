"""Traces for OpenTelemetry. Nothing of it is imported until somebody wants them."""
