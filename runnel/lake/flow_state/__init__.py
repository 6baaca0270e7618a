"""What the flow engine keeps in the lake: results, runs, positions, code, streams.

Rows of the catalog database and their files.
"""
