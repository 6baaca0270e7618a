"""One decision per kind of table: skip, reuse, rows, slices, full, ingest, stream.

Pure: facts in, a step with its reason out.
"""
