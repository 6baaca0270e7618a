"""One module per database: connect, map types, split a table into ranges.

Knows nothing of the lake.
"""
