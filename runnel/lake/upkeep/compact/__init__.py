"""Compact small data files into large ones without changing a row.

Publishes like any commit.
"""
