"""File formats, compression and object stores: open a file and read its records.

Knows nothing of sources, tables or positions.
"""
