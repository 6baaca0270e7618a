"""Compute one task: build its frame, choose how to refresh, write.

May import `run.slices`, `run.write` and what is below them.
"""
