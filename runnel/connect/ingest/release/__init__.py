"""Quarantined rows of file sources: the text to correct them in, and reading them through their source again.

Imports `connect/ingest` and what is below it.
"""
