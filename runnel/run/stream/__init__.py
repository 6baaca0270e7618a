"""Structured Streaming: queries whose batches are published once each.

Spark's query id and epoch are part of each commit.
"""
