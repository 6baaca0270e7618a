"""Compute a task by slices: find changed keys, read their rows, replace their rows.

Spark frames in, Spark frames out.
"""
