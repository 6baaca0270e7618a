"""Traces for OpenTelemetry.

Imports OpenTelemetry only if a project asks for traces.
"""
