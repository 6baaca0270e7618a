"""Differences between two versions: tables, files, rows, slices.

Reads manifests and data files; writes nothing.
"""
