"""Routes of the lake: tables, commits, branches, files, queries.

Thin: parse, call, answer.
"""
