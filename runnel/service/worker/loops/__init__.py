"""Continuous work of a worker: sources, streams, deliveries, compaction.

Each loop fails and recovers by itself.
"""
