"""Commits, branches, tags and refs.

Rows of the catalog database; no data files.
"""
